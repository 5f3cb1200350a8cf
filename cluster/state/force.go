package state

import (
	"fmt"
	"slices"
)

// Lift is what a forced quorum adds to the last token: more than was ever granted by a log that this one does not
// know, so that tokens still only grow.
const Lift = 1 << 32

// keepForced is how many times are remembered at most.
const keepForced = 64

// Force says that an operator gave up the majority for lost and let one node go on with its log. Grants may have been
// committed that this log does not have.
type Force struct {
	Node   string `json:"node"` // the one that goes on
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

// Forced is one such time. It is remembered for ever.
type Forced struct {
	Node   string `json:"node"`
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	At     int64  `json:"at,omitempty"` // Unix milliseconds, for display
	Index  uint64 `json:"index"`
	Token  uint64 `json:"token"` // the last one before
}

// force lifts the token, and takes every other node for one that may hold any group: until it joins and says what it
// really runs, or is proven down, nothing is granted that it might have.
func (t *step) force(c *Force) error {
	if _, ok := t.Nodes[c.Node]; !ok {
		return fmt.Errorf("force quorum on %q: %w", c.Node, ErrUnknown)
	}
	if c.By == "" || c.By == ByCluster {
		return fmt.Errorf("force quorum: it is for an operator to say: %w", ErrConflict)
	}
	f := Forced{Node: c.Node, By: clip(c.By, maxText), Reason: clip(c.Reason, maxText), At: t.at, Index: t.index, Token: t.LastToken}
	t.Forced = append(slices.Clone(t.Forced), f)
	if extra := len(t.Forced) - keepForced; extra > 0 {
		t.Forced = append(t.Forced[:1:1], t.Forced[extra+1:]...) // the first one tells how it began
	}
	t.LastToken += Lift
	for _, name := range t.NodeNames() {
		if name == c.Node {
			continue
		}
		n, err := t.node(name)
		if err != nil {
			return err
		}
		n.Watchdog = nil // a coordinator that this log does not know may have answered it since, and fed it so
		if n.Role == Member {
			t.mayHoldAnything(name)
		}
	}
	return nil
}

// Stale reports whether a grant is older than the last forced quorum. Its holder may have let go of it since, and others may have
// had greater tokens: what does not run under it must not be started under it any more.
func (s *State) Stale(g *Grant) bool {
	return len(s.Forced) > 0 && g.Token <= s.Forced[len(s.Forced)-1].Token
}

// mayHoldAnything notes on every group that the node may run, and is not known to hold, that it may be active there.
func (t *step) mayHoldAnything(node string) {
	for _, name := range t.GroupNames() {
		old := t.Groups[name]
		if old.Grant != nil && old.Grant.Node == node || !old.Allows(node) {
			continue
		}
		g := *old
		t.setGroup(&g)
		g.Found = cloneOrMake(g.Found)
		g.Found[node] = "quorum was forced: it may have been granted there since"
	}
}
