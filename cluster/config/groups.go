package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// shortestExpiry is the shortest failure_expiry.
const shortestExpiry = 10 * time.Second

func (r *reader) checkGroups(d *draft) {
	if d.top.settled["group"] {
		return
	}
	var names []string
	for _, g := range d.Groups {
		names = append(names, g.Name)
	}
	r.checkNames(d.groups, names)
	for i, t := range d.groups {
		g := d.Groups[i]
		r.checkMembers(t, "prefer", g.Prefer, d)
		r.checkMembers(t, "allow", g.Allow, d)
		r.checkRelations(t, g, d)
		if _, err := ParseFailback(g.Failback); err != nil && !t.settled["failback"] {
			r.problem(t, "failback", err.Error(), `write "never", "always", or the part of the day in which it may be, such as "22:00-05:30"`)
		}
		if e := g.FailureExpiry; e > 0 && e < shortestExpiry && !t.settled["failure_expiry"] {
			r.problem(t, "failure_expiry", fmt.Sprintf("%q is too short: a group that fails everywhere would go round without a pause", e), fmt.Sprintf("write %q or more, or \"0s\" for an operator to decide", shortestExpiry))
		}
		if len(g.Resources) == 0 && !t.settled["resource"] {
			r.problem(t, "resource", "the group has no resources", "write a [[group.resource]] table below it for each")
		}
		names := make([]string, 0, len(g.Resources))
		for j, rt := range d.resources[i] {
			names = append(names, g.Resources[j].Name)
			r.require(rt, "kind", g.Resources[j].Kind, "add kind = \"...\"; known kinds: "+strings.Join(r.kinds.Resources.Names(), ", "))
		}
		r.checkNames(d.resources[i], names)
	}
	r.checkExclusive(d)
	r.checkCircles(d)
	r.checkSets(d)
	r.checkWeights(d)
}

// checkWeights finds groups for which no node has the capacity.
func (r *reader) checkWeights(d *draft) {
	for i, g := range d.Groups {
		t := d.groups[i]
		most, bounded := 0, false
		for j, n := range d.Nodes {
			switch {
			case n.Role != Member || len(g.Allow) > 0 && !slices.Contains(g.Allow, n.Name):
			case n.Capacity == 0 || d.nodes[j].settled["capacity"]:
				bounded, most = true, max(most, g.Weight) // no bound, or one that is in doubt
			default:
				bounded, most = true, max(most, n.Capacity)
			}
		}
		if bounded && g.Weight > most && !t.settled["weight"] && !t.settled["allow"] {
			r.problem(t, "weight", fmt.Sprintf("%d is more than any member that may run the group has capacity for (%d at most), so it never runs", g.Weight, most), "write less, or give a member more capacity")
		}
	}
}

// checkMembers checks a list of members.
func (r *reader) checkMembers(t *table, key string, list []string, d *draft) {
	seen := map[string]bool{}
	for i, name := range list {
		line := t.at(key, i)
		n, ok := d.Node(name)
		switch {
		case !ok && d.mayExist(name):
		case !ok:
			r.problemAt(t, line, key, fmt.Sprintf("there is no node %q", name), meant(name, d.Members(), "members"))
		case n.Role == Witness:
			r.problemAt(t, line, key, fmt.Sprintf("%q is a witness, and runs no groups", name), "remove it, or name a member")
		case seen[name]:
			r.problemAt(t, line, key, fmt.Sprintf("names %q twice", name), "remove one of them")
		}
		seen[name] = true
	}
}

// checkRelations checks the groups that a group names, and that it does not say one thing and its opposite.
func (r *reader) checkRelations(t *table, g Group, d *draft) {
	for _, l := range []struct {
		key  string
		list []string
	}{{"after", g.After}, {"with", g.With}, {"apart", g.Apart}} {
		seen := map[string]bool{}
		for i, name := range l.list {
			line := t.at(l.key, i)
			switch {
			case name == g.Name:
				r.problemAt(t, line, l.key, "names the group itself", "remove it")
			case seen[name]:
				r.problemAt(t, line, l.key, fmt.Sprintf("names %q twice", name), "remove one of them")
			case !d.hasGroup(name):
				r.problemAt(t, line, l.key, fmt.Sprintf("there is no group %q", name), meant(name, d.groupNames(), "groups"))
			}
			seen[name] = true
		}
	}
	if len(g.Allow) == 0 || t.settled["allow"] {
		return
	}
	for i, name := range g.Prefer {
		if !slices.Contains(g.Allow, name) {
			r.problemAt(t, t.at("prefer", i), "prefer", fmt.Sprintf("%q is not in allow, so the group never runs there", name), "add it to allow, or remove it here")
		}
	}
}

