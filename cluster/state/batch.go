package state

import "fmt"

// Batch applies many commands to a state, for those that try out what would come of it: Apply copies the maps that a
// command changes each time, a batch does so once.
type Batch struct{ t *step }

// NewBatch begins with a state, which it leaves as it is.
func NewBatch(old *State) Batch {
	next := *old
	return Batch{&step{State: &next, index: old.Applied}}
}

// Apply applies a command that changes a grant: Grant, Stop, Started or Stopped, or says where a group is to go. Of others a part could be done when
// they are refused; they are ErrConflict.
func (b Batch) Apply(c Command) Result {
	if c.Grant == nil && c.Stop == nil && c.Started == nil && c.Stopped == nil && c.Aim == nil {
		return Result{Err: fmt.Errorf("not a command for a batch: %w", ErrConflict)}
	}
	b.t.index++
	b.t.pass(c)
	return b.t.run(c)
}

// State gives the state so far.
func (b Batch) State() *State {
	s := *b.t.State
	b.t.cloned.nodes, b.t.cloned.groups, b.t.cloned.ops = false, false, false // s shares them from now on
	return &s
}
