package node

import (
	"time"

	"github.com/hamgr/hamgr/cluster/coordinator"
)

// look gives what this node knows first-hand of the others: what gossip says, and its own
// authenticated contact.
func (n *Node) look() map[string]coordinator.Sighting {
	gossip := n.membership.View()
	awake := n.trust.awakeSince()
	all := map[string]coordinator.Sighting{}
	for _, name := range n.Config.NodeNames() {
		if name == n.Self {
			continue
		}
		m := gossip[name]
		contact, heard := n.link.Contact(name)
		contact = latest(contact, awake)
		all[name] = coordinator.Sighting{
			Gossip:     m.State.String(),
			GossipBoot: string(m.Meta),
			Contact:    contact.Add(n.touch.excuse(contact)),
			Heard:      heard,
			Last:       contact,
		}
	}
	return all
}

// Voting lists the nodes whose votes count now, as far as this one knows.
func (n *Node) Voting() []string { return n.voting() }

// voting lists those whose votes count now. A configured node that has not caught up yet has none.
func (n *Node) voting() []string {
	var names []string
	for _, v := range n.replicated.Status().Voters {
		if v.Votes {
			names = append(names, v.Node)
		}
	}
	return names
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// heardWithin lists the nodes that this one heard lately.
func (n *Node) heardWithin(d time.Duration) []string {
	var names []string
	for _, name := range n.Config.NodeNames() {
		if at, ok := n.link.Contact(name); ok && time.Since(at) < d {
			names = append(names, name)
		}
	}
	return names
}
