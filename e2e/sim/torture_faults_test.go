package sim

import (
	"context"
	"strings"
	"time"

	bmc "github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/state"
	storage "github.com/hamgr/hamgr/resources/fake"
)

// torture is one thing that may happen. It is done at once, and what it begins ends by itself after the event's time.
type torture struct {
	name   string
	weight int
	do     func(x *tale, e event, n, other string)
}

// tortures are all that may happen. What no cluster manager survives is not among them: a device that says off of a machine that runs,
// when nobody else hears that machine, and the loss of what a majority of the voters remembers. See docs/torture.md.
func tortures() []torture {
	devices := func(name string, weight int, b func(x *tale) bmc.Behavior) torture {
		return torture{name, weight, func(x *tale, e event, n, _ string) { x.misbehave(n, b(x), e) }}
	}
	return append(scenes(), []torture{
		{"crash", 4, func(x *tale, e event, n, _ string) { x.c().Crash(n); x.back(n, e.For) }},
		{"power loss", 2, func(x *tale, e event, n, _ string) { x.c().CutPower(n); x.back(n, e.For) }},
		{"power loss with the BMC", 2, func(x *tale, e event, n, _ string) { x.c().CutFeed(n); x.back(n, e.For) }},
		{"blackout", 1, (*tale).blackout},
		{"reboot", 2, func(x *tale, e event, n, _ string) { x.c().Reboot(n, e.For/5) }},
		{"freeze", 3, func(x *tale, e event, n, _ string) { x.freeze(n, e.For) }},
		{"freeze, thaw at the takeover", 5, (*tale).thawAtTakeover},
		{"freeze of many", 1, func(x *tale, e event, _, _ string) {
			for _, n := range x.some() {
				x.freeze(n, drawTime(x.disorder.rng, 50*time.Millisecond, e.For+time.Second))
			}
		}},
		{"cut off", 3, func(x *tale, e event, n, _ string) { x.c().Cut(n); x.later(e.For, func() { x.c().Heal(n) }) }},
		{"cut, outgoing", 2, func(x *tale, e event, n, _ string) {
			x.cut(e, x.others(n), func(o string) [2]string { return [2]string{n, o} })
		}},
		{"cut, incoming", 2, func(x *tale, e event, n, _ string) {
			x.cut(e, x.others(n), func(o string) [2]string { return [2]string{o, n} })
		}},
		{"cut of a pair", 2, func(x *tale, e event, n, other string) {
			x.cut(e, []string{other}, func(o string) [2]string { return [2]string{n, o} })
			if e.X < 0.7 {
				x.cut(e, []string{other}, func(o string) [2]string { return [2]string{o, n} })
			}
		}},
		{"split", 2, (*tale).splits},
		{"loss", 2, func(x *tale, e event, _, _ string) { x.weather(&x.loss, e.X*0.3, e) }},
		{"duplication", 1, func(x *tale, e event, _, _ string) { x.weather(&x.twice, e.X*0.3, e) }},
		{"delay", 2, func(x *tale, e event, _, _ string) { x.weather(&x.late, e.X*e.X/4, e) }},
		{"daemon restart", 2, func(x *tale, e event, n, _ string) { x.restart(n, e.For/10) }},
		{"restart of many", 1, func(x *tale, e event, _, _ string) {
			for _, n := range x.some() {
				x.restart(n, x.within(3*time.Second))
			}
		}},
		{"departure", 2, func(x *tale, e event, n, _ string) { x.depart(n, e) }},
		{"hung disk", 2, func(x *tale, e event, n, _ string) { x.c().HangDisk(n); x.mend(n, e.For) }},
		{"slow disk", 2, func(x *tale, e event, n, _ string) {
			x.c().SlowDisk(n, time.Duration(e.X*float64(x.c().Detection)/2))
			x.mend(n, e.For)
		}},
		{"full disk", 1, func(x *tale, e event, n, _ string) {
			x.c().FillDisk(n)
			x.act(e.For/4, func() { // then it waits for a person
				x.c().MendDisk(n)
				x.c().RestartDaemon(n, time.Second)
			})
		}},
		{"wiped disk", 2, func(x *tale, e event, n, _ string) { x.lose(n, e, false) }},
		{"older disk", 2, func(x *tale, e event, n, _ string) { x.lose(n, e, true) }},
		devices("BMC refuses", 1, func(*tale) bmc.Behavior { return bmc.Behavior{Command: "refuse"} }),
		devices("BMC ignores", 3, func(*tale) bmc.Behavior { return bmc.Behavior{Command: "ignore"} }),
		devices("BMC obeys with an error", 1, func(*tale) bmc.Behavior { return bmc.Behavior{Command: "error"} }),
		devices("BMC lags", 2, func(x *tale) bmc.Behavior { return bmc.Behavior{Lag: x.within(4 * time.Second)} }),
		devices("BMC rebounds", 1, func(x *tale) bmc.Behavior { return bmc.Behavior{Rebound: x.within(time.Second), Rebounds: 2} }),
		devices("BMC stalls", 2, func(x *tale) bmc.Behavior {
			return []bmc.Behavior{{Stall: []string{"status"}}, {Stall: []string{"off"}, Deaf: true}, {Stall: []string{"on"}}, {Answer: x.within(2 * time.Second)}}[x.within2(4)]
		}),
		devices("BMC says unknown", 3, func(x *tale) bmc.Behavior {
			return bmc.Behavior{Status: []string{"unknown", "missing", "error"}[x.within2(3)], Command: []string{"", "ignore", "refuse"}[x.within2(3)]}
		}),
		devices("BMC needs a login", 1, func(*tale) bmc.Behavior { return bmc.Behavior{Login: true} }),
		{"outlet misbehaves", 1, func(x *tale, e event, n, _ string) {
			x.misbehave(n+outletOf, []bmc.Behavior{{Command: "ignore"}, {Command: "refuse"}, {Status: "unknown"}, {Stall: []string{"off"}}, {Lag: x.within(3 * time.Second)}}[x.within2(5)], e)
		}},
		{"dead, and no device answers", 3, (*tale).unfenceable},
		{"blind executors", 2, func(x *tale, e event, n, other string) { x.blinds(e, n, other) }},
		{"resource dies", 2, func(x *tale, e event, _, _ string) {
			g, owner := x.group(e.B), ""
			if g != "" {
				owner = x.c().Owner(g)
			}
			for _, h := range x.c().Storage.Active() {
				if h.Group == g && h.Host == owner {
					x.c().note("%s dies: %v", h, x.c().Storage.Kill(owner, g, h.Resource))
					break
				}
			}
		}},
		{"start fails", 1, func(x *tale, e event, n, _ string) { x.stubborn(n, "start", e) }},
		{"stop fails", 2, func(x *tale, e event, n, _ string) { x.stubborn(n, "stop", e) }},
		{"applies late", 1, func(x *tale, e event, n, _ string) {
			late := time.Duration(e.X * float64(50*time.Millisecond))
			x.c().note("%s applies %s late", n, late)
			x.c().slowApply(n, late)
			x.later(e.For, func() { x.c().slowApply(n, 0) })
		}},
		{"fencing by hand", 2, func(x *tale, _ event, n, other string) { x.order(other, n) }},
		{"rehearsal", 1, func(x *tale, e event, n, _ string) { x.rehearse(n, e) }},
		{"confirmed by hand", 3, (*tale).confirm},
		{"orders for groups and nodes", 4, func(x *tale, _ event, n, _ string) { x.change(n) }},
		{"failures cleared", 1, func(x *tale, e event, _, _ string) {
			for _, g := range x.c().Groups {
				x.ask(api.ChangeRequest{Verb: api.ChangeClear, Group: g})
			}
		}},
		{"configuration changes", 3, func(x *tale, _ event, _, _ string) { x.reconfigure() }},
		{"one disk in two groups", 1, func(x *tale, _ event, _, _ string) { x.share() }},
		{"upgrade", 1, func(x *tale, e event, n, _ string) {
			x.c().speak(state.Version, n)
			x.restart(n, e.For/10)
		}},
		{"calm", 2, func(x *tale, e event, _, _ string) { x.calm(e.For / 2) }},
	}...)
}

