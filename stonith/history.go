package stonith

import (
	"context"
	"errors"
	"fmt"
)

// history is what is remembered of one node, guarded by Fencer.mu.
type history struct {
	newest  uint64 // newest operation seen
	running map[*operation]bool
	ended   chan struct{} // closed, and made anew, when an operation ends
}

// errOvertaken ends an On.
var errOvertaken = errors.New("an off of the same operation came")

// admit refuses an operation if a newer one for its node was seen. Else it is the
// newest, and ends those before it: at their next step they would only be in the way.
// The same operation may come again: that is a retry.
func (f *Fencer) admit(op *operation) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.nodes[op.order.Node]
	if h == nil {
		h = &history{running: map[*operation]bool{}, ended: make(chan struct{})}
		f.nodes[op.order.Node] = h
	}
	if op.order.Op < h.newest {
		return h.stale(op)
	}
	h.newest = op.order.Op
	for other := range h.running {
		opposite := other.goal.verb != op.goal.verb
		switch {
		case other.order.Op < h.newest:
			other.end(h.stale(other))
		case opposite && op.goal.verb == off.verb:
			other.end(errOvertaken)
		}
		if opposite {
			op.before = append(op.before, other)
		}
	}
	h.running[op] = true
	return nil
}

// drain waits until no operation is under way any more that came before op and wants the
// opposite: nothing is powered on before every off has drained, and nothing is proven off while
// an on may be at work.
func (f *Fencer) drain(ctx context.Context, op *operation) error {
	for {
		f.mu.Lock()
		h := f.nodes[op.order.Node]
		busy := false
		for _, other := range op.before {
			busy = busy || h.running[other]
		}
		ended := h.ended
		f.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// dismiss ends an operation. The error is ErrStale if a newer one came meanwhile.
func (f *Fencer) dismiss(op *operation) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.nodes[op.order.Node]
	delete(h.running, op)
	close(h.ended)
	h.ended = make(chan struct{})
	if op.order.Op < h.newest {
		return h.stale(op)
	}
	return nil
}

func (h *history) stale(op *operation) error {
	return fmt.Errorf("operation %d: %w, %d", op.order.Op, ErrStale, h.newest)
}
