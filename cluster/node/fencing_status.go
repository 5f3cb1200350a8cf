package node

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/scheduler"
	"github.com/hamgr/hamgr/cluster/state"
)

// addFencing completes what is known of each node's fencing: how its devices were found, when each was last
// proven to cut its power, and whether it is left off.
func (n *Node) addFencing(s *state.State, nodes []api.NodeStatus, outlook outlook) {
	for i := range nodes {
		nodes[i].Quarantine = outlook.Quarantine[nodes[i].Name]
		f := &nodes[i].Fencing
		for _, h := range outlook.Devices {
			if h.Node == nodes[i].Name {
				f.Health = append(f.Health, h)
			}
		}
		for l, level := range f.Levels {
			for _, device := range level {
				if device == config.WatchdogDevice {
					continue // it is tested in its own way
				}
				f.Rehearsals = append(f.Rehearsals, rehearsal(s.Nodes[nodes[i].Name], device, l+1))
			}
		}
	}
}

func rehearsal(n *state.Node, device string, level int) api.Rehearsal {
	r := api.Rehearsal{Device: device, Level: level}
	if n == nil {
		return r
	}
	if was, ok := n.Rehearsals[device]; ok {
		r.At, r.OffMS, r.Op, r.Executor = displayTime(was.At), was.OffMS, was.Op, was.Executor
	}
	return r
}

// undead tells of nodes that run in a boot which is proven over: the worst that there is, since what it held was given away.
func undead(s *state.State, view scheduler.View) []api.Problem {
	var all []api.Problem
	for _, name := range s.NodeNames() {
		if live := view.Nodes[name]; live.Reachable && slices.Contains(s.Nodes[name].Ended, live.Boot) {
			all = append(all, api.Problem{Severity: api.SeverityAlarm,
				Text: fmt.Sprintf("%s runs in boot %s, although that is proven over: a device lied or powers another machine, or an operator was mistaken", name, live.Boot),
				Cure: fmt.Sprintf("see to it that it runs nothing, switch it off by hand, and find out how it was proven: hamgr fence history %s", name),
			})
		}
	}
	return all
}

// operationProblem says what is wrong with an open operation, and what to do; empty if nothing is.
func operationProblem(o *state.Operation, waits obstacle) (text, cure string) {
	failed := o.Failures > 0 && o.Error != "" // a proof takes the error of the attempts before it away
	switch {
	case failed && o.Phase == state.ProvenOff:
		return fmt.Sprintf("%s is fenced, but does not come on again: %s", o.Node, o.Error), "switch it on: hamgr fence on " + o.Node
	case failed && o.PowersOn():
		return fmt.Sprintf("%s was not switched on so far: %s", o.Node, o.Error), "hamgr fence status " + o.Node
	case failed:
		text = fmt.Sprintf("fencing of %s fails, %d so far: %s", o.Node, o.Failures, o.Error)
		if waits.Why != "" {
			text += "; now it waits: " + waits.Why
		}
		return text, fmt.Sprintf("what %s holds cannot be taken over before it is proven off: mend its devices (hamgr fence test %s), or if you know that it is down: hamgr fence confirm %s", o.Node, o.Node, o.Node)
	case waits.Why != "":
		return fmt.Sprintf("fencing of %s waits: %s", o.Node, waits.Why), waits.Cure
	}
	return "", ""
}

// fencingProblems says what of the fencing would not do if it were needed now.
func (n *Node) fencingProblems(nodes []api.NodeStatus, alarm, warn func(text, cure string)) {
	there := map[string]bool{}
	for _, node := range nodes {
		there[node.Name] = node.State == api.NodeAlive || node.State == api.NodeSuspect
	}
	for _, node := range nodes {
		deviceProblems(node, there, alarm, warn)
		if why := rehearsalsDue(node.Fencing.Rehearsals, n.Config.Cluster.RehearsalAge); why != "" {
			cure := fmt.Sprintf("prove that it works: hamgr node standby %s, then hamgr fence rehearse %s", node.Name, node.Name)
			if !there[node.Name] {
				cure = "prove that it works when the node is back"
			}
			warn(fmt.Sprintf("fencing of %s: %s", node.Name, why), cure)
		}
		if node.Quarantine != "" {
			warn(node.Name+" is "+node.Quarantine, "hamgr fence on "+node.Name+" ends it")
		}
	}
}

// deviceProblems tells of devices in trouble; it is an alarm where no reader that is there could fence the node.
func deviceProblems(node api.NodeStatus, there map[string]bool, alarm, warn func(text, cure string)) {
	well := map[string]map[int]bool{} // reader and level: every device of it would do
	var lines []string
	by := map[string][]string{} // readers, by what they found wrong
	for _, h := range node.Fencing.Health {
		if !there[h.ReadBy] {
			continue // it would shoot nobody now
		}
		if well[h.ReadBy] == nil {
			well[h.ReadBy] = map[int]bool{}
		}
		if was, ok := well[h.ReadBy][h.Level]; !ok || was {
			well[h.ReadBy][h.Level] = h.OK
		}
		if h.OK {
			continue
		}
		name := h.Device
		if h.Plug != "" {
			name += " plug " + h.Plug
		}
		what := name + ": " + orElse(h.Trouble, "error")
		if by[what] == nil {
			lines = append(lines, what)
		}
		by[what] = append(by[what], h.ReadBy)
	}
	if lines == nil {
		return
	}
	for i, what := range lines {
		lines[i] = what + " (read by " + strings.Join(by[what], ", ") + ")"
	}
	able := false
	for _, levels := range well {
		for _, ok := range levels {
			able = able || ok
		}
	}
	text := strings.Join(lines, "; ")
	cure := "in full: hamgr fence test " + node.Name
	if able {
		warn(fmt.Sprintf("fencing of %s may fail: %s", node.Name, text), cure)
		return
	}
	alarm("no node could fence "+node.Name+" now: "+text, cure)
}

// rehearsalsDue says which devices were not proven to work for too long.
func rehearsalsDue(all []api.Rehearsal, age time.Duration) string {
	if age <= 0 {
		return ""
	}
	var never, old []string
	for _, r := range all {
		switch {
		case r.At.IsZero():
			never = append(never, r.Device)
		case time.Since(r.At) > age: // wall clocks: it is a reminder for people
			old = append(old, fmt.Sprintf("%s (%d days ago)", r.Device, int(time.Since(r.At).Hours()/24)))
		}
	}
	var parts []string
	if len(never) > 0 {
		parts = append(parts, "never proven to cut its power: "+strings.Join(slices.Compact(never), ", "))
	}
	if len(old) > 0 {
		parts = append(parts, "not proven lately: "+strings.Join(old, ", "))
	}
	return strings.Join(parts, "; ")
}