// misbehave has a node's device do so for a while.
func (x *tale) misbehave(device string, b bmc.Behavior, e event) {
	c := x.c()
	d := c.BMC[device]
	c.note("device %s: %+v", device, b)
	d.Behave(b)
	x.later(e.For, func() {
		if x.lostNow(strings.TrimSuffix(device, outletOf)) {
			return
		}
		c.note("device %s is well", device)
		d.Behave(bmc.Behavior{Answer: 2 * time.Millisecond})
		d.Release()
	})
}

func (x *tale) blackout(e event, _, _ string) {
	for _, n := range x.c().Nodes {
		if e.X < 0.5 {
			x.c().CutPower(n)
		} else {
			x.c().CutFeed(n)
		}
	}
	for _, n := range x.c().Nodes {
		x.back(n, x.within(e.For/2+time.Second))
	}
}

// thawAtTakeover has a node stand still, and go on in the moment in which what it held is granted to another one, or runs there.
func (x *tale) thawAtTakeover(e event, n, _ string) {
	c := x.c()
	held := map[string]bool{}
	for _, g := range c.Groups {
		held[g] = c.Owner(g) == n
	}
	phase := []state.GrantPhase{state.Granted, state.Started}[x.within2(2)]
	c.when("", func(_, after *state.State) bool {
		for name, g := range after.Groups {
			if held[name] && g.Grant != nil && g.Grant.Node != n && g.Grant.Phase == phase {
				return true
			}
		}
		return false
	}, func() { c.Thaw(n) })
	x.freeze(n, e.For+10*time.Second)
}

// splits cuts the nodes into two pieces.
func (x *tale) splits(e event, _, _ string) {
	some := x.some()
	x.c().note("split off: %v, for %s", some, e.For)
	for _, n := range some {
		rest := x.others(some...)
		x.cut(e, rest, func(o string) [2]string { return [2]string{n, o} })
		x.cut(e, rest, func(o string) [2]string { return [2]string{o, n} })
	}
}

