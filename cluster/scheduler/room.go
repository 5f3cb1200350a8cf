package scheduler

import (
	"cmp"

	"github.com/hamgr/hamgr/cluster/state"
)

// put notes that a node holds a group.
func (b *board) put(g *state.Group, node string) {
	b.free(g)
	b.where[g.Name] = node
	if m := b.member[node]; m != nil {
		m.load += g.Weight
	}
}

// free gives up the room that is kept for a group.
func (b *board) free(g *state.Group) {
	for _, kept := range []map[string]string{b.bound, b.kept} {
		if m := b.member[kept[g.Name]]; m != nil {
			m.load -= g.Weight
			delete(kept, g.Name)
		}
	}
}

// keepRoom keeps room on a group's node for those that are to follow it there. They come when they can, and a
// stranger that took their place meanwhile would part the set.
func (b *board) keepRoom(group string) {
	m := b.member[b.where[group]]
	if m == nil {
		return
	}
	for _, name := range b.led[group] {
		g := b.s.Groups[name]
		if b.where[name] == m.Name || b.kept[name] != "" || !wanted(g) || b.refusal(g, m) != fits {
			continue
		}
		b.free(g)
		b.kept[name] = m.Name
		m.load += g.Weight
		b.keepRoom(name)
	}
}

// bind keeps room on a member for a group that is to go there next, and for those that run with it, as far as there is
// room.
func (b *board) bind(g *state.Group, m *member) {
	for _, name := range b.set(g.Name) {
		o := b.s.Groups[name]
		if b.bound[name] != "" || b.where[name] == m.Name || b.kept[name] == m.Name || !wanted(o) || name != g.Name && b.refusal(o, m) != fits {
			continue
		}
		b.bound[name] = m.Name
		m.load += o.Weight
	}
}

// unbind gives up the room that is bound for those that run with a group: where it goes, they go, and must not be in its
// way. It tells where that was.
func (b *board) unbind(g *state.Group) map[string]string {
	was := map[string]string{}
	for _, name := range b.sets[g.Name] {
		if at := b.bound[name]; at != "" && name != g.Name {
			was[name] = at
			delete(b.bound, name)
			b.member[at].load -= b.s.Groups[name].Weight
		}
	}
	return was
}

// rebind takes that back.
func (b *board) rebind(was map[string]string) {
	for name, at := range was {
		b.bound[name] = at
		b.member[at].load += b.s.Groups[name].Weight
	}
}

// wanted reports whether the group is to run at all, by the configuration and by the operators.
func wanted(g *state.Group) bool { return !g.Removed && !g.Disabled && g.Halted == "" }

// taken is how much of a member's capacity others than the group need.
func (b *board) taken(g *state.Group, m *member) int {
	if b.where[g.Name] == m.Name || b.kept[g.Name] == m.Name || b.bound[g.Name] == m.Name {
		return m.load - g.Weight
	}
	return m.load
}

// lighter compares two members by how full they are: by the share of their capacity where both have one, else by the
// weights that they hold.
func lighter(x, y *member) int {
	if x.Capacity > 0 && y.Capacity > 0 {
		return cmp.Compare(x.load*y.Capacity, y.load*x.Capacity)
	}
	return cmp.Compare(x.load, y.load)
}

// misfits counts the groups of the set that could not be on the member together with this one.
func (b *board) misfits(g *state.Group, m *member) int {
	set := b.set(g.Name)
	if len(set) == 1 {
		return 0
	}
	misfits, free := 0, m.Capacity-b.taken(g, m)-g.Weight
	for _, name := range set {
		o := b.s.Groups[name]
		if name == g.Name || !wanted(o) {
			continue
		}
		switch at := b.where[name]; {
		case at == m.Name:
		case at != "" && len(o.With) == 0: // it stays where it is, and does not follow
			misfits++
		case b.refusal(o, m) != fits:
			misfits++
		case b.kept[name] == m.Name || b.bound[name] == m.Name: // its room is part of what is taken
		case m.Capacity > 0 && free < o.Weight:
			misfits++
		default:
			free -= o.Weight
		}
	}
	return misfits
}
