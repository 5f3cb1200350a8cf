package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"pgregory.net/rapid"
)

// spot is one key of a table, in a configuration that may be changed there.
type spot struct {
	change Change // names the key, and the table
	field  field
}

// spots lists every key of every table, those of the kinds included, as the tags of the structs tell them.
func spots(c *Config) (all []spot) {
	of := func(at Change, structs ...any) {
		for i, s := range structs {
			for _, f := range fieldsOf(s) {
				if f.isSecret() || f.key == "name" && (at.What != OfCluster || i > 0) {
					continue // what becomes of these is tested by itself
				}
				at.Key = f.key
				all = append(all, spot{at, f})
			}
		}
	}
	of(Change{What: OfCluster}, &c.Cluster)
	for i := range c.Nodes {
		of(Change{What: OfNode, Name: c.Nodes[i].Name}, &c.Nodes[i])
	}
	for i := range c.Devices {
		of(Change{What: OfDevice, Name: c.Devices[i].Name}, &c.Devices[i], c.Devices[i].Options)
	}
	for i := range c.Groups {
		g := &c.Groups[i]
		of(Change{What: OfGroup, Name: g.Name}, g)
		for k := range g.Resources {
			of(Change{What: OfResource, Group: g.Name, Name: g.Resources[k].Name}, &g.Resources[k], g.Resources[k].Options)
		}
	}
	return all
}

// mutate gives a field another value. It tells which name in a table it was, if it is one.
func mutate(f field) (name string) {
	switch v := f.val.Interface().(type) {
	case []string:
		f.val.Set(reflect.ValueOf(append(slices.Clone(v), "new")))
	case [][]string:
		f.val.Set(reflect.ValueOf(append(slices.Clone(v), []string{"new"})))
	case map[string]string:
		m := map[string]string{"new": "1"}
		maps.Copy(m, v)
		f.val.Set(reflect.ValueOf(m))
		return ".new"
	case map[string][]string:
		m := map[string][]string{"new": {"1"}}
		maps.Copy(m, v)
		f.val.Set(reflect.ValueOf(m))
		return ".new"
	default:
		switch {
		case f.val.Kind() == reflect.String:
			f.val.SetString(f.val.String() + "x")
		case f.val.Kind() == reflect.Bool:
			f.val.SetBool(!f.val.Bool())
		case f.val.CanInt():
			f.val.SetInt(f.val.Int() + 1)
		default:
			f.val.SetUint(f.val.Uint() + 1)
		}
	}
	return ""
}

// Every key that a file can have is told when it changes, and nothing but it, with a word on what that does.
func TestEveryKeyIsTold(t *testing.T) {
	base := parseOK(t, baseText(t))
	for i := range spots(base) {
		changed := parseOK(t, baseText(t))
		s := spots(changed)[i]
		want := s.change
		want.Key += mutate(s.field)
		got := Diff(base, changed)
		if len(got) != 1 {
			t.Errorf("%s: %s: told as %v", want.Table(), want.Key, got)
			continue
		}
		if g := got[0]; g.Table() != want.Table() || g.Key != want.Key || g.Kind != Changed || g.Old == g.New || g.Effect == "" || strings.Contains(g.Effect, "%") {
			t.Errorf("%s: %s: told as %+v", want.Table(), want.Key, g)
		}
		if back := Diff(changed, base); len(back) != 1 || back[0].Key != want.Key || back[0].Old != got[0].New {
			t.Errorf("%s: %s: told on the way back as %v", want.Table(), want.Key, back)
		}
	}
}

// A key without a word of its own on what its change does was forgotten in effects.
func TestEffectsAreWhole(t *testing.T) {
	for what, table := range map[What]any{OfCluster: &Cluster{}, OfNode: &Node{}, OfDevice: &Device{}, OfGroup: &Group{}} {
		known := map[string]bool{"resource": what == OfGroup}
		for _, f := range fieldsOf(table) {
			known[f.key] = true
			if effects[what][f.key] == "" && (f.key != "name" || what == OfCluster) {
				t.Errorf("%s: %s: what does its change do?", what, f.key)
			}
		}
		for key := range effects[what] {
			if !known[key] {
				t.Errorf("%s: there is no key %s", what, key)
			}
		}
	}
}

