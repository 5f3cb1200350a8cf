package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/cluster/state"
)

// planGroups gives what is due for the groups: those that are to end where they are, then those that nobody holds, then
// failures that are over.
func (b *board) planGroups() []Action {
	var plan []Action
	names := b.s.GroupNames()
	stopping := b.stops(names)
	for _, name := range names {
		if reason := stopping[name]; reason != "" {
			plan = append(plan, Action{Reason: reason, Commit: &state.Command{Stop: &state.StopGroup{
				Group: name, Token: b.s.Groups[name].Grant.Token, Reason: reason,
			}}})
		}
	}
	for _, name := range names {
		g := b.s.Groups[name]
		if g.Grant != nil {
			continue
		}
		if node := b.place(g); node != "" {
			b.put(g, node)
			plan = append(plan, Action{Reason: "nobody holds it" + previous(g), Commit: &state.Command{Grant: &state.GrantGroup{
				Group: name, Node: node, Boot: b.s.Nodes[node].Boot, Reason: "nobody holds it" + previous(g),
			}}})
		}
	}
	return append(plan, b.expiries(names)...)
}

// stops gives the groups that are to be stopped now, and why. A group that others run after goes last.
func (b *board) stops(names []string) map[string]string {
	reasons := map[string]string{}
	for _, name := range names {
		if g := b.s.Groups[name]; g.Grant != nil && b.s.GroupMaintained(g) == "" {
			if why := b.unwanted(g); why != "" {
				b.end(name, why, reasons)
			}
		}
	}
	for name := range reasons {
		if b.s.Groups[name].Grant.Phase == state.Stopping || len(b.heldAfter(name)) > 0 {
			delete(reasons, name)
		}
	}
	return reasons
}

// end notes that a group is to end, and with it all that run after it.
func (b *board) end(name, why string, reasons map[string]string) {
	if reasons[name] != "" {
		return
	}
	reasons[name] = why
	for _, later := range b.heldAfter(name) {
		if b.s.GroupMaintained(b.s.Groups[later]) == "" {
			b.end(later, fmt.Sprintf("it runs after %s, which is to stop: %s", name, why), reasons)
		}
	}
}

// heldAfter lists the groups that run after one, and that somebody still holds.
func (b *board) heldAfter(name string) []string {
	var held []string
	for _, later := range b.later[name] {
		if b.s.Groups[later].Grant != nil {
			held = append(held, later)
		}
	}
	return held
}

// unwanted says why a group is to end where it is held; empty if it is to stay.
func (b *board) unwanted(g *state.Group) string {
	here := g.Grant.Node
	n := b.s.Nodes[here]
	switch {
	case g.Removed:
		return "the group is no longer configured"
	case g.Disabled:
		return "disabled by an operator"
	case n != nil && n.Standby:
		return here + " is on standby"
	case !g.Allows(here):
		return here + " is no longer allowed to run it"
	case b.yields(g):
		return fmt.Sprintf("%s is to be apart, and is on %s too", b.apartOn(g, here), here)
	}
	for _, first := range g.After {
		if why := b.notRunning(first); why != "" {
			return fmt.Sprintf("it runs after %s, %s", first, why)
		}
	}
	if with, why := b.host(g); why != "" {
		return fmt.Sprintf("it runs with %s, %s", with, why)
	} else if with != "" && b.where[with] != here {
		return fmt.Sprintf("it runs with %s, which is on %s", with, b.where[with])
	}
	return b.better(g)
}

// yields reports whether the group is the one that gives way, of two that are to be apart and are not: the younger one.
func (b *board) yields(g *state.Group) bool {
	for _, other := range b.apart[g.Name] {
		if o := b.s.Groups[other]; o != nil && o.Grant != nil && o.Grant.Node == g.Grant.Node && o.Grant.Token < g.Grant.Token {
			return true
		}
	}
	return false
}

// better says why a group that runs well is to go to another node; empty if it is to stay. It stays, unless an operator
// wishes otherwise, or the configuration asks for failback, or a group that runs with it has failed here and could
// run elsewhere. One that follows another group is not asked: where it goes, that one decides.
func (b *board) better(g *state.Group) string {
	if len(g.With) > 0 || g.Grant.Phase == state.Stopping {
		return ""
	}
	here := g.Grant.Node
	wished, failed := b.wished(g), b.failedFollower(g, here)
	back := g.Grant.Phase == state.Started && g.Failback.Contains(b.v.Minute) && b.rankOf(g, here) > -len(g.Prefer)
	if wished == "" && failed == "" && !back {
		return ""
	}
	now := choice{here, b.wishesAgainst(g, here), b.misfits(g, here), b.rankOf(g, here)}
	best := b.best(g, slices.DeleteFunc(slices.Clone(b.members), func(n string) bool { return n == here }))
	switch {
	case best.node == "":
		return ""
	case wished != "" && best.against < now.against:
		return wished
	case failed != "" && best.against <= now.against && best.misfits < now.misfits && b.untried(g, best.node):
		return fmt.Sprintf("%s, which runs with it, failed on %s; %s can run both", failed, here, best.node)
	case back && best.against <= now.against && best.misfits <= now.misfits && best.rank < now.rank:
		return fmt.Sprintf("failback to %s, which is preferred", best.node)
	}
	return ""
}

// wished tells the wishes of operators for the group's set, in words.
func (b *board) wished(g *state.Group) string {
	var words []string
	for _, name := range b.set(g.Name) {
		o := b.s.Groups[name]
		w := b.wish(o)
		if w == nil {
			continue
		}
		what := ""
		if name != g.Name {
			what = name + ", which runs with it, is "
		}
		if w.To != "" {
			words = append(words, fmt.Sprintf("%smoved to %s by %s", what, w.To, w.By))
		} else {
			words = append(words, fmt.Sprintf("%smoved away from %s by %s", what, w.From, w.By))
		}
	}
	return strings.Join(words, "; ")
}

// failedFollower names a group that has to run where this one does, and failed there.
func (b *board) failedFollower(g *state.Group, here string) string {
	for _, name := range b.set(g.Name) {
		o := b.s.Groups[name]
		f, failed := o.Failures[here]
		if name != g.Name && failed && !f.Expired && o.Grant == nil && !o.Disabled && o.Halted == "" && slices.Contains(o.With, g.Name) {
			return name
		}
	}
	return ""
}

// untried reports whether no group of the set is known to have failed on the node. A failure that expired counts: a
// group that fails everywhere would drive a healthy one round in circles.
func (b *board) untried(g *state.Group, node string) bool {
	return !slices.ContainsFunc(b.set(g.Name), func(name string) bool {
		_, failed := b.s.Groups[name].Failures[node]
		return failed
	})
}

// expiries gives the failures that are old enough.
func (b *board) expiries(names []string) []Action {
	var plan []Action
	for _, name := range names {
		g := b.s.Groups[name]
		if len(g.Failures) == 0 || g.FailureExpiry <= 0 {
			continue
		}
		for _, node := range b.members {
			f, failed := g.Failures[node]
			if failed && !f.Expired && b.now >= f.Clock+g.FailureExpiry {
				plan = append(plan, Action{
					Reason: fmt.Sprintf("%s failed on %s %s ago", name, node, spell(b.now-f.Clock)),
					Commit: &state.Command{Expire: &state.Expire{Group: name, Node: node, Count: f.Count}},
				})
			}
		}
	}
	return plan
}
