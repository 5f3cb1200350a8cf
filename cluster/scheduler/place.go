package scheduler

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/hamgr/hamgr/cluster/state"
)

// place picks the node for a group that nobody holds; empty if there is none, which Waiting explains.
func (b *board) place(g *state.Group) (node string) {
	if b.kept(g) != "" {
		return ""
	}
	node = b.best(g, b.members).node
	if node != "" && b.worthWaiting(g, node) != "" {
		return ""
	}
	return node
}

// waits says why place finds no node.
func (b *board) waits(g *state.Group) string {
	if why := b.kept(g); why != "" {
		return why
	}
	if best := b.best(g, b.members); best.node != "" {
		return fmt.Sprintf("waits for %s, which is preferred and has not joined yet", b.worthWaiting(g, best.node))
	}
	var why []string
	for _, node := range b.members {
		if o := b.obstacle(g, node); o != fits && len(why) < mostReasons {
			why = append(why, node+" "+b.words(g, node, o))
		}
	}
	if more := len(b.members) - len(why); more > 0 {
		why = append(why, fmt.Sprintf("%d more", more))
	}
	return "no node can take it: " + strings.Join(why, "; ")
}

// mostReasons is how many nodes' reasons are told one by one.
const mostReasons = 16

// kept says why a group is to run nowhere at present; empty if it is to run.
func (b *board) kept(g *state.Group) string {
	switch why := b.s.GroupMaintained(g); {
	case g.Removed:
		return "no longer configured"
	case len(g.Found) > 0:
		return "found active without a grant on " + strings.Join(foundOn(g), ", ")
	case g.Disabled:
		return "disabled by an operator; to run it: hamgr group enable " + g.Name
	case g.Halted != "":
		return fmt.Sprintf("stopped everywhere, as its on_fail says: %s; to run it again: hamgr group clear %s", g.Halted, g.Name)
	case why != "":
		return why
	}
	for _, first := range g.After {
		if why := b.notRunning(first); why != "" {
			return fmt.Sprintf("it runs after %s, %s", first, why)
		}
	}
	if with, why := b.host(g); why != "" {
		return fmt.Sprintf("it runs with %s, %s", with, why)
	}
	return ""
}

// notRunning says why a group is not one that others can run after; empty if it is.
func (b *board) notRunning(group string) string {
	g := b.s.Groups[group]
	switch {
	case g == nil:
		return "" // it left the configuration, and this one's rules will follow
	case g.Grant == nil:
		return "which does not run"
	case g.Grant.Phase == state.Granted:
		return "which is being started"
	case g.Grant.Phase == state.Stopping:
		return "which is being stopped"
	}
	return ""
}

// host gives the group whose node this one has to be on, or why it cannot be anywhere; empty if it is free.
func (b *board) host(g *state.Group) (group, why string) {
	node := ""
	for _, other := range g.With {
		o := b.s.Groups[other]
		switch {
		case o == nil:
			continue
		case o.Grant == nil || o.Grant.Phase == state.Stopping:
			return other, orWhich(b.notRunning(other))
		case node != "" && o.Grant.Node != node:
			return other, fmt.Sprintf("which is on %s, and %s is on %s", o.Grant.Node, group, node)
		}
		group, node = other, o.Grant.Node
	}
	return group, ""
}