// Where a secret comes from is told; a secret never is.
func TestSecretsInDiffs(t *testing.T) {
	base := baseText(t)
	file := `password_file = "/etc/hamgr/secrets/bmc"`
	for written, want := range map[string]string{
		`password_file = "/other"`:    `password: "file /etc/hamgr/secrets/bmc" -> "file /other"`,
		`password_env = "BMC"`:        `password: "file /etc/hamgr/secrets/bmc" -> "environment variable BMC"`,
		`password_credential = "bmc"`: `password: "file /etc/hamgr/secrets/bmc" -> "credential bmc"`,
		`password = "hunter2"`:        `password: "file /etc/hamgr/secrets/bmc" -> a secret in the text`,
		file:                          "",
	} {
		got := Diff(parseOK(t, base), parseOK(t, edit(t, base, file, written)))
		text := ""
		for _, c := range got {
			text += c.String()
		}
		if text != want || strings.Contains(fmt.Sprintf("%+v", got), "hunter2") {
			t.Errorf("%s: %+v", written, got)
		}
	}
	inline := func(s string) *Config { return parseOK(t, edit(t, base, file, fmt.Sprintf("password = %q", s))) }
	if got := Diff(inline("hunter2"), inline("hunter2")); len(got) != 0 {
		t.Errorf("the same secret is told as %v", got)
	}
	got := Diff(inline("hunter2"), inline("hunter3"))
	if len(got) != 1 || got[0].String() != "password: changed" || strings.Contains(fmt.Sprintf("%+v", got), "hunter") {
		t.Errorf("%+v", got)
	}
}

