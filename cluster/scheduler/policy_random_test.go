package scheduler

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hamgr/hamgr/cluster/state"
)

var groupNames = []string{"a", "b", "c", "d", "e", "f"}

// newRuled gives a cluster of four members and a few groups with random rules, all joined.
func newRuled(t *rapid.T) *world {
	w := &world{t: t, boots: map[string]int{}, sc: &scenario{s: &state.State{}, v: View{
		Self: "one", Nodes: map[string]Liveness{}, Busy: map[uint64]bool{}, Settled: true, FenceAction: state.FenceReboot,
		Minute: rapid.SampledFrom([]int{-1, 0, 300, 720, 1380}).Draw(t, "minute"),
	}}}
	w.do("configure alpha beta gamma delta !one")
	for _, n := range ruled {
		w.do(fmt.Sprintf("capacity %s %d", n, rapid.SampledFrom([]int{0, 0, 2, 4}).Draw(t, "capacity")))
	}
	for i := range groupNames {
		w.rule(i)
	}
	for _, n := range append(slices.Clone(ruled), "one") {
		w.join(n)
	}
	return w
}

var ruled = []string{"alpha", "beta", "gamma", "delta"}

// rule configures a group anew.
func (w *world) rule(i int) {
	some := func(label string, from []string, most int) string {
		if len(from) == 0 || rapid.IntRange(0, 2).Draw(w.t, label) > 0 {
			return ""
		}
		return strings.Join(rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, min(most, len(from)), rapid.ID[string]).Draw(w.t, label), ",")
	}
	// The configuration refuses groups that are to be together and apart: the first three may be together.
	with, apart := groupNames[:i], groupNames[3:]
	if i >= 3 {
		with, apart = nil, slices.Delete(slices.Clone(groupNames), i, i+1)
	}
	w.do(fmt.Sprintf("group %s after=%s with=%s apart=%s prefer=%s allow=%s weight=%d failback=%s expiry=%d", groupNames[i],
		some("after", groupNames[:i], 2), some("with", with, 2), some("apart", apart, 1), some("prefer", ruled, 2), some("allow", ruled, 3),
		rapid.IntRange(0, 2).Draw(w.t, "weight"), w.pick("failback", "00:00-00:00", "00:00-00:00", "always", "22:00-05:30"), w.pickInt("expiry", 0, 30)))
}

func (w *world) pickInt(label string, from ...int) int {
	return rapid.SampledFrom(from).Draw(w.t, label)
}

// word is something that an operator may say of nodes and groups.
func (w *world) word() string {
	node, group, on := w.pick("node", ruled...), w.pick("group", groupNames...), w.pick("on", "on", "off", "off")
	return rapid.SampledFrom([]string{
		"standby " + node + " " + on, "maintain node " + node + " " + on, "maintain group " + group + " " + on, "maintain cluster " + on,
		"enable " + group, "disable " + group, "clear " + group, "clear " + group + " " + node, "restart " + group,
		"move " + group + " " + node, "move " + group + " " + node + " 100", "away " + group + " " + node, "away " + group + " " + node + " 100", "move " + group,
	}).Draw(w.t, "word")
}

// change is one thing that the scheduler did not decide.
func (w *world) change() {
	node := w.pick("node", ruled...)
	n := w.sc.s.Nodes[node]
	switch w.pick("event", "word", "word", "word", "work", "work", "work", "work", "time", "minute", "gone", "back", "reboot", "rule", "drop", "proven") {
	case "word":
		w.try(w.word(), false)
	case "work":
		w.work()
	case "time":
		w.sc.v.Since += rapid.Int64Range(1, 200_000).Draw(w.t, "ms")
	case "minute":
		w.sc.v.Minute = w.pickInt("minute", 0, 720, 1380)
	case "gone":
		w.sc.v.Nodes[node] = Liveness{Gone: "silent"}
	case "back":
		if n.Up {
			w.sc.v.Nodes[node] = Liveness{Reachable: true, Boot: n.Boot}
		}
	case "reboot":
		w.join(node)
	case "rule":
		w.rule(rapid.IntRange(0, len(groupNames)-1).Draw(w.t, "group"))
	case "drop":
		w.do("drop " + w.pick("group", groupNames...))
	case "proven":
		if n.Op != 0 && w.sc.s.Operations[n.Op].Phase == state.Shooting {
			w.do("proven " + node)
		}
	}
}

// work lets the holder of a group do what it was told, or fail.
func (w *world) work() {
	name := w.pick("group", groupNames...)
	g := w.sc.s.Groups[name]
	if g == nil || g.Grant == nil || !w.sc.v.Nodes[g.Grant.Node].Reachable {
		return
	}
	switch g.Grant.Phase {
	case state.Granted:
		w.do(w.pick("outcome", "started", "started", "failed") + " " + name)
	case state.Started:
		w.do("failed " + name + w.pick("verdict", "", "", " halt", " fence"))
	case state.Stopping:
		w.do(w.pick("outcome", "stopped", "stopped", "stopped", "stopfailed") + " " + name)
	}
}

