package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
)

// replica is this node's copy of the replicated state: the thin shell between the
// log and package state.
type replica struct {
	speaks  int // the newest version of the log's format that this daemon knows
	current atomic.Pointer[state.State]
	onApply func(index uint64, before, after *state.State)
	fatal   func(error)
	unknown atomic.Bool           // an entry was of a format that this daemon does not know
	newer   atomic.Pointer[error] // why a snapshot was not restored
	changed atomic.Pointer[func()]
	applies atomic.Pointer[time.Time] // since when an entry is being applied; nil if none is
}

func newReplica(speaks int, onApply func(uint64, *state.State, *state.State), fatal func(error)) *replica {
	r := &replica{speaks: speaks, onApply: onApply, fatal: fatal}
	r.current.Store(&state.State{})
	return r
}

// onChange has f called after each change from now on, and once at once. The log may be
// at work already.
func (r *replica) onChange(f func()) {
	r.changed.Store(&f)
	f()
}

func (r *replica) tell() {
	if f := r.changed.Load(); f != nil {
		(*f)()
	}
}

// busy is for how long an entry is being applied; 0 if none is.
func (r *replica) busy() time.Duration {
	if began := r.applies.Load(); began != nil {
		return time.Since(*began)
	}
	return 0
}

// State gives the newest state that was applied here.
func (r *replica) State() *state.State { return r.current.Load() }

// Apply applies one entry of the log; it is called in the log's order, by one goroutine.
// What is no command changes nothing, on every node alike. What is one of a newer format would: a
// node that does not know it must not go on without it.
func (r *replica) Apply(index uint64, command []byte) any {
	began := time.Now()
	r.applies.Store(&began)
	defer r.applies.Store(nil)
	cmd, err := state.Decode(command)
	if r.unknown.Load() {
		return state.Result{Err: state.ErrVersion}
	}
	if need := cmd.Needs(); err == nil && need > r.speaks {
		err = fmt.Errorf("version %d of the log's format, this daemon knows %d: %w", need, r.speaks, state.ErrVersion)
	}
	if errors.Is(err, state.ErrVersion) {
		r.unknown.Store(true)
		r.fatal(fmt.Errorf("entry %d of the log: %w: install the version of hamgr that the other nodes run", index, err))
	}
	if err != nil {
		return state.Result{Err: err}
	}
	before := r.current.Load()
	after, res := state.Apply(before, index, cmd)
	if r.onApply != nil {
		r.onApply(index, before, after)
	}
	r.current.Store(after)
	r.tell()
	return res
}

// Snapshot gives the state's bytes. A state that misses an entry must not become one.
func (r *replica) Snapshot() ([]byte, error) {
	if r.unknown.Load() {
		return nil, state.ErrVersion
	}
	return json.Marshal(r.current.Load())
}

// refuse keeps why a snapshot was not restored: the log's library does not pass it on.
func (r *replica) refuse(err error) error {
	err = fmt.Errorf("%w: install the version of hamgr that the other nodes run", err)
	r.newer.Store(&err)
	return err
}

// refused is nil, or why a snapshot was not restored.
func (r *replica) refused() error {
	if err := r.newer.Load(); err != nil {
		return *err
	}
	return nil
}

// Restore replaces the state by a snapshot. One that says more than this daemon knows is not taken in part.
func (r *replica) Restore(b []byte) error {
	s := &state.State{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return r.refuse(fmt.Errorf("restore state: %w", err)) // a field of a newer version, most likely
	}
	if s.Format() > r.speaks {
		return r.refuse(fmt.Errorf("restore state: version %d of the log's format, this daemon knows %d: %w", s.Format(), r.speaks, state.ErrVersion))
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("restore state: more than one state")
	}
	r.current.Store(s)
	r.tell()
	return nil
}
