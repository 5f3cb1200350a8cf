package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hamgr/hamgr/cluster/state"
)

// place picks the member for a group that nobody holds; nil if there is none, which waits explains.
func (b *board) place(g *state.Group) *member {
	if b.idle(g) != "" {
		return nil
	}
	m := b.find(g)
	if m == nil || b.worthWaiting(g, m) != "" {
		return nil
	}
	return m
}

// find picks the best of all members, or, for a group that follows another, the one where that is; nil if it cannot
// take the group.
func (b *board) find(g *state.Group) *member {
	host, _ := b.host(g)
	if host == "" {
		return b.best(g, b.members).member
	}
	if m := b.member[b.where[host]]; m != nil && b.obstacle(g, m) == fits {
		return m
	}
	return nil
}

// host gives the group whose node this one has to be on, or why it cannot be anywhere; empty if it is free.
func (b *board) host(g *state.Group) (group, why string) {
	for _, other := range g.With {
		o := b.s.Groups[other]
		switch {
		case o == nil:
			continue // it left the configuration, and this one's rules will follow
		case o.Grant != nil && o.Grant.Phase == state.Stopping:
			return other, "which is being stopped"
		case b.where[other] == "":
			return other, "which does not run"
		case group != "" && b.where[other] != b.where[group]:
			return other, fmt.Sprintf("which is on %s, and %s is on %s", b.where[other], group, b.where[group])
		}
		group = other
	}
	return group, ""
}

// obstacle is what keeps a member from taking a group.
type obstacle int

const (
	fits      obstacle = iota
	unfitNode          // it can take none
	failedThere
	notAllowed
	notApart // it holds a group that is to be apart
	full
	notWith // the group has to be where another one is
)

// obstacle finds what keeps a member from taking a group.
func (b *board) obstacle(g *state.Group, m *member) obstacle {
	if o := b.refusal(g, m); o != fits {
		return o
	}
	if len(g.With) > 0 && b.away(g, m.Name) != "" {
		return notWith
	}
	return fits
}

// refusal is obstacle, apart from the groups that the group has to be with.
func (b *board) refusal(g *state.Group, m *member) obstacle {
	if m.unfit != "" {
		return unfitNode
	}
	if len(g.Failures) > 0 {
		if f, failed := g.Failures[m.Name]; failed && !f.Expired {
			return failedThere
		}
	}
	switch {
	case !g.Allows(m.Name):
		return notAllowed
	case len(b.apart) > 0 && b.apartOn(g, m.Name) != "":
		return notApart
	case m.Capacity > 0 && b.where[g.Name] != m.Name && b.taken(g, m)+g.Weight > m.Capacity:
		return full
	}
	return fits
}

// apartOn names a group that is on the node, or about to go there, and that this one is to be apart from.
func (b *board) apartOn(g *state.Group, node string) string {
	for _, other := range b.apart[g.Name] {
		if b.where[other] == node || b.bound[other] == node {
			return other
		}
	}
	return ""
}

// away names a group that this one is to be with, and that is not on the node.
func (b *board) away(g *state.Group, node string) string {
	for _, other := range g.With {
		if b.s.Groups[other] != nil && b.where[other] != node {
			return other
		}
	}
	return ""
}

// choice is a node for a group, and what speaks for it; a smaller one is better.
type choice struct {
	member  *member
	against int // operators' wishes against the node
	misfits int // groups of the set that could not be there as well
	rank    int
	strange int // 1 if it is not where the group was last, and stopped well or ended with the host
}

func (b *board) choice(g *state.Group, m *member) choice {
	strange := 1
	_, failed := g.Failures[m.Name]
	if r := g.Released; !failed && r != nil && r.Proof.Node == m.Name && (r.Proof.Kind == state.CleanStop || r.Proof.Kind == state.NewBoot) {
		strange = 0 // one that was only stopped for a while, as by a restart of what it runs after or by a blackout, comes back
	}
	return choice{m, b.wishesAgainst(g, m.Name), b.misfits(g, m), rank(g, m.Name), strange}
}

func (x choice) compare(y choice) int {
	return cmp.Or(cmp.Compare(x.against, y.against), cmp.Compare(x.misfits, y.misfits), cmp.Compare(x.rank, y.rank),
		cmp.Compare(x.strange, y.strange), lighter(x.member, y.member), cmp.Compare(x.member.Name, y.member.Name))
}

// best picks the best of some members for a group; none if no member can take it.
func (b *board) best(g *state.Group, from []*member) choice {
	var found choice
	for _, m := range from {
		if b.obstacle(g, m) != fits {
			continue
		}
		if c := b.choice(g, m); found.member == nil || c.compare(found) < 0 {
			found = c
		}
	}
	return found
}

// rank is the place of a node in the group's preference, the best one the least; all that are not named share the last.
func rank(g *state.Group, node string) int {
	if i := slices.Index(g.Prefer, node); i >= 0 {
		return i
	}
	return len(g.Prefer)
}

// wishesAgainst counts the operators' wishes, for any group of the set, that a node does not fulfil.
func (b *board) wishesAgainst(g *state.Group, node string) int {
	if b.sets[g.Name] == nil {
		return against(b.wish(g), node)
	}
	n := 0
	for _, name := range b.set(g.Name) {
		n += against(b.wish(b.s.Groups[name]), node)
	}
	return n
}

func against(w *state.Wish, node string) int {
	if w != nil && (w.To != "" && w.To != node || w.From == node) {
		return 1
	}
	return 0
}

// wish gives the wish of an operator that has not ended; nil if there is none.
func (b *board) wish(g *state.Group) *state.Wish {
	if g.Wish == nil || b.now >= g.Wish.Until {
		return nil
	}
	return g.Wish
}

// unfit says what keeps a member from taking any group; empty if nothing does.
func unfit(s *state.State, v View, n *state.Node, now int64) string {
	live := v.Nodes[n.Name]
	_, quarantine := Quarantine(n, now, v.Policy)
	switch {
	case quarantine != "":
		return "is " + quarantine
	case n.Op != 0 || n.Unclean != "":
		return "is being fenced"
	case n.Aside() != "":
		return "is " + n.Aside()
	case n.Maintenance:
		return "is in maintenance"
	case !n.Up && n.Left:
		return "has left"
	case !n.Up && n.Boot == "":
		return "has not joined yet"
	case !n.Up:
		return "is off"
	case live.Gone != "" || !live.Reachable || live.Boot != n.Boot:
		return "does not answer"
	}
	return ""
}

// worthWaiting names a node that never joined and would be preferred, while the cluster is just
// starting and the group never ran: without that, the first node to come up would
// take all.
func (b *board) worthWaiting(g *state.Group, best *member) string {
	if b.v.Settled || g.Released != nil || len(g.With) > 0 {
		return ""
	}
	for _, m := range b.members {
		if m.Boot == "" && m.Aside() == "" && !m.Maintenance && g.Allows(m.Name) && (rank(g, m.Name) < rank(g, best.Name) || len(g.Prefer) == 0) {
			return m.Name
		}
	}
	return ""
}
