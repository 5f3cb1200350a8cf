// Package scheduler decides what the cluster should do next. It is pure: from the
// replicated state and what the coordinator observes it gives the actions that are
// due, each with its reason in words. It executes nothing and remembers nothing; the same
// input gives the same plan.
package scheduler

import (
	"fmt"
	"strings"

	"github.com/hamgr/hamgr/cluster/state"
)

// Liveness is what the coordinator observes of a node at this moment.
type Liveness struct {
	// Reachable says that the node answers and may be given work.
	Reachable bool
	// Boot is the boot that it answers in; empty if it does not.
	Boot string
	// Gone says, in words, why the node counts as failed; empty while it does not.
	Gone string
}

// View is what the coordinator observes, besides the replicated state.
type View struct {
	Self  string // the coordinator
	Nodes map[string]Liveness
	// Busy names the operations that this coordinator executes right now, or that
	// wait for their next attempt.
	Busy map[uint64]bool
	// Settled says that nodes which start together with the cluster have had
	// the time to join: the first placement waits for better nodes until then.
	Settled bool
	// FenceAction is what is ordered against a failed node: FenceReboot or FenceOff.
	FenceAction state.FenceAction
}

// Action is one thing that is due. Exactly one of Commit, Execute and HandOver is set.
type Action struct {
	Reason string
	// Commit is a command for the log.
	Commit *state.Command
	// Execute is a committed operation that this coordinator is to carry out now: off, or
	// power on where it is proven off or was ordered on.
	Execute *state.Operation
	// HandOver asks for another coordinator, since this one is the target.
	HandOver bool
}

// Plan gives the actions that are due, fencing first.
func Plan(s *state.State, v View) []Action {
	var plan []Action
	for _, name := range s.NodeNames() {
		plan = append(plan, planNode(s, v, s.Nodes[name])...)
	}
	load := map[string]int{}
	for _, g := range s.Groups {
		if g.Grant != nil {
			load[g.Grant.Node]++
		}
	}
	for _, name := range s.GroupNames() {
		if a, ok := planGroup(s, v, s.Groups[name], load); ok {
			plan = append(plan, a)
		}
	}
	return plan
}

func planNode(s *state.State, v View, n *state.Node) []Action {
	if o := s.OpenOperation(n.Name); o != nil {
		return planOperation(v, n, o)
	}
	var reason string
	switch {
	case n.Unclean != "":
		reason = n.Unclean
	case n.Up && v.Nodes[n.Name].Gone != "" && n.Name != v.Self:
		held := s.Holds(n.Name)
		if len(held) == 0 {
			return nil // nothing to take over: a shot would prove nothing that is needed
		}
		reason = fmt.Sprintf("%s; it may hold %s", v.Nodes[n.Name].Gone, strings.Join(held, ", "))
	default:
		return nil
	}
	return []Action{{Reason: reason, Commit: &state.Command{Order: &state.Order{
		Node: n.Name, Boot: n.Boot, Action: v.FenceAction, Reason: reason, By: state.ByCluster,
	}}}}
}

func planOperation(v View, n *state.Node, o *state.Operation) []Action {
	if o.Phase == state.Ordered && calledOff(v, n, o) {
		reason := fmt.Sprintf("%s answers again in the same boot, before any command", n.Name)
		return []Action{{Reason: reason, Commit: &state.Command{CallOff: &state.CallOff{Op: o.ID, Reason: reason}}}}
	}
	if o.Node == v.Self && o.Phase != state.ProvenOff {
		return []Action{{Reason: fmt.Sprintf("operation %d is against this node", o.ID), HandOver: true}}
	}
	live := v.Nodes[n.Name]
	if o.Phase != state.ProvenOff && live.Reachable && live.Boot != o.Boot {
		return nil // a newer boot speaks: its join will end the operation, the verdict is not about it
	}
	if v.Busy[o.ID] {
		return nil
	}
	if o.Phase == state.Ordered || o.Executor != v.Self {
		reason := fmt.Sprintf("operation %d (%s of %s) is due: %s", o.ID, o.Action, o.Node, o.Reason)
		return []Action{{Reason: reason, Commit: &state.Command{Shoot: &state.Shoot{Op: o.ID, Executor: v.Self}}}}
	}
	reason := fmt.Sprintf("operation %d is to prove %s off", o.ID, o.Node)
	if o.Phase == state.ProvenOff || o.Action == state.FenceOn {
		reason = fmt.Sprintf("operation %d is to power %s on", o.ID, o.Node)
	}
	return []Action{{Reason: reason, Execute: o}}
}

// calledOff says whether the cause of the order is gone.
func calledOff(v View, n *state.Node, o *state.Operation) bool {
	live := v.Nodes[n.Name]
	return !o.Lasting && live.Reachable && live.Gone == "" && live.Boot == o.Boot
}

func planGroup(s *state.State, v View, g *state.Group, load map[string]int) (Action, bool) {
	if gr := g.Grant; gr != nil {
		if !g.Removed || gr.Phase == state.Stopping {
			return Action{}, false
		}
		reason := "the group is no longer configured"
		return Action{Reason: reason, Commit: &state.Command{Stop: &state.StopGroup{Group: g.Name, Token: gr.Token, Reason: reason}}}, true
	}
	node, reason := place(s, v, g, load)
	if node == "" {
		return Action{}, false
	}
	load[node]++
	return Action{Reason: reason, Commit: &state.Command{Grant: &state.GrantGroup{
		Group: g.Name, Node: node, Boot: s.Nodes[node].Boot, Reason: reason,
	}}}, true
}
