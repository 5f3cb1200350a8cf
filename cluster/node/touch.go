package node

import (
	"context"
	"sync"
	"time"
)

// touch is when this node did not hear a majority. Then it was cut off itself: it heard nobody, which says nothing about anybody,
// and its gossip took healthy nodes for dead.
type touch struct {
	n *Node

	mu     sync.Mutex
	lost   time.Time // since when it hears none; zero while it does
	breaks []span    // that are over, the last ones
}

type span struct{ from, to time.Time }

// keepBreaks bounds them. What lies before is silence like any other.
const keepBreaks = 64

// watch looks often enough to see every break that could count, until ctx ends.
func (t *touch) watch(ctx context.Context) {
	ticker := time.NewTicker(t.n.Config.Cluster.DetectionTime / 20)
	defer ticker.Stop()
	for ctx.Err() == nil {
		t.look()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// look notes when a break begins and ends.
func (t *touch) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	// What is cut off for no longer, and another node after it for 0.8 detection times, is silent for less than one.
	unnoticed := t.n.Config.Cluster.DetectionTime / 5
	heard := 1 + len(t.n.heardWithin(unnoticed))
	switch most := 2*heard > len(t.n.Config.Nodes); {
	case !most && t.lost.IsZero():
		t.lost = time.Now().Add(-unnoticed)
		if n := len(t.breaks); n > 0 {
			t.lost = latest(t.lost, t.breaks[n-1].to)
		}
	case most && !t.lost.IsZero():
		t.breaks = append(t.breaks, span{t.lost, time.Now()})
		t.breaks = t.breaks[max(0, len(t.breaks)-keepBreaks):]
		t.lost = time.Time{}
	}
}

// excuse gives for how much of the time since then silence means nothing. A break counts when it is over: of two nodes the one
// that is left hears no majority, and may judge the other one all the same. That it does not begin anew with each break is for
// a node that is dead while another one hiccups.
func (t *touch) excuse(since time.Time) (d time.Duration) {
	t.look()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.breaks {
		if from := latest(b.from, since); b.to.After(from) {
			d += b.to.Sub(from)
		}
	}
	return d
}
