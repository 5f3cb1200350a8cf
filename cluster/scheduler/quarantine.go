package scheduler

import (
	"fmt"

	"github.com/hamgr/hamgr/cluster/state"
)

// longest is what a quarantine grows to: 24 hours.
const longest = 24 * 60 * 60 * 1000

// Quarantine says until when (as Now) a node that the cluster fenced again and again is left off and given no
// groups, why, and how an operator ends that; 0 and empty if it is in no quarantine.
func Quarantine(n *state.Node, now int64, p Policy) (untilMS int64, why string) {
	times, until := sentence(n.Fenced, p)
	if now >= until {
		return 0, ""
	}
	return until, fmt.Sprintf("in quarantine for another %s, since the cluster fenced it %s; to end it: hamgr fence on %s",
		spell(until-now), inARow(times), n.Name)
}

// sentence is how often in a row the node was fenced, and until when it is in quarantine for that. A
// fencing within the window after the end of a quarantine adds to the row: otherwise one that is longer than the window
// would wipe out its own cause.
func sentence(fenced []int64, p Policy) (times int, until int64) {
	if p.QuarantineWindow <= 0 || p.QuarantineAfter <= 0 {
		return 0, 0
	}
	for i, at := range fenced {
		if times >= p.QuarantineAfter && at-until <= p.QuarantineWindow {
			times++
		} else {
			times = 0
			for _, before := range fenced[:i+1] {
				if at-before <= p.QuarantineWindow {
					times++
				}
			}
		}
		if times >= p.QuarantineAfter {
			until = at + grown(p.QuarantineTime, times-p.QuarantineAfter)
		}
	}
	return times, until
}

func inARow(times int) string {
	if times == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times in a row", times)
}

// grown doubles the time so many times, up to the longest.
func grown(ms int64, times int) int64 {
	for range times {
		if ms >= longest {
			break
		}
		ms = min(2*ms, longest)
	}
	return ms
}

// leftOff says why the power-on of the cluster's own reboot has to wait. A voter that the majority cannot spare is
// switched on all the same, and only kept from holding groups: else the next failure would leave nobody who could
// ever switch anything on.
func leftOff(s *state.State, v View, n *state.Node, o *state.Operation) string {
	if o.Phase != state.ProvenOff || o.By != state.ByCluster {
		return ""
	}
	_, why := Quarantine(n, Now(s, v), v.Policy)
	if why == "" || !spared(s, v, n.Name) {
		return ""
	}
	return why
}

// spared reports whether there is a majority without the node, and without any one more.
func spared(s *state.State, v View, node string) bool {
	others := 0
	for name := range s.Nodes {
		if name != node && v.Nodes[name].Reachable {
			others++
		}
	}
	return others > len(s.Nodes)/2+1
}
