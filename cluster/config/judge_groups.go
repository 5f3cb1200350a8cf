package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// removedGroups refuses to forget a group that somebody holds: that would stop it.
func (j *judge) removedGroups() {
	for _, p := range pairs(j.old.Groups, j.new.Groups, groupName) {
		g := j.facts.Groups[p.name]
		if p.new != nil || len(g.Holders) == 0 {
			continue
		}
		key, cure := keyOf(OfGroup, p.name, ""), "hamgr group disable "+p.name+", and wait until it is stopped"
		if i := slices.IndexFunc(j.new.Groups, func(n Group) bool { return !hasGroup(j.old, n.Name) && sameResources(*p.old, n) }); i >= 0 {
			j.refuse(key, fmt.Sprintf("it is held by %s, and %s would be another group with the same resources: a name cannot change", strings.Join(g.Holders, ", "), j.new.Groups[i].Name), cure)
			continue
		}
		j.refuse(key, fmt.Sprintf("it is held by %s, and would be stopped", strings.Join(g.Holders, ", ")), cure)
	}
}

func groupName(g *Group) string { return g.Name }

func hasGroup(c *Config, name string) bool {
	return slices.ContainsFunc(c.Groups, func(g Group) bool { return g.Name == name })
}

// sameResources reports whether two groups differ by no more than their names and rules.
func sameResources(a, b Group) bool { return reflect.DeepEqual(a.Resources, b.Resources) }

// placed calls for each group that stays and that somebody holds, with the rules before and after.
func (j *judge) placed() (all []pair[Group]) {
	for _, p := range pairs(j.old.Groups, j.new.Groups, groupName) {
		if p.new != nil && len(j.facts.Groups[p.name].Holders) > 0 {
			if p.old == nil {
				p.old = &Group{Name: p.name} // held without being configured: no rule so far
			}
			all = append(all, p)
		}
	}
	return all
}

// added are the names of a list that another one lacks.
func added(list, to []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(n string) bool { return slices.Contains(to, n) })
}

// placement refuses rules by which a group would have to stop where it is. Rules that were broken before are not the
// change's fault.
func (j *judge) placement() {
	for _, p := range j.placed() {
		on := j.facts.Groups[p.name].Holders[0]
		if len(p.new.Allow) > 0 && !slices.Contains(p.new.Allow, on) && (len(p.old.Allow) == 0 || slices.Contains(p.old.Allow, on)) {
			j.refuse(keyOf(OfGroup, p.name, "allow"), fmt.Sprintf("it is on %s, which is not among %s", on, quoteList(p.new.Allow)), j.moveCure(p, on))
		}
		for _, first := range added(p.new.After, p.old.After) {
			if !j.facts.Groups[first].Running {
				j.refuse(keyOf(OfGroup, p.name, "after"), fmt.Sprintf("%s does not run, so that %s would stop on %s", first, p.name, on), fmt.Sprintf("have %s run first: hamgr group show %s", first, first))
			}
		}
		for _, host := range added(p.new.With, p.old.With) {
			switch f := j.facts.Groups[host]; {
			case len(f.Holders) == 0:
				j.refuse(keyOf(OfGroup, p.name, "with"), fmt.Sprintf("%s does not run, so that %s would stop on %s", host, p.name, on), fmt.Sprintf("have %s run first: hamgr group show %s", host, host))
			case f.Holders[0] != on:
				j.refuse(keyOf(OfGroup, p.name, "with"), fmt.Sprintf("%s is on %s, but %s on %s", host, f.Holders[0], p.name, on), fmt.Sprintf("hamgr group move %s %s first", p.name, f.Holders[0]))
			}
		}
	}
	j.apart()
}

// moveCure says how the group comes to a node that the rules before and after both allow.
func (j *judge) moveCure(p pair[Group], on string) string {
	for _, to := range p.new.Allow {
		_, there := j.old.Node(to)
		if to != on && there && (len(p.old.Allow) == 0 || slices.Contains(p.old.Allow, to)) {
			return fmt.Sprintf("hamgr group move %s %s first", p.name, to)
		}
	}
	return "allow both first, move it then, and take the old one away last"
}

// apart refuses to keep two groups apart that are together.
func (j *judge) apart() {
	for _, p := range j.placed() {
		on := j.facts.Groups[p.name].Holders
		for _, other := range added(p.new.Apart, p.old.Apart) {
			o := Group{}
			if i := slices.IndexFunc(j.old.Groups, func(g Group) bool { return g.Name == other }); i >= 0 {
				o = j.old.Groups[i]
			}
			for _, node := range j.facts.Groups[other].Holders {
				if slices.Contains(on, node) && !slices.Contains(o.Apart, p.name) { // the rule holds both ways
					j.refuse(keyOf(OfGroup, p.name, "apart"), fmt.Sprintf("%s and %s are both on %s", p.name, other, node), fmt.Sprintf("hamgr group move %s NODE first", p.name))
				}
			}
		}
	}
}

