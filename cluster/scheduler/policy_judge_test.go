package scheduler

import (
	"slices"

	"github.com/hamgr/hamgr/cluster/state"
)

// judgePolicy holds an action against the rules of groups and the words of operators.
func (w *world) judgePolicy(a Action) {
	if a.Reason == "" {
		w.t.Fatalf("no reason: %s", verb(a))
	}
	s := w.sc.s
	switch c := a.Commit; {
	case c == nil:
	case c.Order != nil:
		if s.Maintained(c.Order.Node) != "" {
			w.t.Fatalf("%s is in maintenance: %s", c.Order.Node, verb(a))
		}
		watched := slices.ContainsFunc(s.Holds(c.Order.Node), func(g string) bool { return !s.Groups[g].Maintenance })
		if n := s.Nodes[c.Order.Node]; n.Unclean == "" && !watched {
			w.t.Fatalf("%s holds nothing but groups in maintenance: %s", n.Name, verb(a))
		}
	case c.Shoot != nil:
		if o := s.Operations[c.Shoot.Op]; o.Phase == state.Ordered && o.By == state.ByCluster && s.Maintained(o.Node) != "" {
			w.t.Fatalf("%s is in maintenance: %s", o.Node, verb(a))
		}
	case c.Grant != nil:
		if why := w.wrongGrant(s.Groups[c.Grant.Group], c.Grant.Node); why != "" {
			w.t.Fatalf("%s (%s): %s\n%s", verb(a), a.Reason, why, w.sc.where())
		}
	case c.Stop != nil:
		g := s.Groups[c.Stop.Group]
		if s.GroupMaintained(g) != "" {
			w.t.Fatalf("%s in maintenance: %s", verb(a), a.Reason)
		}
		for name, o := range s.Groups {
			if o.Grant != nil && slices.Contains(o.After, g.Name) {
				w.t.Fatalf("%s (%s) before %s, which runs after it", verb(a), a.Reason, name)
			}
		}
		if !w.cause(g, map[string]bool{}) {
			w.t.Fatalf("without a cause: %s: %s\n%s", verb(a), a.Reason, w.sc.where())
		}
	}
}

// wrongGrant says what is wrong with a grant; empty if nothing is.
func (w *world) wrongGrant(g *state.Group, node string) string {
	s, n := w.sc.s, w.sc.s.Nodes[node]
	load := g.Weight
	for name, o := range s.Groups {
		here := o.Grant != nil && o.Grant.Node == node
		if here {
			load += o.Weight
		}
		if here && (slices.Contains(g.Apart, name) || slices.Contains(o.Apart, g.Name)) {
			return name + " is to be apart"
		}
		if slices.Contains(g.With, name) && (!here || o.Grant.Phase == state.Stopping) {
			return name + " is not there"
		}
		if slices.Contains(g.After, name) && (o.Grant == nil || o.Grant.Phase != state.Started) {
			return name + " does not run"
		}
	}
	f, failed := g.Failures[node]
	switch {
	case g.Removed || g.Disabled || g.Halted != "":
		return "it is to run nowhere"
	case s.Maintenance || g.Maintenance || n.Maintenance:
		return "maintenance"
	case g.Released != nil && g.Released.Proof.Kind != state.CleanStop && s.Nodes[g.Released.Proof.Node] != nil && s.Nodes[g.Released.Proof.Node].Maintenance && g.Released.Maintained:
		return "it was lost with a node in maintenance"
	case n.Standby || n.Role != state.Member || n.Op != 0 || n.Unclean != "" || !w.sc.v.Nodes[node].Reachable:
		return "the node can take nothing"
	case failed && !f.Expired:
		return "it failed there"
	case len(g.Allow) > 0 && !slices.Contains(g.Allow, node):
		return "it is not allowed there"
	case n.Capacity > 0 && load > n.Capacity:
		return "the node is full"
	}
	return ""
}

// cause reports whether there is any reason at all to stop a group: its rules, an operator's word, or its node.
func (w *world) cause(g *state.Group, seen map[string]bool) bool {
	s, here := w.sc.s, g.Grant.Node
	if seen[g.Name] {
		return false
	}
	seen[g.Name] = true
	switch {
	case g.Aim != "": // it had a cause when it was decided
		return true
	case g.Removed, g.Disabled, g.Grant.Phase == state.Stopping, s.Nodes[here].Standby, len(g.Allow) > 0 && !slices.Contains(g.Allow, here):
		return true
	case len(g.With) == 0 && len(g.Prefer) > 0 && here != g.Prefer[0] && (g.Failback.Always || g.Failback.From != 0 && (w.sc.v.Minute >= 1320 || w.sc.v.Minute >= 0 && w.sc.v.Minute < 330)):
		return true
	}
	for name, o := range s.Groups {
		held := o.Grant != nil
		switch {
		case held && o.Grant.Node == here && o.Grant.Token < g.Grant.Token && (slices.Contains(g.Apart, name) || slices.Contains(o.Apart, g.Name)):
			return true
		case slices.Contains(g.After, name) && (!held || o.Grant.Phase != state.Started || w.cause(o, seen)):
			return true
		case slices.Contains(g.With, name) && (!held || o.Grant.Phase == state.Stopping || o.Grant.Node != here):
			return true
		}
	}
	for _, o := range w.tied(g) {
		f, failed := o.Failures[here]
		if o.Wish != nil && Now(s, w.sc.v) < o.Wish.Until || o != g && failed && !f.Expired && o.Grant == nil {
			return true
		}
	}
	return false
}

// tied gives the groups that with ties together with one, itself included.
func (w *world) tied(g *state.Group) []*state.Group {
	set := []*state.Group{g}
	for i := 0; i < len(set); i++ {
		for _, o := range w.sc.s.Groups {
			if (slices.Contains(o.With, set[i].Name) || slices.Contains(set[i].With, o.Name)) && !slices.Contains(set, o) {
				set = append(set, o)
			}
		}
	}
	return set
}
