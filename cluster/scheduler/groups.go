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
	b.foretell()
	stopping := b.stops()
	placed := b.grants()
	plan = append(plan, b.aims(stopping)...)
	for _, name := range b.names {
		if reason := stopping[name]; reason != "" {
			plan = append(plan, Action{Reason: reason, Commit: &state.Command{Stop: &state.StopGroup{
				Group: name, Token: b.s.Groups[name].Grant.Token, Reason: reason, Aim: b.aim[name],
			}}})
		}
	}
	for _, name := range placed {
		node, reason := b.where[name], "nobody holds it"+previous(b.s.Groups[name])
		plan = append(plan, Action{Reason: reason, Commit: &state.Command{Grant: &state.GrantGroup{
			Group: name, Node: node, Boot: b.s.Nodes[node].Boot, Reason: reason,
		}}})
	}
	return append(plan, b.expiries()...)
}

// foretell finds the nodes of the groups that are about to be started, and of those that are being stopped, and keeps
// room for them there: one that runs and would be better off there as well would be stopped for a place that is taken
// when it comes.
func (b *board) foretell() {
	for _, name := range b.queue { // whose way has begun comes first
		g := b.s.Groups[name]
		if m := b.member[g.Aim]; m != nil && g.Grant != nil && g.Grant.Phase != state.Stopping && b.obstacle(g, m) == fits {
			b.bind(g, m)
		}
	}
	for _, name := range b.queue {
		g := b.s.Groups[name]
		switch {
		case len(g.With) > 0 || !wanted(g): // for those that follow, room is kept where they follow
		case g.Grant == nil:
			if m := b.place(g); m != nil {
				b.bind(g, m)
			}
		case g.Grant.Phase == state.Stopping:
			if best := b.best(g, b.members); best.member != nil {
				b.bind(g, best.member)
			}
		}
	}
}

// grants gives the groups that nobody holds and that can start now, each followed by those that run with it.
func (b *board) grants() []string {
	var placed []string
	var try func(name string)
	try = func(name string) {
		g := b.s.Groups[name]
		if b.where[name] != "" || b.idle(g) != "" {
			return
		}
		m := b.member[b.bound[name]]
		if m == nil || b.obstacle(g, m) != fits {
			m = b.place(g)
		}
		if m == nil {
			return
		}
		b.put(g, m.Name)
		b.keepRoom(name)
		placed = append(placed, name)
		for _, follower := range b.led[name] {
			try(follower)
		}
	}
	for _, name := range b.queue {
		try(name)
	}
	return placed
}

// stops gives the groups that are to be stopped now, and why. A group that others run after goes last.
func (b *board) stops() map[string]string {
	for _, name := range b.names {
		if g := b.s.Groups[name]; g.Grant != nil && b.ending[name] == "" && b.s.GroupMaintained(g) == "" {
			if why := b.unwanted(g); why != "" {
				b.ending[name] = why
				b.endAfter(name, name+" is to stop: "+why)
			}
		}
	}
	now := map[string]string{}
	for name, why := range b.ending {
		if b.s.Groups[name].Grant.Phase != state.Stopping && !slices.ContainsFunc(b.later[name], b.held) {
			now[name] = why
		}
	}
	return now
}

// endAfter notes that all that run after a group are to end, by the same cause.
func (b *board) endAfter(name, cause string) {
	for _, later := range b.later[name] {
		if b.held(later) && b.ending[later] == "" && b.s.GroupMaintained(b.s.Groups[later]) == "" {
			b.ending[later] = fmt.Sprintf("it runs after %s; %s", name, cause)
			b.endAfter(later, cause)
		}
	}
}

// held reports whether somebody still holds a group.
func (b *board) held(name string) bool { return b.s.Groups[name].Grant != nil }

