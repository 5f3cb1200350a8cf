package scheduler

import (
	"fmt"
	"strings"

	"github.com/hamgr/hamgr/cluster/state"
)

// tickAfter is how much of the time that the cluster's clock has to count may be lost with a coordinator.
const tickAfter = 10_000

// planTick carries the clock on while anything is measured by it.
func planTick(s *state.State, v View) []Action {
	if v.Since < tickAfter || !measures(s, v) {
		return nil
	}
	return []Action{{Reason: "the clock of what ends by itself", Commit: &state.Command{Tick: &state.Tick{}}}}
}

// measures reports whether a window is open: time that is lost with a coordinator would make it longer.
func measures(s *state.State, v View) bool {
	if v.Policy.StormWindow > 0 && len(shotWithinWindow(s, v)) > 0 {
		return true
	}
	for _, g := range s.Groups {
		if nextOf(g, Now(s, v)) > 0 {
			return true
		}
	}
	for _, n := range s.Nodes {
		if v.Policy.QuarantineWindow <= 0 || len(n.Fenced) == 0 {
			continue
		}
		_, until := sentence(n.Fenced, v.Policy)
		if Now(s, v) <= max(until, n.Fenced[len(n.Fenced)-1])+v.Policy.QuarantineWindow {
			return true
		}
	}
	return false
}

// Next is in how many ms the plan may change by the clock alone; 0 if it does not.
func Next(s *state.State, v View) (ms int64) {
	sooner := func(in int64) {
		if in > 0 && (ms == 0 || in < ms) {
			ms = in
		}
	}
	if measures(s, v) {
		sooner(max(1, tickAfter-v.Since))
	}
	for _, o := range s.Operations {
		_, in := brake(s, v, o)
		sooner(in)
	}
	now := Now(s, v)
	for _, n := range s.Nodes {
		until, _ := Quarantine(n, now, v.Policy)
		sooner(until - now)
		sooner(away(n, now))
	}
	for _, g := range s.Groups {
		sooner(nextOf(g, now))
		if f := g.Failback; !f.Always && f.From != f.To && v.Minute >= 0 && g.Grant != nil && len(g.Prefer) > 0 {
			sooner(minute)
		}
	}
	return ms
}

// minute is how often the time of the day is looked at.
const minute = 60_000

// nextOf is in how many ms a failure or a wish of the group ends; 0 if there is none.
func nextOf(g *state.Group, now int64) (ms int64) {
	sooner := func(in int64) {
		if in > 0 && (ms == 0 || in < ms) {
			ms = in
		}
	}
	if g.Wish != nil {
		sooner(g.Wish.Until - now)
	}
	for _, f := range g.Failures {
		if !f.Expired && g.FailureExpiry > 0 {
			sooner(f.Clock + g.FailureExpiry - now)
		}
	}
	return ms
}

// spell gives a time in words, rounded up to seconds.
func spell(ms int64) string {
	left := (ms + 999) / 1000
	var b strings.Builder
	for _, unit := range []struct {
		name    string
		seconds int64
	}{{"h", 3600}, {"m", 60}, {"s", 1}} {
		if n := left / unit.seconds; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
			left %= unit.seconds
		}
	}
	if b.Len() == 0 {
		return "0s"
	}
	return b.String()
}