func orWhich(why string) string {
	if why == "" {
		return "which does not run"
	}
	return why
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
func (b *board) obstacle(g *state.Group, node string) obstacle {
	if o := b.refusal(g, node); o != fits {
		return o
	}
	if b.away(g, node) != "" {
		return notWith
	}
	return fits
}

// refusal is obstacle, apart from the groups that the group has to be with.
func (b *board) refusal(g *state.Group, node string) obstacle {
	f, failed := g.Failures[node]
	capacity := b.s.Nodes[node].Capacity
	switch {
	case b.unfit[node] != "":
		return unfitNode
	case failed && !f.Expired:
		return failedThere
	case !g.Allows(node):
		return notAllowed
	case b.apartOn(g, node) != "":
		return notApart
	case capacity > 0 && b.where[g.Name] != node && b.load[node]+g.Weight > capacity:
		return full
	}
	return fits
}

// words tells an obstacle.
func (b *board) words(g *state.Group, node string, o obstacle) string {
	switch o {
	case unfitNode:
		return b.unfit[node]
	case failedThere:
		f := g.Failures[node]
		return fmt.Sprintf("failed (%s: %s)", f.Resource, f.Error)
	case notAllowed:
		return "is not allowed to run it"
	case notApart:
		return fmt.Sprintf("holds %s, from which it is to be apart", b.apartOn(g, node))
	case full:
		return fmt.Sprintf("is full: %d of %d are taken, %d are needed", b.load[node], b.s.Nodes[node].Capacity, g.Weight)
	case notWith:
		return fmt.Sprintf("is not where %s is", b.away(g, node))
	}
	return ""
}

// apartOn names a group on the node that this one is to be apart from.
func (b *board) apartOn(g *state.Group, node string) string {
	for _, other := range b.apart[g.Name] {
		if b.where[other] == node {
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
	node    string
	against int // operators' wishes against the node
	misfits int // groups of the set that could not be there as well
	rank    int
}

// best picks the best of some nodes for a group; none if no node can take it.
func (b *board) best(g *state.Group, nodes []string) choice {
	var found choice
	for _, node := range nodes {
		if b.obstacle(g, node) != fits {
			continue
		}
		c := choice{node, b.wishesAgainst(g, node), b.misfits(g, node), b.rankOf(g, node)}
		if found.node == "" || b.compare(c, found) < 0 {
			found = c
		}
	}
	return found
}

func (b *board) compare(x, y choice) int {
	return cmp.Or(cmp.Compare(x.against, y.against), cmp.Compare(x.misfits, y.misfits), cmp.Compare(x.rank, y.rank),
		b.lighter(x.node, y.node), cmp.Compare(x.node, y.node))
}

// wishesAgainst counts the operators' wishes, for any group of the set, that a node does not fulfil.
func (b *board) wishesAgainst(g *state.Group, node string) int {
	against := 0
	for _, name := range b.set(g.Name) {
		if w := b.wish(b.s.Groups[name]); w != nil && (w.To != "" && w.To != node || w.From == node) {
			against++
		}
	}
	return against
}

// wish gives the wish of an operator that has not ended; nil if there is none.
func (b *board) wish(g *state.Group) *state.Wish {
	if g.Wish == nil || b.now >= g.Wish.Until {
		return nil
	}
	return g.Wish
}

// misfits counts the groups of the set that could not be on the node together with this one.
func (b *board) misfits(g *state.Group, node string) int {
	set := b.set(g.Name)
	if len(set) == 1 {
		return 0
	}
	misfits, room := 0, b.s.Nodes[node].Capacity
	free := room - b.load[node]
	if b.where[g.Name] != node {
		free -= g.Weight
	}
	for _, name := range set {
		o := b.s.Groups[name]
		if name == g.Name || o.Disabled || o.Halted != "" {
			continue
		}
		switch at := b.where[name]; {
		case at == node:
		case at != "" && len(o.With) == 0: // it stays where it is, and does not follow
			misfits++
		case b.refusal(o, node) != fits || room > 0 && free < o.Weight:
			misfits++
		default:
			free -= o.Weight
		}
	}
	return misfits
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
	case n.Standby:
		return "is on standby"
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
func (b *board) worthWaiting(g *state.Group, best string) string {
	if b.v.Settled || g.Released != nil {
		return ""
	}
	for _, name := range b.members {
		n := b.s.Nodes[name]
		if n.Boot == "" && !n.Standby && g.Allows(name) && (b.rankOf(g, name) < b.rankOf(g, best) || len(g.Prefer) == 0) {
			return name
		}
	}
	return ""
}

func previous(g *state.Group) string {
	if g.Released == nil {
		return ""
	}
	p := g.Released.Proof
	switch p.Kind {
	case state.PowerOff:
		return fmt.Sprintf(": %s was read back off (operation %d)", p.Node, p.Op)
	case state.NewBoot:
		return fmt.Sprintf(": %s came back with a new boot", p.Node)
	case state.OperatorWord:
		return fmt.Sprintf(": %s is down by an operator's word (operation %d)", p.Node, p.Op)
	default:
		return fmt.Sprintf(": %s stopped it cleanly", p.Node)
	}
}

// Waiting says, group by group, why those that nobody holds are not given to anybody; those that are about to be
// granted have no entry.
func Waiting(s *state.State, v View) map[string]string {
	b := look(s, v)
	why := map[string]string{}
	for _, name := range s.GroupNames() {
		if g := s.Groups[name]; g.Grant == nil && b.place(g) == "" {
			why[name] = b.waits(g)
		}
	}
	return why
}
