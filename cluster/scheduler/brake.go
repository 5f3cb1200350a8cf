package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/cluster/state"
)

// The storm brake: where the fault is the network, everybody looks dead to a coordinator that shoots one
// after the other. Within the window it may fence at most half of the members, and at least one.

// unbounded is the end of what no clock ends.
const unbounded = int64(1) << 62

// Brake says why the cluster must not begin to carry out its operation now, and how an operator who knows better
// overrules that; empty if the brake is off. What began is never braked.
func Brake(s *state.State, v View, o *state.Operation) string {
	why, _ := brake(s, v, o)
	return why
}

// brake also says in how many ms the brake comes off by the clock alone; 0 if it does not.
func brake(s *state.State, v View, o *state.Operation) (why string, in int64) {
	if v.Policy.StormWindow <= 0 || o.Phase != state.Ordered || o.By != state.ByCluster || !isMember(s, o.Node) {
		return "", 0
	}
	members := 0
	for _, n := range s.Nodes {
		if n.Role == state.Member {
			members++
		}
	}
	limit := max(1, members/2)
	shot := shotWithinWindow(s, v)
	queue(s, v, o.ID, shot, limit)
	if _, again := shot[o.Node]; again || len(shot) < limit {
		return "", 0
	}
	ends := slices.Sorted(maps.Values(shot))
	held := "until that is over"
	if end := ends[len(ends)-limit]; end < unbounded {
		in = end - Now(s, v)
		held = "for another " + spell(in)
	}
	return fmt.Sprintf("storm brake: the cluster fences at most %d of %d members within %s, and that is %s: held %s; if %s is really dead: hamgr fence off %s (an operator's order is not held back)",
		limit, members, spell(v.Policy.StormWindow), strings.Join(slices.Sorted(maps.Keys(shot)), ", "), held, o.Node, o.Node), in
}

// shotWithinWindow tells which members the cluster may have sent a command against within the window, or
// still does, and until when each of them counts.
func shotWithinWindow(s *state.State, v View) map[string]int64 {
	shot := map[string]int64{}
	for _, o := range s.Operations {
		if o.By != state.ByCluster || o.Attempts == 0 || !isMember(s, o.Node) {
			continue
		}
		end := o.ShotClock + v.Policy.StormWindow
		if o.CutsPower() {
			end = unbounded
		}
		if end > Now(s, v) {
			shot[o.Node] = max(shot[o.Node], end)
		}
	}
	return shot
}

// queue gives the places that are left to the operations before op, in their order, as far as nothing else is in
// their way.
func queue(s *state.State, v View, op uint64, shot map[string]int64, limit int) {
	for _, id := range slices.Sorted(maps.Keys(s.Operations)) {
		o := s.Operations[id]
		if id >= op {
			return
		}
		if o.Phase != state.Ordered || o.By != state.ByCluster || !isMember(s, o.Node) {
			continue
		}
		if len(shot) < limit && !unsure(v, o) && needed(s, v, o) == "" {
			shot[o.Node] = unbounded
		}
	}
}

func isMember(s *state.State, node string) bool {
	n := s.Nodes[node]
	return n != nil && n.Role == state.Member
}
