package node

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/scheduler"
	"github.com/hamgr/hamgr/cluster/state"
)

// exemplary is the cluster of docs/groups.md, in which these nodes are there.
type exemplary struct {
	t *testing.T
	s *state.State
	v scheduler.View
}

func newExemplary(t *testing.T, page []byte, there ...string) *exemplary {
	t.Helper()
	block := regexp.MustCompile("(?ms)^```toml\n(.*?)^```$").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page shows no configuration")
	}
	c, err := config.Parse("groups.md", block[1], Kinds())
	if err != nil {
		t.Fatal(err)
	}
	e := &exemplary{t: t, s: &state.State{}, v: scheduler.View{Self: there[0], Nodes: map[string]scheduler.Liveness{}, Settled: true, Minute: 12 * 60}}
	configure := seed(c)
	e.apply(state.Command{Configure: &configure})
	for _, n := range there {
		e.v.Nodes[n] = scheduler.Liveness{Reachable: true, Boot: n + "1"}
		e.apply(state.Command{Join: &state.Join{Node: n, Boot: n + "1", Session: n}})
	}
	e.settle()
	return e
}

func (e *exemplary) apply(cmd state.Command) {
	e.t.Helper()
	next, res := state.Apply(e.s, e.s.Applied+1, cmd)
	if res.Err != nil {
		e.t.Fatal(res.Err)
	}
	e.s = next
}

// settle lets all groups be granted and started.
func (e *exemplary) settle() {
	for range 10 {
		for _, a := range scheduler.Plan(e.s, e.v) {
			if a.Commit == nil || a.Commit.Grant == nil {
				continue
			}
			e.apply(*a.Commit)
			g := e.s.Groups[a.Commit.Grant.Group].Grant
			e.apply(state.Command{Started: &state.Report{Group: a.Commit.Grant.Group, Token: g.Token, Node: g.Node, Boot: g.Boot, Session: g.Node}})
		}
	}
}

func (e *exemplary) where() string {
	var all []string
	for _, name := range e.s.GroupNames() {
		if g := e.s.Groups[name]; g.Grant != nil {
			all = append(all, name+" on "+g.Grant.Node)
		}
	}
	return strings.Join(all, ", ")
}

// What docs/groups.md says of its example is so.
func TestGroupsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/groups.md")
	if err != nil {
		t.Fatal(err)
	}
	e := newExemplary(t, page, "alpha", "beta", "gamma")
	if at := e.where(); at != "batch on gamma, db on alpha, web on alpha" {
		t.Errorf("three nodes: %s", at)
	}
	f, err := scheduler.Foresee(e.s, e.v, state.Command{Move: &state.MoveGroup{Group: "db", To: "beta", By: "anna"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range f.Steps {
		action := "start"
		if s.Stop {
			action = "stop"
		}
		line := fmt.Sprintf("\n    %3d. %s %s on %s: %s\n", i+1, action, s.Group, s.Node, s.Reason)
		if !bytes.Contains(page, []byte(line)) {
			t.Errorf("the page does not show %s", line)
		}
	}
	if len(f.Steps) < 4 {
		t.Errorf("only %d steps: %+v", len(f.Steps), f.Steps)
	}

	e.apply(state.Command{Standby: &state.Standby{Node: "beta", On: true, By: "anna"}})
	f, err = scheduler.Foresee(e.s, e.v, state.Command{Standby: &state.Standby{Node: "gamma", On: true, By: "anna"}})
	if err != nil || len(f.Steps) != 1 || !strings.Contains(f.Waits["batch"], "alpha holds db, from which it is to be apart") {
		t.Errorf("alpha alone is left: %+v, %v", f, err)
	}
	if at := newExemplary(t, page, "alpha").where(); at != "db on alpha, web on alpha" {
		t.Errorf("both have to be placed on alpha: %s", at)
	}
	if at := newExemplary(t, page, "gamma").where(); at != "batch on gamma" {
		t.Errorf("gamma alone: %s", at)
	}
}
