package stonith

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// turns hands out one device: to one operation at a time, because a BMC mixes up
// or refuses what it is asked at once; and to orders before reads, because a shot
// must not wait for monitoring.
type turns struct {
	mu sync.Mutex
	// Guarded by mu:
	held          *turn
	orders, reads []*turn // waiting, in the order of their coming
}

// turn is the right to talk to the device, from take to done.
type turn struct {
	of      *turns
	order   bool
	yield   context.CancelCauseFunc // ends a read that is in an order's way
	granted chan struct{}
	stuck   string // guarded by of.mu: the call that holds the device although it should have ended
}

// take waits for the device. An order cancels the read that holds it; yield is how.
func (ts *turns) take(ctx context.Context, order bool, yield context.CancelCauseFunc) (*turn, error) {
	t := &turn{of: ts, order: order, yield: yield, granted: make(chan struct{})}
	if ts.queue(t) {
		return t, nil
	}
	select {
	case <-t.granted:
		return t, nil
	case <-ctx.Done():
	}
	stuck := ts.leave(t)
	if stuck != "" {
		return nil, fmt.Errorf("device is locked by an earlier %s that has not returned: %w", stuck, context.Cause(ctx))
	}
	return nil, fmt.Errorf("device is busy: %w", context.Cause(ctx))
}

// queue reports whether the device was free and is now t's.
func (ts *turns) queue(t *turn) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	switch {
	case ts.held == nil:
		ts.held = t
		return true
	case t.order:
		ts.orders = append(ts.orders, t)
		if !ts.held.order {
			ts.held.yield(errGaveWay)
		}
	default:
		ts.reads = append(ts.reads, t)
	}
	return false
}

// leave takes back a turn nobody waits for any more, and says what holds the device.
func (ts *turns) leave(t *turn) (stuck string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.held == t { // granted in the same moment
		ts.next()
		return ""
	}
	same := func(o *turn) bool { return o == t }
	ts.orders = slices.DeleteFunc(ts.orders, same)
	ts.reads = slices.DeleteFunc(ts.reads, same)
	return ts.held.stuck
}

// next gives the device to whom it is due. Called with mu held.
func (ts *turns) next() {
	queue := &ts.orders
	if len(*queue) == 0 {
		queue = &ts.reads
	}
	if len(*queue) == 0 {
		ts.held = nil
		return
	}
	ts.held, *queue = (*queue)[0], (*queue)[1:]
	close(ts.held.granted)
}

func (t *turn) done() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.next()
}

// hang notes what keeps the device, for those who wait.
func (t *turn) hang(call string) {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.stuck = call
}