// unwanted says why a group is to end where it is held; empty if it is to stay.
func (b *board) unwanted(g *state.Group) string {
	here := g.Grant.Node
	n := b.s.Nodes[here]
	switch {
	case g.Removed:
		return "the group is no longer configured"
	case g.Disabled:
		return "disabled by an operator"
	case n != nil && n.Aside() != "":
		return here + " is " + n.Aside()
	case !g.Allows(here):
		return here + " is no longer allowed to run it"
	}
	if other := b.yieldsTo(g); other != "" {
		return fmt.Sprintf("%s is to be apart, and is on %s too", other, here)
	}
	if w := b.wish(g); w != nil && w.Restart && g.Grant.Token <= w.Token {
		return "restarted by " + w.By
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

// yieldsTo names the group to which this one gives way, of two that are to be apart and are on one node: the younger
// one goes, unless the other is going anyway.
func (b *board) yieldsTo(g *state.Group) string {
	for _, other := range b.apart[g.Name] {
		o := b.s.Groups[other]
		if o == nil || o.Grant == nil || o.Grant.Node != g.Grant.Node || o.Grant.Token >= g.Grant.Token || o.Grant.Phase == state.Stopping {
			continue
		}
		if _, known := b.younger[other]; !known {
			b.younger[other] = b.yieldsTo(o) != ""
		}
		if !b.younger[other] {
			return other
		}
	}
	return ""
}

// better says why a group that runs well is to go to another node; empty if it is to stay. It stays, unless an operator
// wishes otherwise, or the configuration asks for failback, or a group that runs with it has failed here and could
// run elsewhere. One that follows another group is not asked: where it goes, that one decides.
func (b *board) better(g *state.Group) string {
	if len(g.With) > 0 || g.Grant.Phase == state.Stopping {
		return ""
	}
	here := b.member[g.Grant.Node]
	if here == nil {
		return ""
	}
	if g.Aim != "" {
		return b.goOn(g)
	}
	wished, failed := b.wished(g), b.failedFollower(g, here.Name)
	back := g.Grant.Phase == state.Started && rank(g, here.Name) > 0 && g.Failback.Contains(b.v.Minute)
	if wished == "" && failed == "" && !back {
		return ""
	}
	bound := b.unbind(g)
	now := b.choice(g, here)
	best := b.best(g, slices.DeleteFunc(slices.Clone(b.members), func(m *member) bool { return m == here }))
	why := ""
	switch {
	case best.member == nil:
	case wished != "" && best.against < now.against:
		why = wished
	case failed != "" && best.against <= now.against && best.misfits < now.misfits && b.untried(g, best.member.Name):
		why = fmt.Sprintf("%s, which runs with it, failed on %s; %s can run both", failed, here.Name, best.member.Name)
	case back && best.against <= now.against && best.misfits <= now.misfits && best.rank < now.rank:
		why = fmt.Sprintf("failback to %s, which is preferred", best.member.Name)
	}
	if m := g.Missed; m != nil && b.now < m.Until && best.member != nil && m.Node == best.member.Name {
		why = ""
	}
	if why != "" {
		b.bind(g, best.member)
		b.aim[g.Name] = best.member.Name
	} else {
		b.rebind(bound)
	}
	return why
}

// goOn is better for a group whose way to another node has begun.
func (b *board) goOn(g *state.Group) string {
	bound := b.unbind(g)
	m := b.member[g.Aim]
	if m == nil || b.obstacle(g, m) != fits {
		b.rebind(bound)
		b.aim[g.Name] = ""
		return ""
	}
	b.bind(g, m)
	b.aim[g.Name] = m.Name
	return g.AimReason
}

// aims gives what has to be known of those that leave later, when others have stopped, and of those that do not leave after
// all.
func (b *board) aims(stopping map[string]string) []Action {
	var plan []Action
	for _, name := range b.names {
		node, decided := b.aim[name]
		g := b.s.Groups[name]
		if !decided || node == g.Aim || stopping[name] != "" {
			continue
		}
		reason := b.ending[name]
		if node == "" {
			reason = fmt.Sprintf("%s cannot take %s any more", g.Aim, name)
		}
		plan = append(plan, Action{Reason: reason, Commit: &state.Command{Aim: &state.AimGroup{
			Group: name, Token: g.Grant.Token, Node: node, Reason: reason,
		}}})
	}
	return plan
}

// wished tells the wishes of operators for the group's set, in words.
func (b *board) wished(g *state.Group) string {
	var words []string
	for _, name := range b.set(g.Name) {
		o := b.s.Groups[name]
		w := b.wish(o)
		if w == nil || w.Restart {
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

// failedFollower names a group that has to run where this one does, failed there, and could else run.
func (b *board) failedFollower(g *state.Group, here string) string {
	for _, name := range b.sets[g.Name] {
		o := b.s.Groups[name]
		f, failed := o.Failures[here]
		if len(o.With) > 0 && failed && !f.Expired && o.Grant == nil && b.idle(o) == "" {
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
func (b *board) expiries() []Action {
	var plan []Action
	for _, name := range b.names {
		g := b.s.Groups[name]
		if len(g.Failures) == 0 || g.FailureExpiry <= 0 {
			continue
		}
		for _, m := range b.members {
			f, failed := g.Failures[m.Name]
			if failed && !f.Expired && b.now >= f.Clock+g.FailureExpiry {
				plan = append(plan, Action{
					Reason: fmt.Sprintf("%s failed on %s %s ago", name, m.Name, spell(b.now-f.Clock)),
					Commit: &state.Command{Expire: &state.Expire{Group: name, Node: m.Name, Count: f.Count}},
				})
			}
		}
	}
	return plan
}
