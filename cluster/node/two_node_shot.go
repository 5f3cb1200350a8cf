package node

import (
	"github.com/hamgr/hamgr/cluster/state"
)

// shotFile keeps what the two-node rule did before there was a log to write it to.
const shotFile = "shot.json"

// keepShot is called before the other one of two nodes is switched off without a quorum: once this node goes on alone, an
// order stands in the log for it, which tells why it was shot, and ends as every other one does.
func (n *Node) keepShot(other *state.Node) error {
	return n.keep(shotFile, state.Order{Node: other.Name, Boot: other.Boot, By: state.ByCluster,
		Reason: "lost; " + n.Self + " fenced it by the two-node rule, before it went on alone"})
}

// shot gives the order that is to be committed; nil if there is none.
func (n *Node) shot() (*state.Order, error) {
	var o state.Order
	if found, err := n.kept(shotFile, &o); err != nil || !found {
		return nil, err
	}
	if n.replicated.Status().Alone == "" {
		return nil, n.forget(shotFile) // it did not come to that
	}
	return &o, nil
}