// checkCircles finds groups that wait for each other, so that none ever starts.
func (r *reader) checkCircles(d *draft) {
	waits := func(g Group) []string { return slices.Concat(g.After, g.With) }
	for i, g := range d.Groups {
		circle := d.circle(g.Name, waits)
		if len(circle) < 2 || slices.Min(circle) != g.Name { // each is told once
			continue
		}
		key := "after"
		if len(g.After) == 0 {
			key = "with"
		}
		r.problem(d.groups[i], key, "the groups wait for each other: "+strings.Join(append(circle, g.Name), ", "), "remove one of these from after and with")
	}
}

// circle gives the shortest way from a group back to itself; nil if there is none.
func (d *draft) circle(from string, next func(Group) []string) []string {
	came := map[string]string{}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, n := range next(d.group(queue[0])) {
			if n == from {
				way := []string{}
				for at := queue[0]; at != from; at = came[at] {
					way = append(way, at)
				}
				slices.Reverse(way)
				return append([]string{from}, way...)
			}
			if _, seen := came[n]; !seen {
				came[n] = queue[0]
				queue = append(queue, n)
			}
		}
	}
	return nil
}

// checkSets finds groups that are to be on one node, and cannot be.
func (r *reader) checkSets(d *draft) {
	for _, set := range d.sets() {
		allowed := d.Members()
		for _, i := range set {
			g, t := d.Groups[i], d.groups[i]
			for k, other := range g.Apart {
				if slices.ContainsFunc(set, func(j int) bool { return d.Groups[j].Name == other }) && other != g.Name {
					r.problemAt(t, t.at("apart", k), "apart", fmt.Sprintf("%q is to be on the same node, by with", other), "remove one of the two")
				}
			}
			if len(g.Allow) > 0 && !t.settled["allow"] {
				allowed = slices.DeleteFunc(allowed, func(n string) bool { return !slices.Contains(g.Allow, n) })
			}
			if len(allowed) == 0 && len(d.Members()) > 0 {
				r.problem(t, "allow", "no member is allowed to run all the groups that are to be on one node, by with", "allow at least one member in all of them")
				break
			}
		}
	}
}

// sets gives the groups that with ties together, as indexes; those that it does not touch are sets of one.
func (d *draft) sets() [][]int {
	of := map[string]int{} // group to set
	sets := make([][]int, len(d.Groups))
	for i, g := range d.Groups {
		of[g.Name], sets[i] = i, []int{i}
	}
	for _, g := range d.Groups {
		for _, other := range g.With {
			from, ok := of[other]
			to := of[g.Name]
			if !ok || from == to {
				continue
			}
			for _, i := range sets[from] {
				of[d.Groups[i].Name] = to
			}
			sets[to] = append(sets[to], sets[from]...)
			sets[from] = nil
		}
	}
	sets = slices.DeleteFunc(sets, func(s []int) bool { return len(s) == 0 })
	for _, s := range sets {
		slices.Sort(s)
	}
	return sets
}

func (d *draft) groupNames() []string {
	var names []string
	for _, g := range d.Groups {
		names = append(names, g.Name)
	}
	return names
}

// hasGroup reports whether a group exists, or may be one whose own name is in doubt.
func (d *draft) hasGroup(name string) bool {
	for i, g := range d.Groups {
		if g.Name == name || d.groups[i].settled["name"] {
			return true
		}
	}
	return false
}

func (d *draft) group(name string) Group {
	i := slices.IndexFunc(d.Groups, func(g Group) bool { return g.Name == name })
	if i < 0 {
		return Group{}
	}
	return d.Groups[i]
}

// Failback is when a running group goes back to a node that it prefers.
type Failback struct {
	Always   bool
	From, To int // minutes since midnight; equal: never
}

// ParseFailback reads the key failback.
func ParseFailback(s string) (Failback, error) {
	switch s {
	case "never":
		return Failback{}, nil
	case "always":
		return Failback{Always: true}, nil
	}
	from, to, ok := strings.Cut(s, "-")
	begin, err1 := time.Parse("15:04", strings.TrimSpace(from))
	end, err2 := time.Parse("15:04", strings.TrimSpace(to))
	if !ok || err1 != nil || err2 != nil {
		return Failback{}, fmt.Errorf("%q is no part of a day", s)
	}
	f := Failback{From: begin.Hour()*60 + begin.Minute(), To: end.Hour()*60 + end.Minute()}
	if f.From == f.To {
		return Failback{}, fmt.Errorf("%q ends when it begins", s)
	}
	return f, nil
}
