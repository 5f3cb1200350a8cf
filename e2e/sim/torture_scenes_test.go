package sim

import (
	"context"
	"fmt"
	"time"

	bmc "github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/state"
	storage "github.com/hamgr/hamgr/resources/fake"
)

// scenes are faults that need several things in a row, or a judge of their own, and nothing else meanwhile: chance alone would bring
// them about too seldom.
func scenes() []torture {
	return []torture{
		{"disk lost while another is behind", 2, (*tale).lostBehind},
		{"one boots alone", 1, (*tale).bootsAlone},
		{"cut off, and nobody can shoot", 1, (*tale).letsGo},
		{"BMC lies about a node that is heard", 1, (*tale).lies},
		{"confirmed by mistake", 1, (*tale).mistaken},
		{"a stop that never works", 1, (*tale).neverStops},
	}
}

// broken is a judge's finding.
func (x *tale) broken(format string, args ...any) {
	c := x.c()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// quiet heals all, and reports whether all is well within a minute.
func (x *tale) quiet() bool {
	c := x.c()
	x.heals()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		x.follow()
		well := c.up() == len(c.Nodes) && x.allOrdersEnded() && x.still() && !x.fencing() && x.grantedRun() && c.votes(c.Nodes...)
		for _, n := range c.Nodes {
			is := c.State().Nodes[n]
			well = well && c.hosts[n].daemon() != nil && !c.hosts[n].mute() && is != nil && !is.Leaving
		}
		if well && (c.State().Text == "" || c.follow(c.Site.text())) {
			time.Sleep(2 * c.Detection)
			x.lost = 0
			return true
		}
	}
	return false
}

// lostBehind has a node lose its disk while a third one lags behind, which then is the only one besides it: what was committed
// meanwhile is known to those alone that are down.
func (x *tale) lostBehind(e event, n, behind string) {
	c := x.c()
	if len(c.Nodes) < 3 || !x.quiet() {
		return
	}
	c.Cut(behind)
	for range 3 {
		time.Sleep(time.Duration(e.X * float64(c.Detection)))
		if g := x.group(e.B); g != "" {
			x.ask(api.ChangeRequest{Verb: api.ChangeRestart, Group: g})
		}
	}
	time.Sleep(c.Detection / 2)
	if c.hosts[n].ill() || c.hosts[behind].daemon() == nil {
		return
	}
	x.lost++
	for _, o := range x.others(behind) {
		if o != n {
			c.Crash(o)
			x.back(o, 10*c.Detection+e.For/2)
		}
	}
	c.CutPower(n)
	c.note("the disk of %s is empty", n)
	c.hosts[n].set(func(h *Host) { h.stores, h.kept = consensus.MemoryStores(), "" })
	x.back(n, 10*time.Millisecond)
	x.later(c.Detection/2, func() { c.Heal(behind) })
	time.Sleep(8 * c.Detection)
}

// bootsAlone has all lose their power, one first; that one boots, and nobody else for a while.
func (x *tale) bootsAlone(e event, n, _ string) {
	c := x.c()
	c.Crash(n)
	for end := time.Now().Add(30 * c.Detection); time.Now().Before(end) && !x.tookOver(n); {
		time.Sleep(c.Detection / 4)
	}
	time.Sleep(time.Duration(e.X * float64(10*c.Detection)))
	for _, o := range x.others(n) {
		c.CutPower(o)
	}
	if c.hosts[n].daemon() != nil { // it was switched on again after its shot
		c.Reboot(n, 10*time.Millisecond)
	}
	c.Boot(n)
	time.Sleep(20*c.Detection + e.For/2)
	for _, o := range x.others(n) {
		c.Boot(o)
	}
}

// tookOver reports whether nothing is granted to a node any more, and others coordinate.
func (x *tale) tookOver(n string) bool {
	lead := x.c().Coordinator()
	return lead != "" && lead != n && len(x.c().State().Holds(n)) == 0
}

