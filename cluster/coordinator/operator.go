package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hamgr/hamgr/cluster/scheduler"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// Progress is one step of an operation, for the operator who waits for it.
type Progress struct {
	Op    uint64
	Phase state.OpPhase
	Text  string
	Step  *stonith.Step // nil where only the phase changed
}

// talk is the operators who follow one operation.
type talk struct {
	phase     state.OpPhase
	failures  int
	followers []chan Progress
}

// Errors of Fence.
var (
	// ErrNotCoordinator: this node does not lead; nothing was done.
	ErrNotCoordinator = errors.New("not the coordinator")
	// ErrMajority: the majority needs the target; nothing was done.
	ErrMajority = errors.New("the majority would be gone")
	// ErrHandedOver: the leadership was handed over, since this node is the target.
	ErrHandedOver = errors.New("leadership is being handed over")
)

// Fence opens an operation for an operator and follows it until it is over, or until ctx
// ends: then the operation goes on by itself, and the last known state of it is
// returned with the error. The observer is called from this goroutine only.
func (c *Coordinator) Fence(ctx context.Context, order state.Order, observe func(Progress)) (state.Operation, error) {
	if !c.cfg.Replicated.IsCoordinator() {
		return state.Operation{}, ErrNotCoordinator
	}
	s := c.cfg.State()
	if n := s.Nodes[order.Node]; n != nil {
		order.Boot = n.Boot
	}
	if order.Action != state.FenceOn {
		if why := scheduler.Majority(s, c.view(), order.Node, math.MaxUint64); why != "" {
			return state.Operation{}, fmt.Errorf("%w: %s", ErrMajority, why)
		}
	}
	res, err := c.commit(ctx, state.Command{Order: &order})
	if err != nil {
		return state.Operation{}, err
	}
	c.logCommitted(state.Command{Order: &order}, res, order.Reason)
	opened := state.Operation{ID: res.Op, Node: order.Node, Boot: order.Boot, Action: order.Action}
	steps, ok := c.join(res.Op)
	if !ok {
		return opened, ErrHandedOver
	}
	defer c.hangUp(res.Op, steps)
	c.Wake()
	observe(Progress{Op: res.Op, Phase: state.Ordered, Text: fmt.Sprintf("operation %d is committed", res.Op)})
	for {
		o := c.cfg.State().Operations[res.Op]
		if o != nil && !o.Open() {
			return *o, nil
		}
		if o != nil && o.Phase == state.ProvenOff && o.Failures > 0 && o.Error != "" {
			return *o, nil // fenced, though it does not come on again
		}
		select {
		case <-ctx.Done():
			if o == nil {
				o = &opened
			}
			return *o, ctx.Err()
		case p, ok := <-steps:
			if !ok {
				return opened, ErrHandedOver
			}
			observe(p)
		}
	}
}

// join makes a channel that receives the steps of an operation, and is closed at the end of the term of
// office; false if that was before. Steps are dropped when its reader is slow; the state tells
// the outcome anyway.
func (c *Coordinator) join(op uint64) (steps chan Progress, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leading {
		return nil, false
	}
	t := c.talks[op]
	if t == nil {
		t = &talk{}
		c.talks[op] = t
	}
	ch := make(chan Progress, 64)
	t.followers = append(t.followers, ch)
	return ch, true
}

func (c *Coordinator) hangUp(op uint64, ch chan Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.talks[op]
	if t == nil {
		return
	}
	t.followers = slices.DeleteFunc(t.followers, func(f chan Progress) bool { return f == ch })
	if len(t.followers) == 0 {
		delete(c.talks, op)
	}
}

func (c *Coordinator) tell(op uint64, p Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.talks[op]; t != nil {
		t.tell(p)
	}
}

func (t *talk) tell(p Progress) {
	for _, f := range t.followers {
		select {
		case f <- p:
		default:
		}
	}
}

// phaseWords are for operators.
var phaseWords = map[state.OpPhase]string{
	state.Ordered: "is committed", state.Shooting: "fencing", state.ProvenOff: "proven off",
	state.Done: "done", state.CalledOff: "called off",
}

// tellTalks tells the followers of operations what changed in the state.
func (c *Coordinator) tellTalks(s *state.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for op, t := range c.talks {
		o := s.Operations[op]
		if o == nil || o.Phase == t.phase && o.Failures == t.failures {
			continue
		}
		t.phase, t.failures = o.Phase, o.Failures
		text := fmt.Sprintf("operation %d: %s", op, phaseWords[o.Phase])
		if o.Error != "" {
			text += ": " + o.Error
		}
		t.tell(Progress{Op: op, Phase: o.Phase, Text: text})
	}
}
