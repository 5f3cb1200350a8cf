package scheduler

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/cluster/state"
)

var update = flag.Bool("update", false, "rewrite the expected plans; commit them only when each change is understood")

// TestScenarios runs testdata/*.txt. A file is blocks of lines; a block changes the state and the
// view, and after its last line stands what that asks for: "----" the plan that is then due, "foresee COMMAND" what would
// come of a command, "refuse COMMAND" why the state refuses it, "where" who holds what.
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
	conf  state.Configure // the last one
}

func replay(text string) (string, error) {
	sc := &scenario{s: &state.State{}, v: View{
		Self: "alpha", Nodes: map[string]Liveness{}, Busy: map[uint64]bool{}, Settled: true, FenceAction: state.FenceReboot, Minute: 12 * 60,
	}}
	var out strings.Builder
	skip := false
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case line == "":
			skip = false
		case skip:
			continue
		case line == "----" || line == "where" || strings.HasPrefix(line, "foresee ") || strings.HasPrefix(line, "refuse "):
			fmt.Fprintln(&out, line)
			out.WriteString(sc.tell(strings.Fields(line)))
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

func (sc *scenario) tell(w []string) string {
	switch w[0] {
	case "foresee":
		return sc.foresee(w[1], w[2:])
	case "refuse":
		c, err := sc.command(w[1], w[2:])
		if err == nil {
			_, res := state.Apply(sc.s, sc.index+1, c)
			err = res.Err
		}
		return fmt.Sprintln(err)
	case "where":
		return sc.where()
	}
	return sc.plan()
}

func (sc *scenario) foresee(word string, w []string) string {
	c, err := sc.command(word, w)
	if err != nil {
		return fmt.Sprintln(err)
	}
	var b strings.Builder
	f, err := Foresee(sc.s, sc.v, c)
	for _, s := range f.Steps {
		verb := "start"
		if s.Stop {
			verb = "stop"
		}
		fmt.Fprintf(&b, "%s %s on %s: %s\n", verb, s.Group, s.Node, s.Reason)
	}
	for _, g := range slices.Sorted(maps.Keys(f.Nodes)) {
		if f.Nodes[g] != "" && f.Waits[g] != "" {
			fmt.Fprintf(&b, "then %s is on %s, and %s\n", g, f.Nodes[g], f.Waits[g])
		} else if f.Nodes[g] != "" {
			fmt.Fprintf(&b, "then %s is on %s\n", g, f.Nodes[g])
		} else {
			fmt.Fprintf(&b, "then %s waits: %s\n", g, f.Waits[g])
		}
	}
	if err != nil {
		fmt.Fprintln(&b, err)
	} else if !f.Changed {
		fmt.Fprintln(&b, "all is so already")
	}
	return b.String()
}

func (sc *scenario) where() string {
	var b strings.Builder
	for _, name := range sc.s.GroupNames() {
		if gr := sc.s.Groups[name].Grant; gr != nil {
			fmt.Fprintf(&b, "%s %s on %s with token %d\n", name, gr.Phase, gr.Node, gr.Token)
		} else {
			fmt.Fprintf(&b, "%s nowhere\n", name)
		}
	}
	return b.String()
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
	case a.Commit.Aim != nil && a.Commit.Aim.Node == "":
		return fmt.Sprintf("give up the way of %s", a.Commit.Aim.Group)
	case a.Commit.Aim != nil:
		return fmt.Sprintf("aim %s at %s", a.Commit.Aim.Group, a.Commit.Aim.Node)
	case a.Commit.Expire != nil:
		return fmt.Sprintf("expire failure %d of %s on %s", a.Commit.Expire.Count, a.Commit.Expire.Group, a.Commit.Expire.Node)
	}
	return "?"
}
