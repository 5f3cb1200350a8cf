package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func baseText(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("testdata/change/base.toml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// baseFacts are those of a cluster in good health: db and log run on alpha, web on beta, batch nowhere.
func baseFacts() *Facts {
	node := NodeFacts{Answers: true, Up: true, LongestGap: 200 * time.Millisecond, WriteP99: 20 * time.Millisecond}
	return &Facts{
		Nodes: map[string]NodeFacts{"alpha": node, "beta": node, "gamma": node},
		Groups: map[string]GroupFacts{
			"db": {Holders: []string{"alpha"}, Running: true}, "log": {Holders: []string{"alpha"}, Running: true},
			"web": {Holders: []string{"beta"}, Running: true}, "batch": {},
		},
		Voters: []string{"alpha", "beta", "gamma"},
		Minute: 12 * 60,
	}
}

// edit replaces texts that must be there: old, new, old, new.
func edit(t testing.TB, text string, replace ...string) string {
	t.Helper()
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("%q is not there", replace[i])
		}
		text = strings.Replace(text, replace[i], replace[i+1], 1)
	}
	return text
}

// without takes the table of that name out of a file, with its resources.
func without(t testing.TB, text, header, name string) string {
	t.Helper()
	begin := strings.Index(text, fmt.Sprintf("[[%s]]\nname = %q\n", header, name))
	if begin < 0 {
		t.Fatalf("no %s %q", header, name)
	}
	rest := text[begin+2:]
	end := len(rest)
	for _, next := range []string{"[[node]]", "[[fence_device]]", "[[group]]"} {
		if i := strings.Index(rest, next); i >= 0 {
			end = min(end, i)
		}
	}
	return text[:begin] + rest[end:]
}

// withoutNode takes a node out, with its devices.
func withoutNode(t testing.TB, text, name, plugs string) string {
	t.Helper()
	text = without(t, without(t, text, "node", name), "fence_device", name+"-bmc")
	return strings.ReplaceAll(text, plugs, "")
}

const moreNodes = `
[[node]]
name = "delta"
addresses = ["10.0.0.14", "10.1.0.14"]
role = "witness"

[[node]]
name = "epsilon"
addresses = ["10.0.0.15", "10.1.0.15"]
role = "witness"
`

// a changeCase is a change of a text, and what is known when it is judged.
type changeCase struct {
	name   string
	change func(t testing.TB, base string) (old, new string)
	facts  func(*Facts)
}

// to makes the change from the base to an edited one.
func to(replace ...string) func(testing.TB, string) (string, string) {
	return func(t testing.TB, base string) (string, string) { return base, edit(t, base, replace...) }
}

func TestChanges(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range changeCases {
		t.Run(c.name, func(t *testing.T) {
			if seen[c.name] {
				t.Fatal("twice")
			}
			seen[c.name] = true
			old, new := c.change(t, baseText(t))
			before, after := parseOK(t, old), parseOK(t, new)
			facts := baseFacts()
			if c.facts != nil {
				c.facts(facts)
			}
			got := told(Diff(before, after), Judge(before, after, facts))
			if strings.Contains(got, "hunter2") {
				t.Errorf("a secret is shown: %s", got)
			}
			want := filepath.Join("testdata/change", strings.ReplaceAll(c.name, " ", "-")+".want")
			golden(t, want, got)
			// What is named with "refused" is refused, and nothing else is.
			if refused := strings.Contains(got, "refused: "); refused != strings.HasPrefix(c.name, "refused ") {
				t.Errorf("refused: %v", refused)
			}
		})
	}
	files, _ := filepath.Glob("testdata/change/*.want")
	if len(files) != len(changeCases)+1 && !*update { // and base.want
		t.Errorf("%d files for %d cases: %v", len(files), len(changeCases), slices.Collect(maps.Keys(seen)))
	}
}

// told puts a diff and a verdict into lines.
func told(changes []Change, v Verdict) string {
	var b strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&b, "%s: %s; %s\n", c.Table(), c, c.Effect)
	}
	for _, o := range v.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", o)
	}
	for _, o := range v.Refused {
		fmt.Fprintf(&b, "refused: %s\n", o)
	}
	return b.String()
}
