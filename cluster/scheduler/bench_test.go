package scheduler

import (
	"fmt"
	"testing"

	"github.com/hamgr/hamgr/cluster/state"
)

// field is a cluster of so many members and groups, all joined. With rules, a tenth of the groups run after others, a
// tenth with others, and a tenth apart from others.
func field(tb testing.TB, members, groups int, rules bool) (*state.State, View) {
	tb.Helper()
	c := &state.Configure{Cluster: "test", Digest: "x"}
	v := View{Self: "m000", Nodes: map[string]Liveness{}, Busy: map[uint64]bool{}, Settled: true, FenceAction: state.FenceReboot, Minute: 600}
	for i := range members {
		c.Nodes = append(c.Nodes, state.ConfigNode{Name: fmt.Sprintf("m%03d", i), Role: state.Member, Capacity: 2*groups/members + 16})
	}
	for i := range groups {
		r := state.Rules{Weight: 1, FailureExpiry: 3_600_000, Prefer: []string{fmt.Sprintf("m%03d", i%members), fmt.Sprintf("m%03d", (i+1)%members)}}
		before := []string{fmt.Sprintf("g%05d", i-1)}
		switch {
		case !rules:
		case i%10 == 1:
			r.After = before
		case i%10 == 4:
			r.With = before
		case i%10 == 7:
			r.Apart = before
		}
		c.Groups = append(c.Groups, state.ConfigGroup{Name: fmt.Sprintf("g%05d", i), Rules: r})
	}
	s := apply(tb, &state.State{}, state.Command{Configure: c})
	for _, n := range c.Nodes {
		s = apply(tb, s, state.Command{Join: &state.Join{Node: n.Name, Boot: "b"}})
		v.Nodes[n.Name] = Liveness{Reachable: true, Boot: "b"}
	}
	return s, v
}

func apply(tb testing.TB, s *state.State, c state.Command) *state.State {
	tb.Helper()
	next, res := state.Apply(s, s.Applied+1, c)
	if res.Err != nil {
		tb.Fatal(res.Err)
	}
	return next
}

// running is the field once all its groups have started.
func running(tb testing.TB, s *state.State, v View) *state.State {
	tb.Helper()
	p := &play{s: s, batch: state.NewBatch(s), v: v, stopped: map[uint64]bool{}, f: Forecast{Nodes: map[string]string{}}}
	for p.turn() {
	}
	for name, g := range p.s.Groups {
		if g.Grant == nil || g.Grant.Phase != state.Started {
			tb.Fatalf("%s does not run: %s", name, Waiting(p.s, v)[name])
		}
	}
	return p.s
}

// lost is the field once a member was lost and proven off.
func lost(tb testing.TB, s *state.State, v View) (*state.State, View) {
	tb.Helper()
	s = apply(tb, s, state.Command{Order: &state.Order{Node: "m001", Boot: "b", Action: state.FenceOff, Reason: "silent", By: state.ByCluster}})
	op := s.Nodes["m001"].Op
	s = apply(tb, s, state.Command{Shoot: &state.Shoot{Op: op, Executor: "m000"}})
	s = apply(tb, s, state.Command{ShotProven: &state.ShotProven{Op: op, Executor: "m000", Evidence: []string{"off"}}})
	v.Nodes["m001"] = Liveness{Gone: "silent"}
	return s, v
}

var sizes = []struct{ members, groups int }{{32, 1000}, {100, 10_000}}

// BenchmarkPlan: 32 members with 1000 groups are to be planned in 20 ms, 100 with 10 000 in 300 ms.
func BenchmarkPlan(b *testing.B) {
	for _, size := range sizes {
		for _, rules := range []bool{false, true} {
			s, v := field(b, size.members, size.groups, rules)
			name := fmt.Sprintf("members=%d/groups=%d/rules=%v/", size.members, size.groups, rules)
			plan := func(what string, s *state.State, v View) {
				b.Run(name+what, func(b *testing.B) {
					for b.Loop() {
						Plan(s, v)
					}
				})
			}
			plan("waiting", s, v)
			s = running(b, s, v)
			plan("running", s, v)
			s, v = lost(b, s, v)
			plan("lost", s, v)
		}
	}
}

// BenchmarkGrowth: planning grows with the groups as they do.
func BenchmarkGrowth(b *testing.B) {
	for groups := 1000; groups <= 16_000; groups *= 2 {
		s, v := field(b, 32, groups, true)
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			for b.Loop() {
				Plan(s, v)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(groups), "ns/group")
		})
	}
}

// BenchmarkTell: what a status and a dry run ask.
func BenchmarkTell(b *testing.B) {
	waiting, v := field(b, 100, 10_000, true)
	s := running(b, waiting, v)
	full, none := *waiting, v
	none.Nodes = map[string]Liveness{}
	for what, tell := range map[string]func(){
		"waiting/running":  func() { Waiting(s, v) },
		"waiting/none":     func() { Waiting(&full, none) },
		"next":             func() { Next(s, v) },
		"foresee/move":     func() { foresee(b, s, v, state.Command{Move: &state.MoveGroup{Group: "g00500", To: "m050"}}) },
		"foresee/standby":  func() { foresee(b, s, v, state.Command{Standby: &state.Standby{Node: "m003", On: true}}) },
		"foresee/waiting":  func() { foresee(b, waiting, v, state.Command{Enable: &state.Enable{Group: "g00500"}}) },
		"foresee/maintain": func() { foresee(b, s, v, state.Command{Maintain: &state.Maintain{On: true}}) },
	} {
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
				tell()
			}
		})
	}
}

func foresee(tb testing.TB, s *state.State, v View, c state.Command) {
	if _, err := Foresee(s, v, c); err != nil {
		tb.Fatal(err)
	}
}
