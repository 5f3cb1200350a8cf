package node

import (
	"strings"
	"testing"

	"github.com/hamgr/hamgr/cluster/api"
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
			[]string{"fencing of beta fails, 2 so far: no answer"}, "waits"},
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

// TestDeviceProblemsOfThoseWhoAreThere: gamma could fence beta, alpha cannot; when gamma is gone, nobody can.
func TestDeviceProblemsOfThoseWhoAreThere(t *testing.T) {
	beta := api.NodeStatus{Name: "beta"}
	beta.Fencing.Health = []api.DeviceHealth{
		{Node: "beta", Level: 1, Device: "bmc", ReadBy: "alpha", Trouble: "unreachable"},
		{Node: "beta", Level: 1, Device: "bmc", ReadBy: "gamma", OK: true},
	}
	for name, c := range map[string]struct {
		there          map[string]bool
		alarms, warned int
	}{
		"both are there": {map[string]bool{"alpha": true, "gamma": true}, 0, 1},
		"gamma is gone":  {map[string]bool{"alpha": true}, 1, 0},
		"alpha is gone":  {map[string]bool{"gamma": true}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var alarms, warned int
			deviceProblems(beta, c.there, func(string, string) { alarms++ }, func(string, string) { warned++ })
			if alarms != c.alarms || warned != c.warned {
				t.Errorf("%d alarms, %d warnings", alarms, warned)
			}
		})
	}
}
