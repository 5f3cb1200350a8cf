package membership

import (
	"context"
	"sync"
)

// feed turns callbacks that must not block into a channel that may be read slowly. It
// holds at most one undelivered event a node, the newest.
type feed struct {
	out  chan Event
	wake chan struct{}

	mu      sync.Mutex // guards pending and order
	pending map[string]Event
	order   []string
}

func newFeed() *feed {
	return &feed{out: make(chan Event), wake: make(chan struct{}, 1), pending: make(map[string]Event)}
}

func (f *feed) put(e Event) {
	f.mu.Lock()
	if _, waiting := f.pending[e.Node]; !waiting {
		f.order = append(f.order, e.Node)
	}
	f.pending[e.Node] = e
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// next takes the event that waits longest.
func (f *feed) next() (Event, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.order) == 0 {
		return Event{}, false
	}
	node := f.order[0]
	f.order = f.order[1:]
	e := f.pending[node]
	delete(f.pending, node)
	return e, true
}

// run delivers until ctx ends. An event that nobody takes is renewed when a newer one of
// its node comes meanwhile.
func (f *feed) run(ctx context.Context) {
	for {
		e, ok := f.next()
		for ok {
			select {
			case f.out <- e:
				ok = false
			case <-f.wake:
				e = f.renew(e)
			case <-ctx.Done():
				return
			}
			if !ok {
				e, ok = f.next()
			}
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (f *feed) renew(e Event) Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	newer, ok := f.pending[e.Node]
	if !ok {
		return e
	}
	delete(f.pending, e.Node)
	for i, node := range f.order {
		if node == e.Node {
			f.order = append(f.order[:i], f.order[i+1:]...)
			break
		}
	}
	return newer
}

func (f *feed) close() { close(f.out) }
