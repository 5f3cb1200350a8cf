package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/cluster/state"
)

// place picks the node for a group that nobody holds: by the group's preference, then by
// the fewest groups, then by name. Without a node, the reason says what is missing.
func place(s *state.State, v View, g *state.Group, load map[string]int) (node, reason string) {
	if g.Removed {
		return "", "no longer configured"
	}
	if len(g.Found) > 0 {
		return "", "found active without a grant on " + strings.Join(slices.Sorted(maps.Keys(g.Found)), ", ")
	}
	var why []string
	best := ""
	for _, name := range s.NodeNames() {
		n := s.Nodes[name]
		if n.Role != state.Member {
			continue
		}
		if obstacle := cannotTake(s, v, g, n); obstacle != "" {
			why = append(why, name+" "+obstacle)
			continue
		}
		if best == "" || better(g, load, name, best) {
			best = name
		}
	}
	if best == "" {
		return "", "no node can take it: " + strings.Join(why, "; ")
	}
	if w := worthWaiting(s, v, g, best); w != "" {
		return "", fmt.Sprintf("waits for %s, which is preferred and has not joined yet", w)
	}
	return best, "nobody holds it" + previous(g)
}

// cannotTake says what keeps a member from taking the group; empty if nothing does.
func cannotTake(s *state.State, v View, g *state.Group, n *state.Node) string {
	live := v.Nodes[n.Name]
	f, failed := g.Failures[n.Name]
	_, quarantine := Quarantine(n, Now(s, v), v.Policy)
	switch {
	case quarantine != "":
		return "is " + quarantine
	case n.Op != 0 || n.Unclean != "":
		return "is being fenced"
	case n.Standby:
		return "is on standby"
	case !n.Up && n.Left:
		return "has left"
	case !n.Up && n.Boot == "":
		return "has not joined yet"
	case !n.Up:
		return "is off"
	case live.Gone != "" || !live.Reachable || live.Boot != n.Boot:
		return "does not answer"
	case failed:
		return fmt.Sprintf("failed (%s: %s)", f.Resource, f.Error)
	}
	return ""
}

func better(g *state.Group, load map[string]int, a, b string) bool {
	if ra, rb := rank(g, a), rank(g, b); ra != rb {
		return ra < rb
	}
	if load[a] != load[b] {
		return load[a] < load[b]
	}
	return a < b
}

func rank(g *state.Group, node string) int {
	if i := slices.Index(g.Prefer, node); i >= 0 {
		return i
	}
	return len(g.Prefer)
}

// worthWaiting names a node that never joined and would be preferred, while the cluster is just
// starting and the group never ran: without that, the first node to come up would
// take all.
func worthWaiting(s *state.State, v View, g *state.Group, best string) string {
	if v.Settled || g.Released != nil {
		return ""
	}
	for _, name := range s.NodeNames() {
		n := s.Nodes[name]
		if n.Role == state.Member && n.Boot == "" && !n.Standby && (rank(g, name) < rank(g, best) || len(g.Prefer) == 0) {
			return name
		}
	}
	return ""
}

func previous(g *state.Group) string {
	if g.Released == nil {
		return ""
	}
	p := g.Released.Proof
	switch p.Kind {
	case state.PowerOff:
		return fmt.Sprintf(": %s was read back off (operation %d)", p.Node, p.Op)
	case state.NewBoot:
		return fmt.Sprintf(": %s came back with a new boot", p.Node)
	case state.OperatorWord:
		return fmt.Sprintf(": %s is down by an operator's word (operation %d)", p.Node, p.Op)
	default:
		return fmt.Sprintf(": %s stopped it cleanly", p.Node)
	}
}

// Waiting says why a group that nobody holds is not given to anybody; empty if it is held or
// about to be granted.
func Waiting(s *state.State, v View, group string) string {
	g := s.Groups[group]
	if g == nil || g.Grant != nil {
		return ""
	}
	node, reason := place(s, v, g, map[string]int{})
	if node != "" {
		return ""
	}
	return reason
}