// room refuses weights and capacities that what a node holds exceeds.
func (j *judge) room() {
	for _, p := range j.staying() {
		before, after := 0, 0
		for _, name := range j.holds(p.name) {
			for _, g := range pairs(j.old.Groups, j.new.Groups, groupName) {
				if g.name == name && g.old != nil {
					before += g.old.Weight
				}
				if g.name == name && g.new != nil {
					after += g.new.Weight
				}
			}
		}
		was, is := p.old.Capacity, p.new.Capacity
		full := was > 0 && before > was && after <= before && is >= was // it was so already, and gets no worse
		if is > 0 && after > is && !full {
			j.refuse(keyOf(OfNode, p.name, "capacity"), fmt.Sprintf("it holds %s, together of weight %d (so far %d), and its capacity would be %d (so far %s)", strings.Join(j.holds(p.name), ", "), after, before, is, bound(was)),
				"move a group away first, or write a capacity of "+fmt.Sprint(after)+" or more")
		}
	}
}

func bound(capacity int) string {
	if capacity == 0 {
		return "without bound"
	}
	return fmt.Sprint(capacity)
}

// failback refuses a preference that would have a group stop here to start there right away.
func (j *judge) failback() {
	for _, p := range j.placed() {
		back, _ := ParseFailback(p.new.Failback)
		if (slices.Equal(p.old.Prefer, p.new.Prefer) && p.old.Failback == p.new.Failback) || back == (Failback{}) || len(p.new.With) > 0 {
			continue
		}
		on := j.facts.Groups[p.name].Holders[0]
		better := slices.IndexFunc(p.new.Prefer, func(n string) bool {
			f := j.facts.Nodes[n]
			return n != on && f.Up && f.Unclean == "" && !f.Standby
		})
		here := slices.Index(p.new.Prefer, on)
		if better < 0 || here >= 0 && here < better {
			continue
		}
		to := p.new.Prefer[better]
		if back.at(j.facts.Minute) {
			j.refuse(keyOf(OfGroup, p.name, "failback"), fmt.Sprintf("it is on %s, prefers %s, and failback is %q: it would move at once", on, to, p.new.Failback), fmt.Sprintf("hamgr group move %s %s first, or write a part of the day that is not now", p.name, to))
		} else {
			j.warn(keyOf(OfGroup, p.name, "failback"), fmt.Sprintf("it is on %s, prefers %s, and moves there within %s", on, to, p.new.Failback), "")
		}
	}
}

// at reports whether the way back is open at a minute of the day.
func (f Failback) at(minute int) bool {
	switch {
	case f.Always:
		return true
	case f.From <= f.To:
		return f.From <= minute && minute < f.To
	default:
		return minute >= f.From || minute < f.To
	}
}

// taken refuses to give a resource to a group while another one runs with it: what was taken out of a running
// group's table is active until that stops, and two groups with it would be two who write.
func (j *judge) taken() {
	for _, holder := range slices.Sorted(maps.Keys(j.facts.Groups)) {
		f := j.facts.Groups[holder]
		if len(f.Holders) == 0 {
			continue
		}
		for _, p := range pairs(j.old.Groups, j.new.Groups, groupName) {
			if p.name == holder || p.new == nil {
				continue
			}
			for _, r := range p.new.Resources {
				if p.old != nil && slices.ContainsFunc(p.old.Resources, func(o Resource) bool { return sameThing(o, r) }) {
					continue
				}
				if f.Unknown != "" {
					j.refuse(fmt.Sprintf("group %q: resource %q", p.name, r.Name), fmt.Sprintf("%s may run with the same one since an earlier configuration: %s", holder, f.Unknown), "wait until it answers, or has been fenced")
				} else if i := slices.IndexFunc(j.running(holder), func(o Resource) bool { return sameThing(o, r) }); i >= 0 {
					j.refuse(fmt.Sprintf("group %q: resource %q", p.name, r.Name), fmt.Sprintf("%s runs on %s with the same one (%s): it would be active twice", holder, strings.Join(f.Holders, ", "), j.running(holder)[i].Name),
						"hamgr group disable "+holder+", and wait until it is stopped")
				}
			}
		}
	}
}

// running are the resources that a group may run with: as it was started, and as it is configured.
func (j *judge) running(group string) []Resource {
	all := slices.Clone(j.facts.Groups[group].Resources)
	if i := slices.IndexFunc(j.old.Groups, func(g Group) bool { return g.Name == group }); i >= 0 {
		all = append(all, j.old.Groups[i].Resources...)
	}
	return all
}
