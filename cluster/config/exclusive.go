package config

import (
	"fmt"
	"slices"
)

// sameThing reports whether two resources manage the same thing, which only one group may have: in two groups, two nodes
// would use it at once.
func sameThing(a, b Resource) bool {
	if a.Kind != b.Kind || a.Options == nil || b.Options == nil {
		return false
	}
	key, what := a.Options.Exclusive()
	other, same := b.Options.Exclusive()
	return what != "" && key == other && what == same
}

// checkExclusive finds what two groups would use.
func (r *reader) checkExclusive(d *draft) {
	type owner struct {
		group, resource string
		at              int
	}
	type thing struct{ kind, key, what string }
	owners := map[thing]owner{}
	for i, g := range d.Groups {
		for j, res := range g.Resources {
			t := d.resources[i][j]
			if res.Options == nil {
				continue
			}
			key, what := res.Options.Exclusive()
			if what == "" || t.settled[key] {
				continue
			}
			first, taken := owners[thing{res.Kind, key, what}]
			switch {
			case !taken:
				owners[thing{res.Kind, key, what}] = owner{g.Name, res.Name, t.at(key)}
			case first.group != g.Name:
				r.problem(t, key, fmt.Sprintf("group %q has the same one (%s, line %d), and two nodes would use it at once", first.group, first.resource, first.at), cureTwice(res.Options))
			}
		}
	}
}

// cureTwice knows the key of some kinds by which two groups may do the same.
func cureTwice(options any) string {
	if slices.ContainsFunc(fieldsOf(options), func(f field) bool { return f.key == "shared" }) {
		return "leave it to one of them, or write shared = true here if it may be active in both at the same time"
	}
	return "leave it to one of them"
}
