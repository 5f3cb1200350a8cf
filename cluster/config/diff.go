package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// What a change is of: the tables of a file.
type What string

// The tables, in the order in which their changes are told.
const (
	OfCluster  What = "cluster"
	OfNode     What = "node"
	OfDevice   What = "fence_device"
	OfGroup    What = "group"
	OfResource What = "resource"
)

// ChangeKind says what becomes of a table or a key.
type ChangeKind string

// The kinds.
const (
	Added   ChangeKind = "added"   // a table that was not there
	Removed ChangeKind = "removed" // a table that is there no more
	Changed ChangeKind = "changed" // a key of a table that stays
)

// Change is one difference between two configurations.
type Change struct {
	What  What       `json:"what"`
	Group string     `json:"group,omitempty"` // of a resource
	Name  string     `json:"name,omitempty"`  // of the table; the cluster's has none
	Kind  ChangeKind `json:"kind"`
	// Key is what changed: a key of the table, a name in a table that it holds (plugs.beta), or "resource" for
	// the order in which a group's resources start. Empty for a table as a whole.
	Key string `json:"key,omitempty"`
	// Old and New are the values as they would be written, empty where there is none; of a secret
	// where it comes from. Of a table as a whole they tell its gist.
	Old    string `json:"old,omitempty"`
	New    string `json:"new,omitempty"`
	Effect string `json:"effect"` // what happens when it is applied, in words
}

// Table names the change's table, as problems do.
func (c Change) Table() string {
	switch c.What {
	case OfCluster:
		return "cluster"
	case OfResource:
		return fmt.Sprintf("group %q: resource %q", c.Group, c.Name)
	default:
		return fmt.Sprintf("%s %q", c.What, c.Name)
	}
}

// String is the change without its table and its effect.
func (c Change) String() string {
	switch {
	case c.Kind != Changed:
		return strings.TrimSpace(fmt.Sprintf("%s: %s", c.Kind, c.Old+c.New))
	case c.Old == c.New:
		return c.Key + ": changed"
	default:
		return fmt.Sprintf("%s: %s -> %s", c.Key, cmp.Or(c.Old, "nothing"), cmp.Or(c.New, "nothing"))
	}
}

// Diff lists what differs in meaning between two configurations, in an order that depends on names alone. How a file
// is written does not count, nor what order its tables have, nor the order in lists where it means
// nothing. A default that is written is no difference.
func Diff(old, new *Config) []Change {
	d := &differ{old: old, new: new}
	d.keys(Change{What: OfCluster}, sides{&old.Cluster, &new.Cluster})
	for _, p := range pairs(old.Nodes, new.Nodes, func(n *Node) string { return n.Name }) {
		d.table(Change{What: OfNode, Name: p.name}, p.old != nil, p.new != nil, func() string { return p.any().gist() }, sides{p.old, p.new})
	}
	for _, p := range pairs(old.Devices, new.Devices, func(dev *Device) string { return dev.Name }) {
		options := sides{}
		if p.old != nil && p.new != nil {
			options = sides{p.old.Options, p.new.Options}
		}
		d.table(Change{What: OfDevice, Name: p.name}, p.old != nil, p.new != nil, func() string { return p.any().Agent }, sides{p.old, p.new}, options)
	}
	for _, p := range pairs(old.Groups, new.Groups, func(g *Group) string { return g.Name }) {
		d.table(Change{What: OfGroup, Name: p.name}, p.old != nil, p.new != nil, func() string { return strings.Join(resourceNames(*p.any()), ", ") }, sides{p.old, p.new})
		if p.old != nil && p.new != nil {
			d.resources(*p.old, *p.new)
		}
	}
	for i := range d.changes {
		d.changes[i].Effect = d.effect(d.changes[i])
	}
	return d.changes
}

// gist is the node in short.
func (n *Node) gist() string { return n.Role + " at " + strings.Join(n.Addresses, ", ") }

func resourceNames(g Group) []string {
	var names []string
	for _, r := range g.Resources {
		names = append(names, r.Name)
	}
	return names
}

type differ struct {
	old, new *Config
	changes  []Change
}

// sides are two structs, as fieldsOf wants them.
type sides struct{ old, new any }

// pair is a table before and after; nil where it is not.
type pair[T any] struct {
	name     string
	old, new *T
}

// any is the side that is there.
func (p pair[T]) any() *T {
	if p.new != nil {
		return p.new
	}
	return p.old
}

// pairs joins two lists of tables by name.
func pairs[T any](old, new []T, name func(*T) string) []pair[T] {
	all := map[string]pair[T]{}
	for i := range old {
		all[name(&old[i])] = pair[T]{name: name(&old[i]), old: &old[i]}
	}
	for i := range new {
		p := all[name(&new[i])]
		p.name, p.new = name(&new[i]), &new[i]
		all[p.name] = p
	}
	return slices.SortedFunc(maps.Values(all), func(a, b pair[T]) int { return strings.Compare(a.name, b.name) })
}

// table tells the change of one table: as a whole, or of its keys.
func (d *differ) table(at Change, before, after bool, gist func() string, structs ...sides) {
	switch {
	case !before:
		at.Kind, at.New = Added, gist()
		d.changes = append(d.changes, at)
	case !after:
		at.Kind, at.Old = Removed, gist()
		d.changes = append(d.changes, at)
	default:
		for _, s := range structs {
			d.keys(at, s)
		}
	}
}

