package node

import (
	"context"
	"sync"
	"time"
)

// touch is since when this node hears a majority without a break. Before that it was cut off itself: it heard nobody, which
// says nothing about anybody, and its gossip took healthy nodes for dead.
type touch struct {
	n *Node

	mu   sync.Mutex
	lost bool
	back time.Time // from the last break
}

// watch looks often enough to see every break that could count, until ctx ends.
func (t *touch) watch(ctx context.Context) {
	ticker := time.NewTicker(t.n.Config.Cluster.DetectionTime / 20)
	defer ticker.Stop()
	for ctx.Err() == nil {
		t.since()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// since is the time before which silence of others means nothing. A break ends when it is over: of two nodes the one that is
// left hears no majority, and may judge the other one all the same.
func (t *touch) since() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	// What is cut off for no longer, and another node after it for 0.8 detection times, is silent for less than one.
	heard := 1 + len(t.n.heardWithin(t.n.Config.Cluster.DetectionTime/5))
	switch {
	case 2*heard <= len(t.n.Config.Nodes):
		t.lost = true
	case t.lost:
		t.lost, t.back = false, time.Now()
	}
	return t.back
}
