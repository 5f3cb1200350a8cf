package node

import (
	"slices"

	"github.com/hamgr/hamgr/cluster/link"
)

// removed is a node that the configuration no longer has, and the keys that it knows.
type removed struct {
	Node string   `json:"node"`
	Keys []string `json:"keys"` // fingerprints
}

// removedFile keeps, in the data directory, which nodes were removed.
const removedFile = "removed.json"

// keepRemoved remembers the nodes that are no longer in the configuration: they still have the key.
func (n *Node) keepRemoved(next Setup) {
	all := n.recallRemoved()
	before := len(all)
	for _, name := range n.Config.NodeNames() {
		if _, stays := next.Config.Node(name); stays {
			continue
		}
		all = slices.DeleteFunc(all, func(r removed) bool { return r.Node == name })
		all = append(all, removed{name, next.Keys.Fingerprints()})
	}
	gone := slices.DeleteFunc(slices.Clone(all), func(r removed) bool { return len(r.knows(next.Keys)) == 0 })
	if len(gone) == 0 && before == 0 {
		return
	}
	if err := n.keep(removedFile, gone); err != nil {
		n.Log.Warn("which nodes were removed is not remembered", "node", n.Self, "err", err)
	}
}

// knows are those of the keys in a ring that the removed node has.
func (r removed) knows(ring link.KeyRing) []string {
	return slices.DeleteFunc(ring.Fingerprints(), func(key string) bool { return !slices.Contains(r.Keys, key) })
}

// recallRemoved reads what keepRemoved wrote.
func (n *Node) recallRemoved() []removed {
	var all []removed
	if _, err := n.kept(removedFile, &all); err != nil {
		n.Log.Warn("which nodes were removed before is not known", "node", n.Self, "err", err)
		return nil
	}
	return all
}
