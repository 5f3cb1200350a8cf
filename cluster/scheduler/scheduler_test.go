package scheduler

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/cluster/state"
)

var update = flag.Bool("update", false, "rewrite the expected plans; commit them only when each change is understood")

// TestScenarios runs testdata/*.txt. A file is blocks of lines; a block changes the state and the
// view, and after its line "----" stands the plan that is then due.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := replay(string(b))
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(b) {
				t.Errorf("the plans differ; got:\n%s", got)
			}
		})
	}
}

// scenario is a cluster in the making.
type scenario struct {
	s     *state.State
	v     View
	index uint64
}

func replay(text string) (string, error) {
	sc := &scenario{s: &state.State{}, v: View{
		Self: "alpha", Nodes: map[string]Liveness{}, Busy: map[uint64]bool{}, Settled: true, FenceAction: state.FenceReboot,
	}}
	var out strings.Builder
	skip := false
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case line == "":
			skip = false
		case skip:
			continue
		case line == "----":
			fmt.Fprintln(&out, line)
			out.WriteString(sc.plan())
			skip = true
			continue
		case !strings.HasPrefix(line, "#"):
			if err := sc.do(strings.Fields(line)); err != nil {
				return "", fmt.Errorf("%s: %w", line, err)
			}
		}
		fmt.Fprintln(&out, line)
	}
	return out.String(), nil
}

// plan gives the plan in words, and why groups wait.
func (sc *scenario) plan() string {
	var b strings.Builder
	for _, a := range Plan(sc.s, sc.v) {
		fmt.Fprintf(&b, "%s: %s\n", verb(a), a.Reason)
	}
	waiting := Waiting(sc.s, sc.v)
	for _, g := range sc.s.GroupNames() {
		if why := waiting[g]; why != "" {
			fmt.Fprintf(&b, "(%s waits: %s)\n", g, why)
		}
	}
	if b.Len() == 0 {
		fmt.Fprintln(&b, "nothing")
	}
	for _, id := range slices.Sorted(maps.Keys(sc.s.Operations)) {
		if why := Brake(sc.s, sc.v, sc.s.Operations[id]); why != "" {
			fmt.Fprintf(&b, "(operation %d waits: %s)\n", id, why)
		}
	}
	for _, n := range sc.s.NodeNames() {
		if _, why := Quarantine(sc.s.Nodes[n], Now(sc.s, sc.v), sc.v.Policy); why != "" {
			fmt.Fprintf(&b, "(%s is %s)\n", n, why)
		}
	}
	if ms := Next(sc.s, sc.v); ms > 0 {
		fmt.Fprintf(&b, "(next look in %d ms)\n", ms)
	}
	return b.String()
}

func verb(a Action) string {
	switch {
	case a.HandOver:
		return "hand over"
	case a.Execute != nil:
		return fmt.Sprintf("execute %d", a.Execute.ID)
	case a.Commit.Order != nil:
		return fmt.Sprintf("order %s of %s in boot %s", a.Commit.Order.Action, a.Commit.Order.Node, a.Commit.Order.Boot)
	case a.Commit.CallOff != nil:
		return fmt.Sprintf("call off %d", a.Commit.CallOff.Op)
	case a.Commit.Shoot != nil:
		return fmt.Sprintf("shoot %d as %s", a.Commit.Shoot.Op, a.Commit.Shoot.Executor)
	case a.Commit.Grant != nil:
		return fmt.Sprintf("grant %s to %s in boot %s", a.Commit.Grant.Group, a.Commit.Grant.Node, a.Commit.Grant.Boot)
	case a.Commit.PoweredOn != nil:
		return fmt.Sprintf("count %d as powered on", a.Commit.PoweredOn.Op)
	case a.Commit.Tick != nil:
		return "tick"
	case a.Commit.Stop != nil:
		return fmt.Sprintf("stop %s of token %d", a.Commit.Stop.Group, a.Commit.Stop.Token)
	}
	return "?"
}

// do carries out one line: a change of the view, or a command.
func (sc *scenario) do(w []string) error {
	arg := func(i int) string {
		if i < len(w) {
			return w[i]
		}
		return ""
	}
	switch w[0] {
	case "live": // NODE BOOT
		sc.v.Nodes[arg(1)] = Liveness{Reachable: true, Boot: arg(2)}
	case "mute": // NODE: silent, but not yet failed
		sc.v.Nodes[arg(1)] = Liveness{Boot: sc.v.Nodes[arg(1)].Boot}
	case "gone": // NODE WHY
		sc.v.Nodes[arg(1)] = Liveness{Gone: strings.Join(w[2:], " ")}
	case "self":
		sc.v.Self = arg(1)
	case "starting":
		sc.v.Settled = false
	case "settled":
		sc.v.Settled = true
	case "action":
		sc.v.FenceAction = state.FenceAction(arg(1))
	case "policy": // storm SECONDS | quarantine AFTER WINDOW TIME, in seconds
		return sc.policy(arg(1), w[2:])
	case "later": // SECONDS
		n, err := strconv.ParseInt(arg(1), 10, 64)
		sc.v.Since += n * 1000
		return err
	case "executors": // TARGET NODE..., or nothing
		if sc.v.Executors = nil; arg(1) == "" {
			return nil
		}
		sc.v.Executors = map[string][]string{arg(1): w[2:]}
	case "fenced": // NODE BOOT: joins, is lost with what it holds, and is proven off
		return sc.fenced(arg(1), arg(2))
	case "busy":
		sc.v.Busy[sc.op(arg(1))] = true
	case "free":
		delete(sc.v.Busy, sc.op(arg(1)))
	default:
		return sc.apply(w[0], w[1:])
	}
	return nil
}

