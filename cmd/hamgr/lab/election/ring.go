package election

import (
	"maps"
	"slices"
)

// ring is an election under way.
type ring struct {
	Group
	trace  Trace
	silent map[int][]int // by node, whom it tried in vain
}

// Ring runs the ring algorithm, begun by one node: ELECTION goes round once and collects the IDs of all that it meets,
// then COORDINATOR goes round once and names the largest. Whoever does not take the message is
// skipped: its neighbour tries the next one, and remembers.
func Ring(g Group, starter int) Trace {
	r := &ring{Group: g, trace: Trace{Leads: maps.Clone(g.Leads)}, silent: map[int][]int{}}
	if r.trace.Leads == nil {
		r.trace.Leads = map[int]int{}
	}
	ids := []int{starter}
	for at := starter; ; {
		at = r.pass(at, Election, ids)
		if at == starter {
			break
		}
		ids = append(ids, at)
	}
	leader := slices.Max(ids)
	r.trace.Leads[starter] = leader
	for at := starter; ; {
		at = r.pass(at, Coordinator, []int{leader})
		if at == starter {
			return r.trace
		}
		r.trace.Leads[at] = leader
	}
}

// pass sends the message to the next node that takes it, and returns that one. A node that hears nobody
// else is its own next.
func (r *ring) pass(from int, k Kind, ids []int) int {
	here := slices.Index(r.IDs, from)
	for i := 1; i < len(r.IDs); i++ {
		to := r.IDs[(here+i)%len(r.IDs)]
		if slices.Contains(r.silent[from], to) {
			continue
		}
		m := Message{From: from, To: to, Kind: k, IDs: slices.Clone(ids), Lost: !r.hears(from, to)}
		r.trace.Messages = append(r.trace.Messages, m)
		if !m.Lost {
			return to
		}
		r.silent[from] = append(r.silent[from], to)
	}
	return from
}