// shuffled changes a configuration at random: keys, tables that go, tables that come, orders that mean nothing.
func shuffled(r *rapid.T, text string) *Config {
	c, err := Parse("hamgr.toml", []byte(text), testKinds())
	if err != nil {
		r.Fatal(err)
	}
	for range rapid.IntRange(0, 4).Draw(r, "changes") {
		switch rapid.IntRange(0, 4).Draw(r, "what") {
		case 0:
			c.Nodes = slices.Delete(c.Nodes, 0, min(1, len(c.Nodes)))
		case 1:
			c.Groups = slices.Delete(c.Groups, 0, min(1, len(c.Groups)))
		case 2:
			c.Nodes = append(c.Nodes, Node{Name: rapid.SampledFrom([]string{"x", "y"}).Draw(r, "name"), Addresses: []string{"10.0.0.99"}})
			slices.SortFunc(c.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
			c.Nodes = slices.CompactFunc(c.Nodes, func(a, b Node) bool { return a.Name == b.Name })
		default:
			mutate(rapid.SampledFrom(spots(c)).Draw(r, "spot").field)
		}
	}
	return c
}

// Nothing differs from itself, and what differs does so both ways.
func TestDiffIsSymmetric(t *testing.T) {
	text := baseText(t)
	rapid.Check(t, func(r *rapid.T) {
		a, b := shuffled(r, text), shuffled(r, text)
		if d := Diff(a, a); len(d) != 0 {
			r.Fatalf("it differs from itself: %v", d)
		}
		there, back := Diff(a, b), Diff(b, a)
		turned := map[ChangeKind]ChangeKind{Added: Removed, Removed: Added, Changed: Changed}
		for i := range back {
			c := &back[i]
			c.Kind, c.Old, c.New = turned[c.Kind], c.New, c.Old
		}
		bare := func(all []Change) (names []string) {
			for _, c := range all {
				names = append(names, fmt.Sprint(c.Table(), c.Kind, c.Key, c.Old, c.New))
			}
			slices.Sort(names)
			return names
		}
		if !slices.Equal(bare(there), bare(back)) {
			r.Fatalf("there\n%v\nand back\n%v", there, back)
		}
		slices.Reverse(b.Nodes)
		slices.Reverse(b.Groups)
		slices.Reverse(b.Devices)
		if again := Diff(a, b); !reflect.DeepEqual(again, there) {
			r.Fatalf("the order of tables counts:\n%v\n%v", there, again)
		}
	})
}

// Equal secrets of Configs that were put together by hand are equal.
func TestSecretWithoutOrigin(t *testing.T) {
	a, b := parseOK(t, baseText(t)), parseOK(t, baseText(t))
	a.origins, b.origins = nil, nil
	if d := Diff(a, b); len(d) != 0 {
		t.Errorf("%v", d)
	}
	b.Devices[0].Options.(*bmcOptions).Password = agents.NewSecret("other")
	if d := Diff(a, b); len(d) != 1 || d[0].Key != "password" {
		t.Errorf("%v", d)
	}
}

// randomFacts are those of any state that a cluster may be in.
func randomFacts(r *rapid.T, c *Config) *Facts {
	f := &Facts{Nodes: map[string]NodeFacts{}, Groups: map[string]GroupFacts{}, Minute: rapid.IntRange(0, 24*60-1).Draw(r, "minute")}
	flag := func(what string) bool { return rapid.Bool().Draw(r, what) }
	rarely := func(what string) bool { return rapid.IntRange(0, 4).Draw(r, what) == 0 }
	for _, name := range c.NodeNames() {
		n := NodeFacts{Answers: !rarely("silent"), Up: !rarely("down"), Standby: rarely("standby"), LongestGap: time.Duration(rapid.IntRange(0, 2000).Draw(r, "gap")) * time.Millisecond}
		if rarely("unclean") {
			n.Unclean = "silent"
		}
		if rarely("operation") {
			n.Op = 3
		}
		f.Nodes[name] = n
		if !rarely("voter") {
			f.Voters = append(f.Voters, name)
		}
	}
	for _, g := range c.Groups {
		if flag("held") {
			f.Groups[g.Name] = GroupFacts{Holders: []string{rapid.SampledFrom(c.NodeNames()).Draw(r, "holder")}, Running: flag("running")}
		}
	}
	return f
}

// Whatever is accepted can be gone through: no vote on the way lacks its majority, in whatever order the voters change;
// nobody is forgotten who may hold something; nothing that runs is forbidden where it is.
func TestAcceptedChangesAreSafe(t *testing.T) {
	text := baseText(t)
	changes := slices.DeleteFunc(slices.Clone(changeCases), func(c changeCase) bool { return strings.Contains(c.name, "inline") })
	accepted := 0
	rapid.Check(t, func(r *rapid.T) {
		c := rapid.SampledFrom(changes).Draw(r, "change")
		before, after := c.change(t, text)
		old, err := Parse("old", []byte(before), testKinds())
		if err != nil {
			r.Fatal(err)
		}
		new, err := Parse("new", []byte(after), testKinds())
		if err != nil {
			r.Fatal(err)
		}
		f := randomFacts(r, old)
		if len(Judge(old, new, f).Refused) > 0 {
			return
		}
		accepted++
		mustBeSafe(r, old, new, f)
	})
	if accepted == 0 {
		t.Error("nothing was accepted")
	}
}

func mustBeSafe(r *rapid.T, old, new *Config, f *Facts) {
	may := func(node string) bool {
		n := f.Nodes[node]
		return n.Unclean != "" || n.Op != 0 || n.Up && !n.Answers || slices.ContainsFunc(slices.Collect(maps.Values(f.Groups)), func(g GroupFacts) bool { return slices.Contains(g.Holders, node) })
	}
	for _, n := range old.NodeNames() {
		if _, stays := new.Node(n); !stays && may(n) {
			r.Fatalf("%s is forgotten: %+v", n, f.Nodes[n])
		}
	}
	for name, g := range f.Groups {
		i := slices.IndexFunc(new.Groups, func(g Group) bool { return g.Name == name })
		if i < 0 {
			r.Fatalf("%s is forgotten, and held by %v", name, g.Holders)
		}
		was := old.Groups[slices.IndexFunc(old.Groups, func(g Group) bool { return g.Name == name })]
		if allow := new.Groups[i].Allow; len(was.Allow) == 0 && len(allow) > 0 && !slices.Contains(allow, g.Holders[0]) {
			r.Fatalf("%s may not be on %v any more", name, g.Holders)
		}
	}
	// The voters change, in an order drawn at random.
	voters := slices.Clone(f.Voters)
	if len(voters) == 0 {
		voters = old.NodeNames()
	}
	needed := func(when string) {
		answering := 0
		for _, v := range voters {
			if f.Nodes[v].Answers {
				answering++
			}
		}
		if 2*answering <= len(voters) {
			r.Fatalf("%s: %d of %v answer", when, answering, voters)
		}
	}
	needed("the change itself")
	gone := slices.DeleteFunc(slices.Clone(voters), func(v string) bool { _, stays := new.Node(v); return stays })
	for _, v := range rapid.Permutation(gone).Draw(r, "order") {
		voters = slices.DeleteFunc(voters, func(x string) bool { return x == v })
		needed("without " + v)
	}
}
