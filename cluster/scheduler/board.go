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
	members []string // in alphabetical order
	// unfit says, member by member, what keeps it from taking any group; no entry if nothing does.
	unfit map[string]string
	holds map[string][]string // by node, in alphabetical order: what it may have active
	where map[string]string   // by group, who holds it, planned grants included
	load  map[string]int      // by node, the weights of the groups it holds or is planned to
	rank  map[string]map[string]int
	sets  map[string][]string // by group, all groups that with ties together, itself included
	later map[string][]string // by group, those that run after it
	apart map[string][]string // by group, those that are never on its node
}

func look(s *state.State, v View) *board {
	b := &board{
		s: s, v: v, now: Now(s, v),
		unfit: map[string]string{}, holds: map[string][]string{}, where: map[string]string{}, load: map[string]int{},
		rank: map[string]map[string]int{}, sets: map[string][]string{}, later: map[string][]string{}, apart: map[string][]string{},
	}
	for _, name := range s.NodeNames() {
		n := s.Nodes[name]
		if n.Role != state.Member {
			continue
		}
		b.members = append(b.members, name)
		if why := unfit(s, v, n, b.now); why != "" {
			b.unfit[name] = why
		}
	}
	names := s.GroupNames()
	for _, name := range names {
		g := s.Groups[name]
		for node := range g.Found {
			b.holds[node] = append(b.holds[node], name)
		}
		if g.Grant != nil {
			b.put(g, g.Grant.Node)
			if _, found := g.Found[g.Grant.Node]; !found {
				b.holds[g.Grant.Node] = append(b.holds[g.Grant.Node], name)
			}
		}
		for _, first := range g.After {
			b.later[first] = append(b.later[first], name)
		}
		for _, other := range g.Apart {
			b.apart[name] = append(b.apart[name], other)
			b.apart[other] = append(b.apart[other], name)
		}
	}
	b.tie(names)
	return b
}

// put notes that a node holds a group.
func (b *board) put(g *state.Group, node string) {
	b.where[g.Name] = node
	b.load[node] += g.Weight
}

// tie finds the sets of groups that are to be on one node.
func (b *board) tie(names []string) {
	for _, name := range names {
		for _, other := range b.s.Groups[name].With {
			if b.s.Groups[other] == nil {
				continue
			}
			mine, theirs := b.set(name), b.set(other)
			if slices.Contains(mine, other) {
				continue
			}
			both := slices.Concat(mine, theirs)
			slices.Sort(both)
			for _, g := range both {
				b.sets[g] = both
			}
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

// rankOf is the place of a node in the group's preference; all that are not named share the last.
func (b *board) rankOf(g *state.Group, node string) int {
	if len(g.Prefer) == 0 {
		return 0
	}
	ranks := b.rank[g.Name]
	if ranks == nil {
		ranks = map[string]int{}
		for i, n := range slices.Backward(g.Prefer) {
			ranks[n] = i - len(g.Prefer)
		}
		b.rank[g.Name] = ranks
	}
	return ranks[node]
}

// lighter compares two nodes by how full they are: by the share of their capacity where both have one, else by the
// weights that they hold.
func (b *board) lighter(x, y string) int {
	if cx, cy := b.s.Nodes[x].Capacity, b.s.Nodes[y].Capacity; cx > 0 && cy > 0 {
		return cmp.Compare(b.load[x]*cy, b.load[y]*cx)
	}
	return cmp.Compare(b.load[x], b.load[y])
}

// foundOn lists the nodes where something of a group was found active without a grant.
func foundOn(g *state.Group) []string { return slices.Sorted(maps.Keys(g.Found)) }