// letsGo cuts a node off that holds something, and that nobody can shoot. It has to let go by itself (S5).
func (x *tale) letsGo(e event, _, _ string) {
	c := x.c()
	g := x.group(e.A)
	if x.story.Freezes || x.story.TwoNode || len(c.Nodes) < 3 || g == "" || !x.quiet() {
		return
	}
	n := c.Owner(g)
	if n == "" || c.Detection != x.paceOf(n) || len(ends(c.State())) > 0 {
		return
	}
	for _, device := range c.devices(n) {
		c.BMC[device].Behave(bmc.Behavior{Status: "error", Command: "refuse"})
	}
	c.Cut(n)
	boot := c.hosts[n].boots
	time.Sleep(4*c.Detection + 2*time.Second)
	held := c.held(n)
	if others := c.Coordinator(); others != "" && c.hosts[n].mute() && c.hosts[n].boots == boot && len(held) > 0 && len(ends(c.State())) == 0 {
		x.broken("S5: %s is cut off for %s, %s coordinates the others, and it still runs %v", n, 4*c.Detection+2*time.Second, others, held)
	}
	x.heals()
}

// paceOf is the detection time with which a host's daemon runs.
func (x *tale) paceOf(n string) time.Duration {
	h := x.c().hosts[n]
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.process == nil {
		return 0
	}
	return h.process.setup.Config.Cluster.DetectionTime
}

// lies has a BMC say off of a node that runs, and that is heard: an operator's order to switch it off must not believe it.
func (x *tale) lies(e event, n, other string) {
	c := x.c()
	if x.story.TwoNode || !x.quiet() || c.Coordinator() == n {
		return
	}
	c.note("the BMC of %s lies", n)
	c.BMC[n].Behave(bmc.Behavior{Status: "off", Command: "ignore"})
	x.operate(other, func(ctx context.Context, op api.Backend) {
		_, _ = op.Fence(ctx, api.FenceRequest{Node: n, Action: api.ActionOff, By: "anna"}, func(api.FenceEvent) {})
	})
	time.Sleep(3 * c.Detection)
	o := c.State().Operations[lastOrder(c.State(), n)]
	if o != nil && o.Proof != nil && o.Boot == fmt.Sprintf("%s-boot%d", n, c.hosts[n].boots) && c.hosts[n].daemon() != nil {
		x.broken("S3: %s runs and is heard, and yet proven off: %+v", n, o.Proof)
	}
	c.note("the BMC of %s says what is", n)
	c.BMC[n].Behave(bmc.Behavior{Answer: 2 * time.Millisecond})
	x.back(n, 10*c.Detection+e.For)
}

// mistaken has an operator confirm that a node is down which is not, and which its BMC says is on.
func (x *tale) mistaken(_ event, n, other string) {
	c := x.c()
	if !x.quiet() || c.hosts[other].daemon() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*c.Detection)
	defer cancel()
	_, err := c.Operator(other).Fence(ctx, api.FenceRequest{Node: n, Action: api.ActionConfirm, By: "anna", Reason: "it looks dead"}, func(api.FenceEvent) {})
	c.note("an operator at %s takes %s for dead: %v", other, n, err)
	if err == nil {
		x.broken("S3: an operator's word that %s is down was taken, though its BMC says that it is on", n)
	}
}

// neverStops has a group moved that does not stop where it runs. That node needs fencing, and gets it (S6).
func (x *tale) neverStops(e event, _, _ string) {
	c := x.c()
	g := x.group(e.A)
	if x.story.TwoNode || x.story.Brake || g == "" || !x.quiet() {
		return
	}
	n, boots := c.Owner(g), 0
	if n == "" || len(x.others(n)) < 2 {
		return
	}
	boots = c.hosts[n].boots
	c.note("nothing of %s stops on %s", g, n)
	for _, r := range x.resources() {
		c.Storage.Set(n, g, r, "stop", storage.Fails)
	}
	x.ask(api.ChangeRequest{Verb: api.ChangeMove, Group: g, Away: true})
	time.Sleep(20 * c.Detection)
	gr := c.State().Groups[g]
	if gr != nil && gr.Grant != nil && gr.Grant.Node == n && gr.Grant.Phase == state.Stopping && c.Coordinator() != "" &&
		c.hosts[n].boots == boots && c.State().OpenOperation(n) == nil && len(ends(c.State())) == 0 {
		x.broken("S6: %s does not stop on %s for %s, and nobody is to fence that: %+v", g, n, 20*c.Detection, c.State().Nodes[n])
	}
	x.heals()
}
