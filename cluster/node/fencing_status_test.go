package node

import (
	"strings"
	"testing"

	"github.com/hamgr/hamgr/cluster/state"
)

func TestOperationProblem(t *testing.T) {
	waits := obstacle{Why: "without beta only 1 of 3 voters would be left", Cure: "bring them back"}
	for name, c := range map[string]struct {
		op    state.Operation
		waits obstacle
		want  []string // nil for no problem
		not   string
	}{
		"under way": {op: state.Operation{Phase: state.Shooting, Action: state.FenceReboot}},
		"waits":     {state.Operation{Phase: state.Ordered, Action: state.FenceReboot}, waits, []string{"fencing of beta waits: without beta"}, ""},
		"fails": {state.Operation{Phase: state.Shooting, Action: state.FenceReboot, Failures: 2, Error: "no answer"}, obstacle{},
			[]string{"fencing of beta fails (2 times): no answer"}, "waits"},
		"failed, and waits": {state.Operation{Phase: state.Shooting, Action: state.FenceReboot, Failures: 2, Error: "no answer"}, waits,
			[]string{"no answer", "now it waits: without beta"}, ""},
		"proven after failures": {op: state.Operation{Phase: state.ProvenOff, Action: state.FenceReboot, Failures: 2}},
		"not on again": {state.Operation{Phase: state.ProvenOff, Action: state.FenceReboot, Failures: 1, Error: "no answer"}, obstacle{},
			[]string{"beta is fenced, but does not come on again: no answer"}, ""},
		"power on alone fails": {state.Operation{Phase: state.Shooting, Action: state.FenceOn, Failures: 1, Error: "no answer"}, obstacle{},
			[]string{"beta was not switched on so far: no answer"}, "fencing of beta fails"},
	} {
		t.Run(name, func(t *testing.T) {
			c.op.Node = "beta"
			text, _ := operationProblem(&c.op, c.waits)
			if c.want == nil && text != "" {
				t.Errorf("%q, though nothing is wrong", text)
			}
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q does not say %q", text, want)
				}
			}
			if c.not != "" && strings.Contains(text, c.not) {
				t.Errorf("%q says %q", text, c.not)
			}
		})
	}
}
