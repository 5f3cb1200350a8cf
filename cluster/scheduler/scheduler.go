// Package scheduler decides what the cluster should do next. It is pure: from the
// replicated state and what the coordinator observes it gives the actions that are
// due, each with its reason in words. It executes nothing and remembers nothing; the same
// input gives the same plan.
package scheduler

import (
	"fmt"
	"slices"
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
	return handOverLast(plan)
}

// handOverLast drops the hand-over while there is anything else to do in the office: who comes next may be
// a target too.
func handOverLast(plan []Action) []Action {
	rest := slices.DeleteFunc(slices.Clone(plan), func(a Action) bool { return a.HandOver })
	if len(rest) > 0 {
		return rest
	}
	return plan[:min(1, len(plan))]
}

func planNode(s *state.State, v View, n *state.Node) []Action {
	reason := needsFencing(s, v, n)
	// A power-on that cannot be completed must not keep the node from being fenced.
	if o := s.OpenOperation(n.Name); o != nil && (o.Action != state.FenceOn || reason == "") {
		return planOperation(s, v, n, o)
	}
	if reason == "" {
		return nil
	}
	return []Action{{Reason: reason, Commit: &state.Command{Order: &state.Order{
		Node: n.Name, Boot: n.Boot, Action: v.FenceAction, Reason: reason, By: state.ByCluster,
	}}}}
}

// needsFencing says why the node has to be fenced; empty if it need not. A failed node that holds nothing
// is left alone: a shot would prove nothing that is needed.
func needsFencing(s *state.State, v View, n *state.Node) string {
	if n.Unclean != "" {
		return n.Unclean
	}
	gone, held := v.Nodes[n.Name].Gone, s.Holds(n.Name)
	if !n.Up || gone == "" || n.Name == v.Self || len(held) == 0 {
		return ""
	}
	return fmt.Sprintf("%s; it may hold %s", gone, strings.Join(held, ", "))
}

func planOperation(s *state.State, v View, n *state.Node, o *state.Operation) []Action {
	live := v.Nodes[n.Name]
	if o.Phase == state.Ordered && !o.Lasting && live.Gone == "" {
		if !live.Reachable || live.Boot != o.Boot {
			return nil // heard, but not well: neither reason to shoot nor to trust it again
		}
		reason := fmt.Sprintf("%s answers again in the same boot, before any command", n.Name)
		return []Action{{Reason: reason, Commit: &state.Command{CallOff: &state.CallOff{Op: o.ID, Reason: reason}}}}
	}
	if v.Busy[o.ID] || Obstacle(s, v, o) != "" {
		return nil
	}
	if o.Node == v.Self && o.Phase != state.ProvenOff {
		if working(s, v) {
			return nil
		}
		return []Action{{Reason: fmt.Sprintf("operation %d is against this node", o.ID), HandOver: true}}
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

// working reports whether this coordinator is at an operation that has not failed so far: it
// keeps the office until that is done.
func working(s *state.State, v View) bool {
	for id := range v.Busy {
		if o := s.Operations[id]; o != nil && o.Open() && o.Failures == 0 {
			return true
		}
	}
	return false
}

// Obstacle says why an open operation must not cut power now; empty if nothing is in the
// way, or if it is not about to.
func Obstacle(s *state.State, v View, o *state.Operation) string {
	if o.Phase == state.ProvenOff || o.Action == state.FenceOn {
		return ""
	}
	if live := v.Nodes[o.Node]; live.Reachable && live.Boot != o.Boot {
		return fmt.Sprintf("%s answers in another boot than %s: its join will end the operation", o.Node, o.Boot)
	}
	return Majority(s, v, o.Node, o.ID)
}

// Majority says, as an obstacle, that the node's vote is needed: without it nobody could commit that the node is
// off, give its groups away, or switch it on again. Empty if there are enough others. Those that are to
// be shot by an operation before op do not count: of several, the earlier one goes first.
func Majority(s *state.State, v View, without string, op uint64) string {
	others := 0
	var first []string
	for _, name := range s.NodeNames() {
		if name == without || !v.Nodes[name].Reachable {
			continue
		}
		if o := s.OpenOperation(name); o != nil && o.ID < op && o.Action != state.FenceOn {
			first = append(first, fmt.Sprintf("%s is to be fenced first (operation %d)", name, o.ID))
			continue
		}
		others++
	}
	if need := len(s.Nodes)/2 + 1; others < need {
		first = append([]string{fmt.Sprintf("without %s only %d of %d voters would be left, %d are needed", without, others, len(s.Nodes), need)}, first...)
		return strings.Join(first, "; ")
	}
	return ""
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
