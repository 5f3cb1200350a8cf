package node

import (
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/hamgr/hamgr/cluster/state"
)

// replica is this node's copy of the replicated state: the thin shell between the
// log and package state.
type replica struct {
	current atomic.Pointer[state.State]
	onApply func(index uint64, before, after *state.State)
	changed func()
}

func newReplica(onApply func(uint64, *state.State, *state.State), changed func()) *replica {
	r := &replica{onApply: onApply, changed: changed}
	r.current.Store(&state.State{})
	return r
}

// State gives the newest state that was applied here.
func (r *replica) State() *state.State { return r.current.Load() }

// Apply applies one entry of the log; it is called in the log's order, by one goroutine.
// What cannot be decoded changes nothing, on every node alike.
func (r *replica) Apply(index uint64, command []byte) any {
	cmd, err := state.Decode(command)
	if err != nil {
		return state.Result{Err: err}
	}
	before := r.current.Load()
	after, res := state.Apply(before, index, cmd)
	if r.onApply != nil {
		r.onApply(index, before, after)
	}
	r.current.Store(after)
	r.changed()
	return res
}

// Snapshot gives the state's bytes.
func (r *replica) Snapshot() ([]byte, error) { return json.Marshal(r.current.Load()) }

// Restore replaces the state by a snapshot.
func (r *replica) Restore(b []byte) error {
	s := &state.State{}
	if err := json.Unmarshal(b, s); err != nil {
		return fmt.Errorf("restore state: %w", err)
	}
	r.current.Store(s)
	r.changed()
	return nil
}
