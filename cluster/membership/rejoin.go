package membership

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

// rejoin joins one configured node whenever it is missing, for ever. Each node has a
// goroutine of its own, so that at most one attempt is in flight per target and a silent
// one holds up nobody else.
func (m *Membership) rejoin(ctx context.Context, node string) {
	target := node + "/" + m.addresses.address(node)
	pause := time.NewTimer(rand.N(m.timing.GossipInterval))
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		if !m.listed(node) {
			if _, err := m.list.Join([]string{target}); err != nil {
				m.log.Debug("join failed", "node", node, "err", err)
			}
		}
		pause.Reset(m.timing.RejoinInterval/2 + rand.N(m.timing.RejoinInterval))
	}
}

// announce says under a new number that this node lives, whenever a node joins it: that one misses it, and may
// have forgotten why. A refutation of the highest number begins at 0 again, which nobody believes, not even
// one that knows nothing (memberlist v0.7.0, refute and aliveNode).
func (m *Membership) announce(ctx context.Context) {
	for {
		select {
		case <-m.delegate.joined:
		case <-ctx.Done():
			return
		}
		select {
		case m.leave <- struct{}{}:
		case <-ctx.Done():
			return
		}
		_ = m.list.UpdateNode(time.Nanosecond) // the gossip takes it along, nobody waits until it has
		<-m.leave
		select { // those that join at once need one number
		case <-time.After(m.timing.GossipInterval):
		case <-ctx.Done():
			return
		}
	}
}

// listed asks memberlist itself, not the view: Members leaves out the dead and the left.
func (m *Membership) listed(node string) bool {
	return slices.ContainsFunc(m.list.Members(), func(n *memberlist.Node) bool { return n.Name == node })
}