// TestRulesHold lets random things happen to groups with random rules, and holds every planned action against the rules,
// told anew and in the plainest way.
func TestRulesHold(t *testing.T) {
	grants, stops := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := newRuled(t)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.change()
			for round := 0; ; round++ {
				if round > 16 {
					t.Fatalf("the plan does not come to an end:\n%s", w.sc.plan())
				}
				plan := Plan(w.sc.s, w.sc.v)
				if again := Plan(w.sc.s, w.sc.v); !reflect.DeepEqual(plan, again) {
					t.Fatalf("one state, two plans:\n%v\n%v", plan, again)
				}
				committed := false
				for _, a := range plan {
					w.judgePolicy(a)
					if a.Commit != nil {
						committed = true
						if err := w.sc.commit(*a.Commit); err != nil {
							t.Fatalf("%s (%s): %v", verb(a), a.Reason, err)
						}
						grants, stops = grants+count(a.Commit.Grant != nil), stops+count(a.Commit.Stop != nil)
					}
				}
				if !committed {
					break
				}
			}
			w.judgeWaiting()
		}
	})
	if grants == 0 || stops == 0 {
		t.Errorf("%d grants, %d stops: nothing was tested", grants, stops)
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// judgeWaiting demands that whoever is nowhere, once nothing is planned any more, is told why, and truly cannot start; and that
// nobody who is somewhere is said to wait for its stop, but where another one that runs after it is still held.
func (w *world) judgeWaiting() {
	waiting := Waiting(w.sc.s, w.sc.v)
	for name, g := range w.sc.s.Groups {
		why := waiting[name]
		followed := false
		for _, later := range w.sc.s.Groups {
			followed = followed || later.Grant != nil && slices.Contains(later.After, name)
		}
		if g.Grant == nil && why == "" || g.Grant != nil && why != "" && !followed || strings.Contains(why, "  ") || strings.HasSuffix(why, ": ") {
			w.t.Fatalf("%s waits: %q\n%s", name, why, w.sc.where())
		}
	}
}

// TestPlansSettle: where every node does what it is told, all comes to rest; then an idle node that is added moves nothing,
// and what comes of an operator's word is what was foretold.
func TestPlansSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newRuled(t)
		for range rapid.IntRange(0, 25).Draw(t, "steps") {
			w.change()
			if rapid.Bool().Draw(t, "commit") {
				w.do("commit")
			}
			_, _ = w.foreseeAny() // whatever the state, it does not panic
		}
		for _, n := range ruled {
			if w.sc.s.Nodes[n].Op != 0 || w.sc.s.Nodes[n].Unclean != "" || w.sc.v.Nodes[n].Gone != "" {
				w.join(n)
			}
		}
		w.do("settle")
		w.idleNode()
		for range 3 {
			w.foretold()
		}
	})
}

func (w *world) foreseeAny() (Forecast, error) {
	f := strings.Fields(w.word())
	c, err := w.sc.command(f[0], f[1:])
	if err != nil {
		w.t.Fatal(err)
	}
	return Foresee(w.sc.s, w.sc.v, c)
}

// idleNode adds a node. Only a wish, or a set that could not be whole so far, may move anything to it.
func (w *world) idleNode() {
	sc := *w.sc
	defer func() { w.sc = &sc }()
	added := sc
	added.v.Nodes = map[string]Liveness{}
	for n, l := range sc.v.Nodes {
		added.v.Nodes[n] = l
	}
	added.conf.Nodes = append(slices.Clone(sc.conf.Nodes), state.ConfigNode{Name: "new", Role: state.Member})
	w.sc = &added
	c := state.Command{Configure: added.configure()}
	if err := added.commit(c); err != nil {
		w.t.Fatal(err)
	}
	w.do("join new n1")
	for _, a := range Plan(added.s, added.v) {
		if a.Commit != nil && a.Commit.Stop != nil && !strings.Contains(a.Reason, "moved ") && !strings.Contains(a.Reason, "which runs with it, failed on") {
			w.t.Fatalf("an idle node was added: %s: %s", verb(a), a.Reason)
		}
	}
}

// foretold compares what is foreseen with what then happens.
func (w *world) foretold() {
	line := w.word()
	f := strings.Fields(line)
	c, err := w.sc.command(f[0], f[1:])
	if err != nil {
		w.t.Fatal(err)
	}
	forecast, err := Foresee(w.sc.s, w.sc.v, c)
	before := w.sc.s
	if _, res := state.Apply(before, before.Applied+1, c); res.Err != nil {
		if err == nil || res.Err.Error() != err.Error() {
			w.t.Fatalf("%s: %v, refused: %v", line, err, res.Err)
		}
		return
	}
	w.do(line)
	w.do("settle")
	for name, g := range w.sc.s.Groups {
		at := ""
		if g.Grant != nil {
			at = g.Grant.Node
		}
		told, concerned := forecast.Nodes[name]
		was := before.Groups[name].Grant
		switch {
		case concerned && told != at:
			w.t.Fatalf("%s: %s was to be on %q, and is on %q: %+v", line, name, told, at, forecast.Steps)
		case concerned && told == "" && forecast.Waits[name] == "":
			w.t.Fatalf("%s: %s is nowhere, and nobody knows why", line, name)
		case !concerned && (was == nil) != (g.Grant == nil) || !concerned && was != nil && was.Token != g.Grant.Token:
			w.t.Fatalf("%s: %s was to stay: %+v, now %+v", line, name, was, g.Grant)
		}
	}
	if m := c.Move; m != nil && (m.To != "" || m.From != "") {
		g := w.sc.s.Groups[m.Group].Grant
		if come := g != nil && (g.Node == m.To || m.To == "" && g.Node != m.From); come != (err == nil) {
			w.t.Fatalf("%s: came true: %v; foretold: %v", line, come, err)
		}
	}
}