// unfenceable loses a node whose devices do not answer, for up to a few minutes.
func (x *tale) unfenceable(e event, n, _ string) {
	c := x.c()
	c.note("no device of %s answers", n)
	long := e.For + time.Duration(e.X*float64(2*time.Minute))
	for _, device := range c.devices(n) {
		c.BMC[device].Behave(bmc.Behavior{Status: "error", Command: "refuse"})
	}
	if dog := c.hosts[n].dog; dog != nil { // after its reset it hangs at its start
		dog.stays = true
		x.gone[n] = time.Now().Add(long)
		x.later(long, func() { dog.stays = false })
	}
	switch x.within2(4) {
	case 0:
		c.Crash(n)
	case 1:
		c.Cut(n)
	case 2:
		x.restart(n, long)
	default:
		x.freeze(n, long+time.Second)
	}
	x.later(long, func() {
		c.note("the devices of %s answer", n)
		for _, device := range c.devices(n) {
			c.BMC[device].Behave(bmc.Behavior{Answer: 2 * time.Millisecond})
		}
		c.Heal(n)
		time.Sleep(c.Detection)
		c.Boot(n)
	})
}

// blinds cuts most nodes off from a node's devices.
func (x *tale) blinds(e event, n, sees string) {
	c := x.c()
	blind := x.others(n)
	if e.X < 0.8 {
		blind = x.others(n, sees)
	}
	c.note("%v do not reach the devices of %s", blind, n)
	for _, o := range blind {
		for _, d := range c.devices(n) {
			c.Blind(o, d, true)
		}
	}
	x.later(e.For, func() {
		c.note("%v reach the devices of %s", blind, n)
		for _, o := range blind {
			for _, d := range c.devices(n) {
				c.Blind(o, d, false)
			}
		}
	})
}

// stubborn has the starts or stops of a group on a node, or wherever it runs, fail or hang.
func (x *tale) stubborn(n, op string, e event) {
	c, g := x.c(), x.group(e.B)
	if o := c.Owner(g); o != "" && e.X < 0.5 {
		n = o
	}
	mode := storage.Fails + storage.Mode(x.within2(2))
	c.note("%s of %s on %s: mode %d", op, g, n, mode)
	resources := x.resources()
	for _, r := range resources {
		c.Storage.Set(n, g, r, op, mode)
	}
	x.later(e.For, func() {
		c.note("%s of %s on %s works", op, g, n)
		for _, r := range resources {
			c.Storage.Set(n, g, r, op, storage.Works)
		}
	})
	switch x.within2(3) { // something that has it used
	case 0:
		x.ask(api.ChangeRequest{Verb: api.ChangeRestart, Group: g})
	case 1:
		x.ask(api.ChangeRequest{Verb: api.ChangeMove, Group: g, Away: true})
	}
}

// rehearse empties a node and has it fenced in order to see its devices work.
func (x *tale) rehearse(n string, e event) {
	x.ask(api.ChangeRequest{Verb: api.ChangeStandby, Node: n})
	c := x.c()
	at := c.Nodes[x.within2(len(c.Nodes))]
	x.act(e.For/4, func() {
		c.note("an operator at %s rehearses the fencing of %s", at, n)
		x.operate(at, func(ctx context.Context, op api.Backend) {
			_, _ = op.Fence(ctx, api.FenceRequest{Node: n, Action: api.ActionRehearse, Level: 1, By: "anna"}, func(api.FenceEvent) {})
		})
		time.Sleep(time.Minute)
		x.ask(api.ChangeRequest{Verb: api.ChangeOnline, Node: n})
	})
}

// confirm has somebody pull the plug of a node, and say so. It is plugged in again after the answer.
func (x *tale) confirm(e event, n, other string) {
	c := x.c()
	c.Pull(n)
	x.act(time.Duration(e.X*float64(3*c.Detection)), func() {
		if daemon := c.hosts[other].daemon(); daemon != nil && other != n {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			_, err := daemon.Operator().Fence(ctx, api.FenceRequest{Node: n, Action: api.ActionConfirm, Force: e.X < 0.7, By: "anna", Reason: "its plug is in my hand"}, func(api.FenceEvent) {})
			cancel()
			c.note("an operator at %s confirmed that %s is down: %v", other, n, err)
		}
		time.Sleep(e.For / 4)
		c.Plug(n)
	})
}

// share applies a configuration in which a second group writes to the disk of a first one, which must be refused.
func (x *tale) share() {
	c := x.c()
	wanted := c.Site.clone()
	if len(wanted.groups) < 2 {
		return
	}
	i := x.within2(len(wanted.groups))
	j := (i + 1) % len(wanted.groups)
	wanted.groups[i].disks = append(wanted.groups[i].disks, wanted.groups[j].disks[0])
	x.said = wanted.groups[i].name + " gets a disk of " + wanted.groups[j].name
	x.offer(wanted)
}