func (sc *scenario) apply(word string, w []string) error {
	for len(w) < 4 {
		w = append(w, "")
	}
	var c state.Command
	switch word {
	case "configure": // node names (! marks a witness), then groups as group:prefer,prefer
		c.Configure = &state.Configure{Cluster: "test", Digest: "x"}
		for _, f := range w {
			name, prefer, isGroup := strings.Cut(f, ":")
			switch {
			case f == "":
			case isGroup:
				g := state.ConfigGroup{Name: name, Rules: state.Rules{Weight: 1}}
				if prefer != "" {
					g.Prefer = strings.Split(prefer, ",")
				}
				c.Configure.Groups = append(c.Configure.Groups, g)
			case strings.HasPrefix(f, "!"):
				c.Configure.Nodes = append(c.Configure.Nodes, state.ConfigNode{Name: f[1:], Role: state.Witness})
			default:
				c.Configure.Nodes = append(c.Configure.Nodes, state.ConfigNode{Name: f, Role: state.Member})
			}
		}
	case "join": // NODE BOOT [GROUP WHAT]
		c.Join = &state.Join{Node: w[0], Boot: w[1]}
		if w[2] != "" {
			c.Join.Found = map[string]string{w[2]: w[3]}
		}
		sc.v.Nodes[w[0]] = Liveness{Reachable: true, Boot: w[1]}
	case "leave":
		c.Leave = &state.Leave{Node: w[0], Boot: sc.s.Nodes[w[0]].Boot}
	case "fence": // NODE ACTION by an operator
		c.Order = &state.Order{Node: w[0], Boot: sc.s.Nodes[w[0]].Boot, Action: state.FenceAction(w[1]), Reason: "by hand", By: "root"}
	case "order": // NODE, by the cluster
		c.Order = &state.Order{Node: w[0], Boot: sc.s.Nodes[w[0]].Boot, Action: sc.v.FenceAction, Reason: "silent", By: state.ByCluster}
	case "rehearse": // NODE
		c.Order = &state.Order{Node: w[0], Boot: sc.s.Nodes[w[0]].Boot, Action: state.FenceRehearse, Reason: "monthly", By: "root", Level: 1}
	case "standby": // NODE on|off
		c.Standby = &state.Standby{Node: w[0], On: w[1] == "on", By: "root"}
	case "confirm": // NODE
		c.Confirm = &state.Confirm{Node: w[0], Boot: sc.s.Nodes[w[0]].Boot, Reason: "pulled its plug", By: "root"}
	case "shot": // NODE EXECUTOR
		c.Shoot = &state.Shoot{Op: sc.op(w[0]), Executor: w[1]}
	case "missed":
		c.ShotFailed = &state.ShotFailed{Op: sc.op(w[0]), Executor: sc.s.Operations[sc.op(w[0])].Executor, Error: "no answer"}
	case "proven":
		c.ShotProven = &state.ShotProven{Op: sc.op(w[0]), Executor: sc.s.Operations[sc.op(w[0])].Executor, Evidence: []string{"read off twice"}}
	case "on":
		c.PoweredOn = &state.PoweredOn{Op: sc.op(w[0])}
	case "started":
		c.Started = sc.report(w[0])
	case "stopped":
		c.Stopped = sc.report(w[0])
	case "failed":
		c.Failed = sc.report(w[0])
	case "stopfailed":
		c.StopFailed = sc.report(w[0])
	case "clear":
		c.Clear = &state.Clear{Group: w[0]}
	case "commit": // everything that is planned and committable
		for _, a := range Plan(sc.s, sc.v) {
			if a.Commit != nil {
				if err := sc.commit(*a.Commit); err != nil {
					return err
				}
			}
		}
		return nil
	default:
		return fmt.Errorf("unknown word %q", word)
	}
	return sc.commit(c)
}

func (sc *scenario) commit(c state.Command) error {
	sc.index++
	c.Elapsed, sc.v.Since = sc.v.Since, 0
	next, res := state.Apply(sc.s, sc.index, c)
	if res.Err != nil {
		return res.Err
	}
	if err := state.CheckStep(sc.s, next); err != nil {
		return err
	}
	sc.s = next
	return state.Check(next)
}

func (sc *scenario) policy(rule string, args []string) error {
	var n []int64
	for _, a := range args {
		i, err := strconv.ParseInt(a, 10, 64)
		if err != nil {
			return err
		}
		n = append(n, i)
	}
	p := &sc.v.Policy
	switch {
	case rule == "storm" && len(n) == 1:
		p.StormWindow = n[0] * 1000
	case rule == "quarantine" && len(n) == 3:
		p.QuarantineAfter, p.QuarantineWindow, p.QuarantineTime = int(n[0]), n[1]*1000, n[2]*1000
	default:
		return fmt.Errorf("policy %s %v", rule, n)
	}
	return nil
}

func (sc *scenario) fenced(node, boot string) error {
	for _, line := range []string{"join NODE BOOT", "order NODE", "shot NODE gamma", "proven NODE"} {
		line = strings.NewReplacer("NODE", node, "BOOT", boot).Replace(line)
		if err := sc.do(strings.Fields(line)); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	sc.v.Nodes[node] = Liveness{Gone: "silent"}
	return nil
}

// op is the number of the open operation against a node.
func (sc *scenario) op(node string) uint64 {
	if n := sc.s.Nodes[node]; n != nil {
		return n.Op
	}
	return 0
}

func (sc *scenario) report(group string) *state.Report {
	gr := sc.s.Groups[group].Grant
	return &state.Report{Group: group, Token: gr.Token, Node: gr.Node, Boot: gr.Boot, Resource: "app", Error: "exit status 1"}
}
