package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
)

// TestPlanGrowsAsTheCluster: sixteen times the groups take about sixteen times as long to plan; what is quadratic
// would take 256 times as long. Of each the fastest run counts, so that a busy machine does not.
func TestPlanGrowsAsTheCluster(t *testing.T) {
	const few, many, most = 128, 16 * 128, 100
	grown := func(what string, make func(groups int) (*state.State, View)) {
		s, v := make(few)
		l, w := make(many)
		for _, f := range []struct {
			what string
			do   func(s *state.State, v View)
		}{
			{"plan", func(s *state.State, v View) { Plan(s, v) }},
			{"waiting", func(s *state.State, v View) { Waiting(s, v) }},
			{"next", func(s *state.State, v View) { Next(s, v) }},
		} {
			small, large := time.Hour, time.Hour
			for try := 0; try < 3 || large > most*small && try < 30; try++ {
				small = min(small, took(func() { f.do(s, v) }))
				large = min(large, took(func() { f.do(l, w) }))
			}
			if large > most*small {
				t.Errorf("%s of %s: %s for %d groups, %s for %d", f.what, what, small, few, large, many)
			}
		}
	}
	waiting := func(groups int) (*state.State, View) { return field(t, 8, groups, true) }
	run := func(groups int) (*state.State, View) {
		s, v := waiting(groups)
		return running(t, s, v), v
	}
	grown("waiting groups", waiting)
	grown("running groups", run)
	grown("a lost node", func(groups int) (*state.State, View) {
		s, v := run(groups)
		return lost(t, s, v)
	})
	grown("a star", star(t, false))
	grown("a star that runs", star(t, true))
}

// star makes clusters where a third of the groups run with one group, a third after it, and all of these apart from
// another one.
func star(t *testing.T, run bool) func(groups int) (*state.State, View) {
	return func(groups int) (*state.State, View) {
		s, v := field(t, 8, 0, false)
		c := &state.Configure{Cluster: "test", Digest: "x"}
		for _, name := range s.NodeNames() {
			c.Nodes = append(c.Nodes, state.ConfigNode{Name: name, Role: state.Member})
		}
		for _, name := range []string{"hub", "other"} {
			c.Groups = append(c.Groups, state.ConfigGroup{Name: name})
		}
		for i := range groups / 3 {
			for _, r := range []state.Rules{{With: []string{"hub"}}, {After: []string{"hub"}}, {Apart: []string{"other"}}} {
				c.Groups = append(c.Groups, state.ConfigGroup{Name: fmt.Sprintf("g%05d-%d", i, len(c.Groups)), Rules: r})
			}
		}
		if s = apply(t, s, state.Command{Configure: c}); !run {
			return s, v
		}
		// A wish on one of the followers is looked at for all.
		s = running(t, s, v)
		return apply(t, s, state.Command{Move: &state.MoveGroup{Group: c.Groups[2].Name, To: "m003", For: 60_000, By: "root"}}), v
	}
}

func took(f func()) time.Duration {
	began := time.Now()
	f()
	return max(time.Since(began), 20*time.Microsecond)
}