// resources tells the changes of a group's resources, and of their order.
func (d *differ) resources(old, new Group) {
	stay := func(g, other Group) []string {
		return slices.DeleteFunc(resourceNames(g), func(n string) bool { return !slices.Contains(resourceNames(other), n) })
	}
	if before, after := stay(old, new), stay(new, old); !slices.Equal(before, after) {
		d.changes = append(d.changes, Change{What: OfGroup, Name: new.Name, Kind: Changed, Key: "resource", Old: quoteList(before), New: quoteList(after)})
	}
	for _, p := range pairs(old.Resources, new.Resources, func(r *Resource) string { return r.Name }) {
		options := sides{}
		if p.old != nil && p.new != nil {
			options = sides{p.old.Options, p.new.Options}
		}
		gist := func() string {
			in := new
			if p.new == nil {
				in = old
			}
			return fmt.Sprintf("%s, number %d of %d", p.any().Kind, 1+slices.Index(resourceNames(in), p.name), len(in.Resources))
		}
		d.table(Change{What: OfResource, Group: new.Name, Name: p.name}, p.old != nil, p.new != nil, gist, sides{p.old, p.new}, options)
	}
}

// entry is one key's value, ready to be compared and shown.
type entry struct {
	same  string // equal for values of one meaning
	shown string
}

// keys tells the keys that differ between two structs, in the structs' order.
func (d *differ) keys(at Change, s sides) {
	if s.old == nil || s.new == nil {
		return
	}
	label := at.Table()
	order, before := entries(d.old, label, s.old)
	more, after := entries(d.new, label, s.new)
	for _, key := range more {
		if !slices.Contains(order, key) {
			order = append(order, key)
		}
	}
	for _, key := range order {
		if before[key].same == after[key].same {
			continue
		}
		at.Kind, at.Key, at.Old, at.New = Changed, key, before[key].shown, after[key].shown
		d.changes = append(d.changes, at)
	}
}

// entries gives the values of a struct, and its keys in their order. A map has an entry for each of its
// names.
func entries(c *Config, label string, of any) (order []string, all map[string]entry) {
	all = map[string]entry{}
	add := func(key string, e entry) {
		if _, known := all[key]; !known {
			order = append(order, key)
		}
		all[key] = e
	}
	for _, f := range fieldsOf(of) {
		switch v := f.val.Interface().(type) {
		case agents.Secret:
			if !v.IsZero() {
				add(f.key, c.secretEntry(label, "", f.key, v))
			}
		case map[string]agents.Secret:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				e := c.secretEntry(label, f.key+".", name, v[name])
				// NAME_file is there beside NAME, and says the same.
				if base, _ := secretName(name); base == name || v[base].IsZero() {
					add(f.key+"."+name, e)
				}
			}
		case map[string]string:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				add(f.key+"."+name, written(v[name]))
			}
		case map[string][]string:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				add(f.key+"."+name, f.list(v[name]))
			}
		default:
			if f.key != "name" || c.isCluster(of) {
				add(f.key, f.entry())
			}
		}
	}
	return order, all
}

// isCluster reports whether it is the table of which there is one: its name is a key like others.
func (c *Config) isCluster(of any) bool { _, ok := of.(*Cluster); return ok }

// secretEntry shows where a secret comes from. Its value counts only where it stands in the text, and is not shown.
func (c *Config) secretEntry(label, inner, key string, s agents.Secret) entry {
	from, known := c.origins[(&table{label: label, inner: inner}).key(key)]
	switch {
	case !known, from.suffix == "":
		return entry{same: "inline " + s.Reveal(), shown: "a secret in the text"}
	case from.suffix == "_file":
		return written("file " + from.from)
	case from.suffix == "_env":
		return written("environment variable " + from.from)
	default:
		return written("credential " + from.from)
	}
}

func written(s string) entry { return entry{same: s, shown: strconv.Quote(s)} }

// entry is the field's value. Addresses are equal if they mean the same host.
func (f field) entry() entry {
	switch v := f.val.Interface().(type) {
	case time.Duration:
		return written(short(v))
	case []string:
		if f.key == "addresses" {
			return entry{same: quoteList(canonical(v)), shown: quoteList(v)}
		}
		return f.list(v)
	case [][]string:
		var same, shown []string
		for _, level := range v {
			e := f.list(level)
			same, shown = append(same, e.same), append(shown, e.shown)
		}
		return entry{same: strings.Join(same, ", "), shown: "[" + strings.Join(shown, ", ") + "]"}
	}
	if f.val.Kind() == reflect.String {
		return written(f.val.String())
	}
	text := fmt.Sprint(f.val.Interface())
	return entry{same: text, shown: text}
}

// list is a list of strings, of which the order may mean nothing.
func (f field) list(list []string) entry {
	e := entry{same: quoteList(list), shown: quoteList(list)}
	if f.unsorted {
		e.same = quoteList(slices.Sorted(slices.Values(list)))
	}
	return e
}

// canonical gives addresses the one form in which they can be compared.
func canonical(addresses []string) []string {
	var all []string
	for _, a := range addresses {
		if c, _, _ := checkAddress(a); c != "" {
			a = c
		}
		all = append(all, a)
	}
	return all
}
