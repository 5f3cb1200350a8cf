package scheduler

import (
	"cmp"
	"maps"
	"slices"

	"github.com/hamgr/hamgr/cluster/state"
)

// board is one look at the whole cluster: what every decision about a group would else have to gather anew. It also
// keeps the grants that the plan in the making adds, so that the next group sees them.
type board struct {
	s       *state.State
	v       View
	now     int64
	names   []string            // of the groups, in alphabetical order
	queue   []string            // the same, in the order in which they choose their nodes
	members []*member           // in alphabetical order
	member  map[string]*member  // the same, by name
	holds   map[string][]string // by node, in alphabetical order: what it may have active
	where   map[string]string   // by group, who holds it, planned grants included
	bound   map[string]string   // by group, the node where it is to go next, which keeps room for it
	ending  map[string]string   // by group, why it is to stop, now or once those that run after it have
	kept    map[string]string   // by group, the node of the one that it follows, which keeps room for it
	sets    map[string][]string // by group, all groups that with ties together, itself included; none if it is alone
	led     map[string][]string // by group, those that run with it
	later   map[string][]string // by group, those that run after it
	apart   map[string][]string // by group, those that are never on its node
	younger map[string]bool     // answers of yields
	aim     map[string]string   // by group that runs well and is to go, the node to which
}

// member is a node that may run groups.
type member struct {
	*state.Node
	unfit string // what keeps it from taking any group; empty if nothing does
	load  int    // the weights of the groups that it holds, is planned to hold, or keeps room for
}

func look(s *state.State, v View) *board {
	b := &board{
		s: s, v: v, now: Now(s, v), names: s.GroupNames(), member: map[string]*member{}, holds: map[string][]string{},
		where: make(map[string]string, len(s.Groups)), bound: map[string]string{}, ending: map[string]string{}, kept: map[string]string{},
		sets: map[string][]string{}, led: map[string][]string{}, later: map[string][]string{}, apart: map[string][]string{},
		younger: map[string]bool{}, aim: map[string]string{},
	}
	for _, name := range s.NodeNames() {
		if n := s.Nodes[name]; n.Role == state.Member {
			m := &member{Node: n, unfit: unfit(s, v, n, b.now)}
			b.members, b.member[name] = append(b.members, m), m
		}
	}
	for _, name := range b.names {
		g := s.Groups[name]
		for node := range g.Found {
			b.holds[node] = append(b.holds[node], name)
		}
		for _, first := range g.After {
			b.later[first] = append(b.later[first], name)
		}
		for _, other := range g.With {
			b.led[other] = append(b.led[other], name)
		}
		for _, other := range g.Apart {
			b.apart[name] = append(b.apart[name], other)
			b.apart[other] = append(b.apart[other], name)
		}
	}
	for _, name := range b.names {
		g := s.Groups[name]
		if g.Grant == nil {
			continue
		}
		b.put(g, g.Grant.Node)
		if _, found := g.Found[g.Grant.Node]; !found {
			b.holds[g.Grant.Node] = append(b.holds[g.Grant.Node], name)
		}
	}
	for _, name := range b.names {
		if g := s.Groups[name]; g.Grant != nil && g.Grant.Phase != state.Stopping {
			b.keepRoom(name)
		}
	}
	for _, held := range b.holds {
		slices.Sort(held)
	}
	b.tie()
	b.line()
	return b
}

// line has those choose first that have the least choice: that may run on the fewest members, need the most room where room
// is bounded, or prefer a node. Whoever comes later is content with what is left.
func (b *board) line() {
	bounded := slices.ContainsFunc(b.members, func(m *member) bool { return m.Capacity > 0 })
	type claim struct {
		name              string
		choice, need, any int
	}
	claims := make([]claim, len(b.names))
	for i, name := range b.names {
		g := b.s.Groups[name]
		c := claim{name: name, choice: len(b.members)}
		if len(g.Allow) > 0 {
			c.choice = len(g.Allow)
		}
		if len(g.Prefer) == 0 {
			c.any = 1
		}
		if bounded {
			for _, tied := range b.set(name) {
				c.need += b.s.Groups[tied].Weight
			}
		}
		claims[i] = c
	}
	slices.SortStableFunc(claims, func(x, y claim) int {
		return cmp.Or(cmp.Compare(x.choice, y.choice), cmp.Compare(y.need, x.need), cmp.Compare(x.any, y.any))
	})
	b.queue = make([]string, len(claims))
	for i, c := range claims {
		b.queue[i] = c.name
	}
}

// tie finds the sets of groups that are to be on one node.
func (b *board) tie() {
	for _, name := range b.names {
		if len(b.s.Groups[name].With) == 0 && len(b.led[name]) == 0 || b.sets[name] != nil {
			continue
		}
		set, seen := []string{name}, map[string]bool{name: true}
		for i := 0; i < len(set); i++ {
			for _, other := range slices.Concat(b.s.Groups[set[i]].With, b.led[set[i]]) {
				if b.s.Groups[other] != nil && !seen[other] {
					set, seen[other] = append(set, other), true
				}
			}
		}
		slices.Sort(set)
		for _, g := range set {
			b.sets[g] = set
		}
	}
}

// set gives the groups that are to be on the group's node, itself included.
func (b *board) set(group string) []string {
	if set := b.sets[group]; set != nil {
		return set
	}
	return []string{group}
}

// foundOn lists the nodes where something of a group was found active without a grant.
func foundOn(g *state.Group) []string { return slices.Sorted(maps.Keys(g.Found)) }
