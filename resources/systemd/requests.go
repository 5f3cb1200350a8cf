package systemd

import (
	"context"
	"fmt"
	"sync"
)

// requests are the starts that systemd was asked for and has not answered. While there is one, nobody can
// know that the unit stays inactive: not even over a new connection, which systemd may read before the old one.
type requests struct {
	mu   sync.Mutex
	open map[string]chan struct{}
}

// unanswered are those of the daemon. They outlive the resource, as the next one for the same unit must know of them.
var unanswered = &requests{open: map[string]chan struct{}{}}

// begin is called after settled, by the only one who starts the unit.
func (r *requests) begin(unit string) (end func()) {
	c := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[unit] = c
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.open[unit] == c {
			delete(r.open, unit)
		}
		close(c)
	}
}

func (r *requests) find(unit string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.open[unit]; ok {
		return c
	}
	return nil
}

// settled waits until no start is on its way.
func (r *requests) settled(ctx context.Context, unit string) error {
	for c := r.find(unit); c != nil; c = r.find(unit) {
		select {
		case <-c:
		case <-ctx.Done():
			return fmt.Errorf("systemd has not answered an earlier request to start it: %w", ctx.Err())
		}
	}
	return nil
}
