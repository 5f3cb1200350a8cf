package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/cluster/state"
)

// Waiting says, group by group, why those that nobody holds are not given to anybody, and for what those wait that are to
// stop and cannot yet; those that are about to be granted or stopped have no entry.
func Waiting(s *state.State, v View) map[string]string {
	b := look(s, v)
	b.foretell()
	b.stops()
	b.grants()
	why := map[string]string{}
	for _, name := range b.names {
		if g := s.Groups[name]; b.where[name] == "" {
			why[name] = b.waits(g)
		} else if wait := b.delay(name); wait != "" {
			why[name] = wait
		}
	}
	return why
}

// delay says for what a held group has to wait before it is stopped; empty if it is not to stop, or stops.
func (b *board) delay(name string) string {
	if b.ending[name] == "" || b.s.Groups[name].Grant.Phase == state.Stopping {
		return ""
	}
	first := b.followers(name)
	if first == nil {
		return ""
	}
	return fmt.Sprintf("is to stop (%s), and waits for what runs after it: %s", b.ending[name], strings.Join(first, ", "))
}

// followers tells which groups are still held that run after a group, and which of them are left alone.
func (b *board) followers(name string) []string {
	var all []string
	for _, later := range b.later[name] {
		if !b.held(later) {
			continue
		}
		if why := b.s.GroupMaintained(b.s.Groups[later]); why != "" {
			later = fmt.Sprintf("%s (%s)", later, why)
		}
		all = append(all, later)
	}
	return all
}

// mostReasons is how many nodes' reasons are told one by one.
const mostReasons = 16

// waits says why place finds no node.
func (b *board) waits(g *state.Group) string {
	if why := b.idle(g); why != "" {
		return why
	}
	if m := b.find(g); m != nil {
		return fmt.Sprintf("waits for %s, which is preferred and has not joined yet", b.worthWaiting(g, m))
	}
	return "no node can take it: " + b.obstacles(g, "")
}

// obstacles tells what keeps the members, but for one, from taking a group.
func (b *board) obstacles(g *state.Group, but string) string {
	var why []string
	more, before := 0, ""
	for _, m := range b.members {
		switch {
		case m.Name == but:
		case len(why) == mostReasons:
			more++
		default:
			o := b.obstacle(g, m)
			if o == fits {
				continue
			}
			words := b.words(g, m, o)
			if words == before { // what is long enough once
				words = "too"
			} else {
				before = words
			}
			why = append(why, m.Name+" "+words)
		}
	}
	if more > 0 {
		why = append(why, fmt.Sprintf("%d more", more))
	}
	return strings.Join(why, "; ")
}

// words tells an obstacle.
func (b *board) words(g *state.Group, m *member, o obstacle) string {
	switch o {
	case unfitNode:
		return m.unfit
	case failedThere:
		f := g.Failures[m.Name]
		return fmt.Sprintf("failed (%s: %s)", f.Resource, f.Error)
	case notAllowed:
		return "is not allowed to run it"
	case notApart:
		return fmt.Sprintf("holds %s, from which it is to be apart", b.apartOn(g, m.Name))
	case full:
		return fmt.Sprintf("is full: %d of %d are taken, %d are needed", b.taken(g, m), m.Capacity, g.Weight)
	case notWith:
		return fmt.Sprintf("is not where %s is", b.away(g, m.Name))
	}
	return ""
}

// idle says why a group is to run nowhere at present; empty if it is to run.
func (b *board) idle(g *state.Group) string {
	switch why := b.s.GroupMaintained(g); {
	case g.Removed:
		return "no longer configured"
	case len(g.Found) > 0:
		return "found active without a grant on " + strings.Join(foundOn(g), ", ")
	case g.Disabled:
		return "disabled by an operator; to run it: hamgr group enable " + g.Name
	case g.Halted != "":
		return fmt.Sprintf("stopped everywhere, as its on_fail says: %s; to run it again: hamgr group clear %s", g.Halted, g.Name)
	case why != "":
		return why
	}
	for _, first := range g.After {
		if why := b.notRunning(first); why != "" {
			return fmt.Sprintf("it runs after %s, %s", first, why)
		}
	}
	for _, other := range slices.Concat(g.After, g.With) {
		if why := b.ending[other]; why != "" {
			return fmt.Sprintf("%s is to stop: %s", other, why)
		}
	}
	if with, why := b.host(g); why != "" {
		return fmt.Sprintf("it runs with %s, %s", with, why)
	}
	return ""
}

// notRunning says why a group is not one that others can run after; empty if it is.
func (b *board) notRunning(group string) string {
	g := b.s.Groups[group]
	switch {
	case g == nil:
		return "" // it left the configuration, and this one's rules will follow
	case g.Grant == nil:
		return "which does not run"
	case g.Grant.Phase == state.Granted:
		return "which is being started"
	case g.Grant.Phase == state.Stopping:
		return "which is being stopped"
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
