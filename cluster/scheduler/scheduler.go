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
	b := look(s, v)
	for _, name := range s.NodeNames() {
		plan = append(plan, b.planNode(s.Nodes[name])...)
	}
	plan = append(plan, b.planGroups()...)
	if !slices.ContainsFunc(plan, func(a Action) bool { return a.Commit != nil }) { // every commit carries the clock on
		plan = append(plan, planTick(s, v)...)
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

func (b *board) planNode(n *state.Node) []Action {
	s, v := b.s, b.v
	reason := b.needsFencing(n)
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
// is left alone: a shot would prove nothing that is needed. So is one in maintenance, and one that holds nothing but
// groups in maintenance.
func (b *board) needsFencing(n *state.Node) string {
	gone, held := b.v.Nodes[n.Name].Gone, b.holds[n.Name]
	watched := slices.ContainsFunc(held, func(g string) bool { return !b.s.Groups[g].Maintenance })
	switch {
	case b.s.Maintained(n.Name) != "":
		return ""
	case n.Unclean != "":
		return n.Unclean
	case !n.Up || gone == "" || n.Name == b.v.Self || !watched:
		return ""
	case away(n, b.now) > 0:
		return ""
	}
	return fmt.Sprintf("%s; it may hold %s", gone, strings.Join(held, ", "))
}

// away is for how many ms more a node's daemon may be away, as it said.
func away(n *state.Node, now int64) int64 {
	if n.Away == nil {
		return 0
	}
	return max(0, n.Away.Until-now)
}

func planOperation(s *state.State, v View, n *state.Node, o *state.Operation) []Action {
	if reason := ended(s, v, o); reason != "" {
		return []Action{{Reason: reason, Commit: &state.Command{CallOff: &state.CallOff{Op: o.ID, Reason: reason}}}}
	}
	if reason := onAnyway(v, o); reason != "" {
		return []Action{{Reason: reason, Commit: &state.Command{PoweredOn: &state.PoweredOn{Op: o.ID, Reason: reason}}}}
	}
	if unsure(v, o) || v.Busy[o.ID] || Obstacle(s, v, o) != "" || leftOff(s, v, n, o) != "" {
		return nil
	}
	if o.Node == v.Self && o.Phase != state.ProvenOff {
		if working(s, v) {
			return nil
		}
		return []Action{{Reason: fmt.Sprintf("operation %d is against this node", o.ID), HandOver: true}}
	}
	who := executor(s, v, o)
	if who == "" {
		return nil
	}
	if o.Phase == state.Ordered || o.Executor != who {
		reason := fmt.Sprintf("operation %d (%s of %s) is due: %s", o.ID, o.Action, o.Node, o.Reason)
		return []Action{{Reason: reason, Commit: &state.Command{Shoot: &state.Shoot{Op: o.ID, Executor: who}}}}
	}
	reason := fmt.Sprintf("operation %d is to prove %s off", o.ID, o.Node)
	if o.PowersOn() {
		reason = fmt.Sprintf("operation %d is to power %s on", o.ID, o.Node)
	}
	return []Action{{Reason: reason, Execute: o}}
}

// ended says why an operation of which no command has gone out is called off: its target is well again, or,
// for a rehearsal, is no longer the healthy and empty node that it is for.
func ended(s *state.State, v View, o *state.Operation) string {
	live := v.Nodes[o.Node]
	switch {
	case o.Phase != state.Ordered:
		return ""
	case o.Action == state.FenceRehearse:
		if live.Gone != "" {
			return fmt.Sprintf("no rehearsal: %s failed before any command: %s", o.Node, live.Gone)
		}
		if held := s.Holds(o.Node); len(held) > 0 {
			return fmt.Sprintf("no rehearsal: %s may hold %s", o.Node, strings.Join(held, ", "))
		}
	case !o.Lasting && live.Gone == "" && live.Reachable && live.Boot == o.Boot:
		return fmt.Sprintf("%s answers again in the same boot, before any command", o.Node)
	}
	return ""
}

// onAttempts is how often a power-on is tried before the target's own word is taken: after a rehearsal that failed, an
// off may still take effect during the first one.
const onAttempts = 2

// onAnyway says why a power-on whose device gives no answer is over: its target runs. It would keep the node from its
// groups for as long as the device is out of order.
func onAnyway(v View, o *state.Operation) string {
	live := v.Nodes[o.Node]
	if o.Action != state.FenceOn || o.Phase != state.Shooting || o.Failures < onAttempts || !live.Reachable || live.Boot != o.Boot {
		return ""
	}
	return fmt.Sprintf("%s answers, so it is on, though no device says so: %s", o.Node, o.Error)
}

// unsure reports whether the target is heard, but not well, before any command: neither reason to
// shoot it nor to trust it again.
func unsure(v View, o *state.Operation) bool {
	if o.Phase != state.Ordered || o.Lasting && o.Action != state.FenceRehearse {
		return false
	}
	live := v.Nodes[o.Node]
	return live.Gone == "" && (!live.Reachable || live.Boot != o.Boot)
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
	if why := needed(s, v, o); why != "" {
		return why
	}
	return Brake(s, v, o)
}

// needed is what is in the way besides the storm brake.
func needed(s *state.State, v View, o *state.Operation) string {
	if o.PowersOn() {
		return ""
	}
	if why := s.Maintained(o.Node); why != "" && o.Phase == state.Ordered && o.By == state.ByCluster {
		return why
	}
	// Of a boot that is proven over, gossip may still speak for a moment.
	live, n := v.Nodes[o.Node], s.Nodes[o.Node]
	if newer := live.Boot != "" && live.Boot != o.Boot && !slices.Contains(n.Ended, live.Boot); newer || live.Reachable && live.Boot != o.Boot {
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
	mine, voters := v.votes(s, without)
	if !mine {
		return "" // it is no loss
	}
	for _, name := range s.NodeNames() {
		if counts, _ := v.votes(s, name); !counts || name == without || !v.Nodes[name].Reachable {
			continue
		}
		if o := s.OpenOperation(name); o != nil && o.ID < op && o.Action != state.FenceOn && (o.Phase != state.Ordered || v.Nodes[without].Reachable) {
			first = append(first, fmt.Sprintf("%s is to be fenced first (operation %d)", name, o.ID))
			continue
		}
		others++
	}
	if need := voters/2 + 1; others < need {
		first = append([]string{fmt.Sprintf("without %s only %d of %d voters would be left, %d are needed", without, others, voters, need)}, first...)
		return strings.Join(first, "; ")
	}
	return ""
}
