package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
)

func members(names string) (all []config.Node) {
	for _, n := range strings.Fields(names) {
		all = append(all, config.Node{Name: n, Role: config.Member})
	}
	return all
}

// words gives what is expected, one line a group: its turn, its node, and where it goes from there.
func words(all []Expected) (lines []string) {
	for _, e := range all {
		where := fmt.Sprintf("%d %s %s", e.Turn, e.Group, orElse(e.Node, "nowhere: "+e.Waits))
		if e.Then != "" || e.ThenWaits != "" {
			where += ", then " + orElse(e.Then, "nowhere")
		}
		if e.Astray != "" {
			where += ", not " + e.Astray
		}
		lines = append(lines, where)
	}
	return lines
}

// What is expected of a file is what the scheduler makes of it: who starts when and where, and who is stranded by which loss.
func TestExpect(t *testing.T) {
	for name, c := range map[string]struct {
		nodes    string
		groups   []config.Group
		want     []string
		stranded []string // "LOST GROUP: a part of the reason"
	}{
		"order": {"alpha beta", []config.Group{
			{Name: "web", Weight: 1, After: []string{"app"}, With: []string{"app"}}, {Name: "app", Weight: 1, After: []string{"db"}},
			{Name: "db", Weight: 1, Prefer: []string{"beta"}},
		}, []string{"1 db beta, then alpha", "2 app alpha, then beta", "3 web alpha, then beta"}, nil},
		"as many apart as members": {"alpha beta", []config.Group{
			{Name: "one", Weight: 1, Prefer: []string{"alpha"}}, {Name: "two", Weight: 1, Apart: []string{"one"}},
		}, []string{"1 one alpha, then nowhere", "1 two beta, then nowhere"},
			[]string{"alpha one: holds two, from which it is to be apart", "beta two: holds one, from which it is to be apart"}},
		"a spare one": {"alpha beta gamma", []config.Group{
			{Name: "one", Weight: 1, Prefer: []string{"alpha"}}, {Name: "two", Weight: 1, Apart: []string{"one"}},
		}, []string{"1 one alpha, then gamma", "1 two beta, then gamma"}, nil},
		"allowed on one": {"alpha beta", []config.Group{{Name: "db", Weight: 1, Allow: []string{"alpha"}}, {Name: "web", Weight: 1, Prefer: []string{"beta"}, After: []string{"db"}}},
			[]string{"1 db alpha, then nowhere", "2 web beta, then alpha"}, []string{"alpha db: beta is not allowed", "alpha web: it runs after db, which does not run"}},
		"never": {"alpha beta", []config.Group{{Name: "a", Weight: 1, Allow: []string{"alpha"}}, {Name: "b", Weight: 1, Allow: []string{"alpha"}, Apart: []string{"a"}}},
			[]string{"1 a alpha, then nowhere", "0 b nowhere: no node can take it: alpha holds a, from which it is to be apart; beta is not allowed to run it"}, []string{"alpha a: beta is not allowed"}},
		"astray": {"alpha beta", []config.Group{{Name: "a", Weight: 1, Prefer: []string{"alpha"}}, {Name: "b", Weight: 1, Prefer: []string{"alpha"}, Apart: []string{"a"}}},
			[]string{"1 a alpha, then nowhere", "1 b beta, then nowhere, not alpha"}, []string{"alpha a: ", "beta b: "}},
		"one member": {"alpha", []config.Group{{Name: "a", Weight: 1}}, []string{"1 a alpha"}, nil},
		"none":       {"alpha beta", nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			all, stranded := Expect(&config.Config{Nodes: members(c.nodes), Groups: c.groups})
			if got := words(all); !slices.Equal(got, c.want) {
				t.Errorf("expected %q, want %q", got, c.want)
			}
			if len(stranded) != len(c.stranded) {
				t.Fatalf("stranded: %+v", stranded)
			}
			for i, s := range stranded {
				where, why, _ := strings.Cut(c.stranded[i], ": ")
				if s.Lost+" "+s.Group != where || !strings.Contains(s.Why, why) {
					t.Errorf("stranded: %+v, want %s", s, c.stranded[i])
				}
			}
		})
	}
}

// A large file is answered in time: where every loss cannot be played, the start still is.
func TestExpectIsBounded(t *testing.T) {
	c := &config.Config{}
	for i := range 64 {
		c.Nodes = append(c.Nodes, config.Node{Name: fmt.Sprintf("n%02d", i), Role: config.Member})
	}
	for i := range 4000 {
		c.Groups = append(c.Groups, config.Group{Name: fmt.Sprintf("g%04d", i), Weight: 1})
	}
	began := time.Now()
	all, stranded := Expect(c)
	if len(all) != 4000 || all[3999].Node == "" || stranded != nil || all[0].Then != "" {
		t.Errorf("%d groups, %d stranded, %+v", len(all), len(stranded), all[0])
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %s", took)
	}
	t.Log(time.Since(began))
}
