package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
)

// outbox delivers a group's reports in their order, each until the coordinator took or
// refused it: a report of a stop is a proof, and must not be lost.
type outbox struct {
	deliver func(context.Context, state.Command) error
	log     *slog.Logger

	mu      sync.Mutex
	queue   []state.Command
	closed  bool
	changed chan struct{}
}

func newOutbox(deliver func(context.Context, state.Command) error, log *slog.Logger) *outbox {
	return &outbox{deliver: deliver, log: log, changed: make(chan struct{})}
}

func (o *outbox) send(c state.Command) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = append(o.queue, c)
	o.turn()
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.turn()
}

// turn wakes everyone who waits for a change. The caller holds the mutex.
func (o *outbox) turn() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// run delivers until the outbox is closed and empty, or ctx ends.
func (o *outbox) run(ctx context.Context) {
	for {
		o.mu.Lock()
		changed, closed := o.changed, o.closed
		var next *state.Command
		if len(o.queue) > 0 {
			next = &o.queue[0]
		}
		o.mu.Unlock()
		switch {
		case next != nil:
			if !o.insist(ctx, *next) {
				return
			}
			o.mu.Lock()
			o.queue = o.queue[1:]
			o.turn()
			o.mu.Unlock()
		case closed:
			return
		default:
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}
}

// flush returns when everything is delivered, or ctx ends.
func (o *outbox) flush(ctx context.Context) {
	for {
		o.mu.Lock()
		changed, empty := o.changed, len(o.queue) == 0
		o.mu.Unlock()
		if empty {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// The pauses between two tries to deliver a report.
const (
	firstTry = 10 * time.Millisecond
	lastTry  = time.Second
)

// insist delivers one report, however long it takes; false if ctx ended first.
func (o *outbox) insist(ctx context.Context, c state.Command) bool {
	wait := firstTry
	for {
		err := o.deliver(ctx, c)
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case errors.Is(err, state.ErrSuperseded), errors.Is(err, state.ErrUnknown),
			errors.Is(err, state.ErrConflict), errors.Is(err, state.ErrBootEnded):
			o.log.Info("report no longer wanted", "err", err)
			return true
		}
		o.log.Debug("report not delivered yet", "err", err)
		if !sleep(ctx, wait) {
			return false
		}
		wait = min(2*wait, lastTry)
	}
}
