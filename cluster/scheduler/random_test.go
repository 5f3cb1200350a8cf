package scheduler

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hamgr/hamgr/cluster/state"
)

// world is a cluster under random faults, with a time of its own that no coordinator sees.
type world struct {
	t     *rapid.T
	sc    *scenario
	time  int64
	boots map[string]int
	shots map[uint64]shotAt // first shots of the cluster's operations that no operator took over
}

type shotAt struct {
	node string
	at   int64
}

var members = []string{"alpha", "beta", "gamma", "delta", "epsilon"}

// TestPlansKeepTheRules lets random things happen, carries out what is planned, and holds each action against the
// rules, counted by the world's own time.
func TestPlansKeepTheRules(t *testing.T) {
	shot, granted, on := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, boots: map[string]int{}, shots: map[uint64]shotAt{}, sc: &scenario{s: &state.State{}, v: View{
			Self: "alpha", Nodes: map[string]Liveness{}, Busy: map[uint64]bool{}, Settled: true, FenceAction: state.FenceReboot,
			Policy: Policy{StormWindow: 60_000, QuarantineAfter: 2, QuarantineWindow: 300_000, QuarantineTime: 100_000},
		}}}
		w.do("configure alpha beta gamma delta epsilon !one !two a: b: c:beta d:gamma")
		for _, n := range append(members, "one", "two") {
			w.join(n)
		}
		for range rapid.IntRange(10, 80).Draw(t, "steps") {
			w.happen()
			w.settle()
		}
		for _, o := range w.sc.s.Operations {
			shot += o.Attempts
			if o.Phase == state.Done && o.Proof != nil && o.Proof.Kind == state.PowerOff && o.Action == state.FenceReboot {
				on++
			}
		}
		granted += int(w.sc.s.LastToken)
	})
	if shot == 0 || granted == 0 || on == 0 {
		t.Errorf("%d shots, %d grants, %d reboots that came to an end: nothing was tested", shot, granted, on)
	}
}

func (w *world) do(line string) { w.try(line, true) }

// try carries out a line of a scenario, which the state may refuse.
func (w *world) try(line string, must bool) {
	before := w.sc.v.Since
	if err := w.sc.do(strings.Fields(line)); err != nil {
		if must {
			w.t.Fatalf("%s: %v", line, err)
		}
		w.sc.v.Since = before // nothing was committed
	}
}

func (w *world) join(node string) {
	w.boots[node]++
	w.do(fmt.Sprintf("join %s %s%d", node, node, w.boots[node]))
}

func (w *world) pick(label string, from ...string) string {
	return rapid.SampledFrom(from).Draw(w.t, label)
}

// happen is one thing that the cluster did not decide.
func (w *world) happen() {
	node := w.pick("node", members...)
	n := w.sc.s.Nodes[node]
	switch w.pick("event", "gone", "gone", "mute", "back", "reboot", "time", "time", "time", "coordinator", "executors", "off", "fence", "rehearse", "standby", "confirm", "outcome", "outcome", "outcome") {
	case "gone":
		w.sc.v.Nodes[node] = Liveness{Gone: "silent"}
	case "mute":
		w.sc.v.Nodes[node] = Liveness{}
	case "back":
		if n.Up {
			w.sc.v.Nodes[node] = Liveness{Reachable: true, Boot: n.Boot}
		}
	case "reboot":
		w.join(node)
	case "time":
		ms := rapid.Int64Range(1, 50_000).Draw(w.t, "ms")
		w.time, w.sc.v.Since = w.time+ms, w.sc.v.Since+ms
	case "coordinator":
		w.sc.v.Self, w.sc.v.Since, w.sc.v.Busy = w.pick("self", "one", node), 0, map[uint64]bool{}
	case "executors":
		w.sc.v.Executors = map[string][]string{node: {node, w.pick("first", members...), w.pick("second", members...)}}
	case "off":
		w.try(fmt.Sprintf("fence %s %s", node, w.pick("action", "off", "reboot", "on")), false)
	case "fence":
		w.try("order "+node, false)
	case "rehearse":
		w.try("rehearse "+node, false)
	case "standby":
		w.try(fmt.Sprintf("standby %s %s", node, w.pick("on", "on", "off")), false)
	case "confirm":
		w.try("confirm "+node, false)
	case "outcome":
		if n.Op != 0 && w.sc.s.Operations[n.Op].Phase != state.Ordered {
			w.try(w.pick("outcome", "missed ", "proven ", "on ")+node, false)
		}
	}
	for id := range w.shots {
		if o := w.sc.s.Operations[id]; o == nil || o.By != state.ByCluster {
			delete(w.shots, id)
		}
	}
}

// settle carries out what is planned until nothing new is.
func (w *world) settle() {
	for range 64 {
		committed := false
		for _, a := range Plan(w.sc.s, w.sc.v) {
			w.judge(a)
			switch {
			case a.Commit != nil:
				if err := w.sc.commit(*a.Commit); err != nil {
					w.t.Fatalf("%s (%s): %v", verb(a), a.Reason, err)
				}
				committed = true
			case a.Execute != nil:
				if rapid.Bool().Draw(w.t, "busy") {
					w.sc.v.Busy[a.Execute.ID] = true
				}
			}
		}
		if !committed {
			return
		}
	}
	w.t.Fatalf("the plan does not come to an end: %s", w.sc.plan())
}

// judge holds an action against the rules.
func (w *world) judge(a Action) {
	s := w.sc.s
	switch c := a.Commit; {
	case c == nil && a.Execute != nil:
		w.judgeExecution(a.Execute)
	case c == nil:
	case c.Shoot != nil:
		o := s.Operations[c.Shoot.Op]
		if c.Shoot.Executor == o.Node {
			w.t.Fatalf("%s is its own executor", o.Node)
		}
		if o.Phase == state.Ordered && o.By == state.ByCluster {
			w.shots[o.ID] = shotAt{o.Node, w.time}
			w.judgeStorm()
		}
	case c.Grant != nil:
		n := s.Nodes[c.Grant.Node]
		if _, why := Quarantine(n, Now(s, w.sc.v), w.sc.v.Policy); n.Standby || why != "" || !w.sc.v.Nodes[n.Name].Reachable {
			w.t.Fatalf("%s is granted to %s: %+v, %s", c.Grant.Group, n.Name, n, why)
		}
	case c.Tick != nil && w.sc.v.Since < tickAfter:
		w.t.Fatalf("a tick after %d ms", w.sc.v.Since)
	}
}

func (w *world) judgeExecution(o *state.Operation) {
	if o.Executor == o.Node || o.Attempts == 0 {
		w.t.Fatalf("executed by %q: %+v", o.Executor, o)
	}
	_, why := Quarantine(w.sc.s.Nodes[o.Node], Now(w.sc.s, w.sc.v), w.sc.v.Policy)
	others := 0
	for name, live := range w.sc.v.Nodes {
		others += count(live.Reachable && name != o.Node)
	}
	// A voter that the majority of 7 may need is switched on all the same.
	if spared := others > 4; why != "" && spared && o.PowersOn() && o.By == state.ByCluster {
		w.t.Fatalf("%s is switched on: %s", o.Node, why)
	}
}

// judgeStorm counts whom the cluster began to fence within the window.
func (w *world) judgeStorm() {
	nodes := map[string]bool{}
	for _, s := range w.shots {
		if w.time-s.at < w.sc.v.Policy.StormWindow {
			nodes[s.node] = true
		}
	}
	if len(nodes) > len(members)/2 {
		w.t.Fatalf("a storm: %v", w.shots)
	}
}
