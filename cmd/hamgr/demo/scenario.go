package demo

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Scenario is one way in which a group comes to another node.
type Scenario struct {
	Name string
	Doc  string

	// coordinates asks for a holder that coordinates the cluster too, or for one that does not.
	coordinates bool
	// signal is what befalls every process of the node at once.
	signal syscall.Signal
	// what happened, for the timeline: %d processes.
	what string
	// wakes: the old machine is told to go on after the takeover. Nothing of it may be left to.
	wakes bool
	// moves: nothing befalls the node; an operator moves the group from it.
	moves bool
	// survivor: one writer of the old node is beyond the reach of its power switch, and
	// goes on with its old token.
	survivor bool
}

// Scenarios are all that can be shown, the default first.
var Scenarios = []Scenario{
	{
		Name: "freeze", Doc: "the whole node stands still, and is told to go on after the takeover",
		signal: syscall.SIGSTOP, what: "all %d processes stopped (SIGSTOP)", wakes: true,
	},
	{
		Name: "crash", Doc: "the node's processes die while its power stays on",
		signal: syscall.SIGKILL, what: "all %d processes killed (SIGKILL), power stays on",
	},
	{
		Name: "coordinator", Doc: "the node that holds the group and coordinates the cluster dies",
		coordinates: true,
		signal:      syscall.SIGKILL, what: "all %d processes killed (SIGKILL), power stays on",
	},
	{
		Name: "stale", Doc: "an old writer survives the takeover, and the token guard refuses it",
		signal: syscall.SIGSTOP, what: "all %d processes stopped (SIGSTOP), but one writer lives on elsewhere", wakes: true, survivor: true,
	},
	{Name: "move", Doc: "nothing fails: an operator moves the group, which is started only when it is reported stopped", moves: true},
}

// ScenarioNames lists the scenarios for help and errors.
func ScenarioNames() []string {
	var names []string
	for _, s := range Scenarios {
		names = append(names, s.Name)
	}
	return names
}

// FindScenario gives the scenario of that name.
func FindScenario(name string) (Scenario, error) {
	i := slices.IndexFunc(Scenarios, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, fmt.Errorf("no scenario is called %q; choose one of %s", name, strings.Join(ScenarioNames(), ", "))
	}
	return Scenarios[i], nil
}

// prefer is the order of nodes for the group. The cluster is formed by its first node, which
// then coordinates, unless something delays it.
func (s Scenario) prefer() []string {
	if s.coordinates {
		return []string{"alpha", "beta", "gamma"}
	}
	return []string{"beta", "gamma", "alpha"}
}

// target is where an operator moves the group that a node holds.
func (s Scenario) target(holder string) string {
	for _, n := range s.prefer() {
		if n != holder {
			return n
		}
	}
	return ""
}

// within bounds everything that follows the fault, for a machine that is many times slower than
// any that this was meant for.
func within(detection time.Duration) time.Duration { return 10*detection + 20*time.Second }
