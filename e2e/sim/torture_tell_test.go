package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	bmc "github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/consensus"
)

// tale is a story that is being told.
type tale struct {
	mixture
	t     *testing.T
	story story
	seen  *coverage

	loss, twice, late weather
	acts              atomic.Int32         // faults of several parts that are not over
	gone              map[string]time.Time // nodes that are lost until then, for their watchdogs to count
}

// weather is what the network does to all packets.
type weather struct {
	value float64
	until time.Time
}

func (x *tale) c() *Cluster { return x.disorder.c }

// site is the configuration with which a story begins.
func (s story) site() (*site, []string) {
	names := nineNodes[:s.Members]
	if s.Witness {
		names = nineNodes[:s.Members+1]
	}
	conf := &site{detection: s.Pace, cluster: quietPolicy, groups: []siteGroup{
		{"db", []string{"sda", "sdb"}, map[string]string{}},
		{"web", []string{"sdc"}, map[string]string{}},
		{"mail", []string{"sdd"}, map[string]string{"after": `["db"]`}},
	}[:s.Groups]}
	if s.Members > 1 {
		conf.groups[0].rules["prefer"] = fmt.Sprintf("[%q]", names[1])
	}
	if s.TwoNode {
		conf.cluster += "two_node = true\n"
	}
	if s.Freezes {
		conf.cluster += "on_quorum_loss = \"freeze\"\n"
	}
	if s.Brake {
		conf.cluster = strings.Replace(conf.cluster, "storm_window = \"0s\"\n", "", 1)
	}
	conf.resource = "start_timeout = \"5s\"\nstop_timeout = \"5s\"\n"
	if s.Dogs != "" { // the watchdog's time follows
		conf.resource = "start_timeout = \"1s\"\nstop_timeout = \"1s\"\n"
	}
	for i, n := range names {
		node := siteNode{name: n, number: i + 1, links: []int{0, 1}, devices: 1, outlet: s.Outlets, dog: s.Dogs != ""}
		if s.Witness && i == s.Members {
			node = siteNode{name: n, number: i + 1, links: []int{0, 1}, role: "witness"}
		}
		conf.nodes = append(conf.nodes, node)
	}
	return conf, nineNodes[len(names):max(len(names), 6)]
}

// tell has a story happen. All judges look on; at the end all is healed, and has to run. It returns what was gone through.
func tell(t *testing.T, s story) *coverage {
	seen := newCoverage()
	synctest.Test(t, func(t *testing.T) {
		conf, spares := s.site()
		c := New(t, Options{Site: conf, Seed: s.Seed, BootTime: 3 * time.Second, Spares: spares, Witness: seen})
		if s.Dogs != "" {
			c.giveDogs(s.Dogs == "tested")
		}
		if s.Old {
			c.speak(1, slices.Concat(c.Nodes, spares)...)
		}
		c.Start()
		_, stop := c.keepLedger()
		defer stop()
		x := &tale{t: t, story: s, seen: seen, gone: map[string]time.Time{}, mixture: mixture{
			disaster: disaster{disorder: disorder{c: c}, wiped: len(nineNodes)}, mover: mover{c: c, hasty: true},
			offered: map[string]*site{}, copies: map[string]*consensus.Stores{},
		}}
		defer seen.follow(c)()
		x.luck(s.Seed)
		known := map[string]torture{}
		for _, f := range tortures() {
			known[f.name] = f
		}
		for i, e := range s.Events {
			time.Sleep(e.After)
			x.luck(e.Seed)
			if known[e.Do].do == nil {
				t.Errorf("event %d is nothing that can happen: %q\n%s", i, e.Do, c.Report())
				return
			}
			n, other := x.whom(e)
			c.note("-- %d: %s: %s, %s", i, e, n, other)
			seen.begin(e.Do, e.For+5*c.Detection)
			known[e.Do].do(x, e, n, other)
			x.follow()
			if hasty := seen.orders(); len(hasty) > 0 {
				t.Errorf("%s\n%s", strings.Join(hasty, "\n"), c.Report())
			}
			if c.Problems() != nil || t.Failed() {
				return
			}
		}
		x.end()
	})
	return seen
}

// luck is what an event leaves open, by its own seed.
func (x *tale) luck(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 11))
	x.disorder.rng, x.mover.rng = rng, rng
}

// whom gives the nodes that an event names.
func (x *tale) whom(e event) (n, other string) {
	c := x.c()
	n = c.Nodes[e.A%len(c.Nodes)]
	switch e.At {
	case "holder":
		if g := x.group(e.A); g != "" && slices.Contains(c.Nodes, c.Owner(g)) {
			n = c.Owner(g)
		}
	case "coordinator":
		if leads := c.Coordinator(); leads != "" {
			n = leads
		}
	}
	if x.lostNow(n) {
		n = c.Nodes[(slices.Index(c.Nodes, n)+1)%len(c.Nodes)]
	}
	others := x.others(n)
	return n, others[e.B%len(others)]
}

// lostNow reports whether a node is lost, and is to stay so for now.
func (x *tale) lostNow(n string) bool { return time.Now().Before(x.gone[n]) }

// others are all nodes but these.
func (x *tale) others(but ...string) []string {
	return slices.DeleteFunc(slices.Clone(x.c().Nodes), func(n string) bool { return slices.Contains(but, n) })
}

func (x *tale) group(i int) string {
	if groups := x.c().Groups; len(groups) > 0 {
		return groups[i%len(groups)]
	}
	return ""
}

// resources are the names of all that any group may have.
func (x *tale) resources() (all []string) {
	for disk := 'a'; disk < 'i'; disk++ {
		all = append(all, "on-sd"+string(disk))
	}
	return all
}

// back has a host run again after a while, whatever became of it.
func (x *tale) back(n string, after time.Duration) {
	x.later(after, func() {
		if !x.lostNow(n) {
			x.c().Boot(n)
		}
	})
}

// act does something after a while that does more harm meanwhile: the end waits for it.
func (x *tale) act(after time.Duration, do func()) {
	x.acts.Add(1)
	x.later(after, func() {
		defer x.acts.Add(-1)
		do()
	})
}

// still reports whether nothing is under way that could do harm, as far as the story has it in its hands.
func (x *tale) still() bool { return x.acts.Load() == 0 && x.asked.Load() == 0 }

func (x *tale) mend(n string, after time.Duration) { x.later(after, func() { x.c().MendDisk(n) }) }

func (x *tale) freeze(n string, long time.Duration) {
	x.c().Freeze(n)
	x.later(long, func() { x.c().Thaw(n) })
}

func (x *tale) restart(n string, away time.Duration) {
	x.c().wg.Go(func() { x.c().RestartDaemon(n, away) })
}

// cut cuts ways, and heals them.
func (x *tale) cut(e event, others []string, way func(o string) [2]string) {
	c := x.c()
	for _, o := range others {
		w := way(o)
		c.note("cut from %s to %s for %s", w[0], w[1], e.For)
		c.Net.Cut(w[0], w[1])
		x.later(e.For, func() { c.Net.Heal(w[0], w[1]) })
	}
}

// weather changes the network for a while.
func (x *tale) weather(w *weather, value float64, e event) {
	*w = weather{value, time.Now().Add(e.For)}
	x.blow()
	x.later(e.For, x.blow)
}

func (x *tale) blow() {
	now := func(w weather) float64 {
		if time.Now().Before(w.until) {
			return w.value
		}
		return 0
	}
	c := x.c()
	c.note("network: %.2f lost, %.2f twice, %.2f s late", now(x.loss), now(x.twice), now(x.late))
	c.Net.Loss(now(x.loss))
	c.Net.Duplicate(now(x.twice))
	c.Net.Delay(200*time.Microsecond, 600*time.Microsecond+time.Duration(now(x.late)*float64(c.Detection)))
}

// depart stops the daemon in order, and starts it again after a while.
func (x *tale) depart(n string, e event) {
	c := x.c()
	h := c.hosts[n]
	h.mu.Lock()
	boot, runs := h.boots, h.process != nil
	h.mu.Unlock()
	if !runs {
		return
	}
	x.act(0, func() {
		c.Depart(n)
		if e.X < 0.3 {
			c.CutPower(n) // a shutdown
		}
		time.Sleep(e.For / 2)
		h.mu.Lock()
		on, same := h.on, h.boots == boot
		h.mu.Unlock()
		if on && same {
			h.start()
		} else {
			c.Boot(n)
		}
	})
}

// lose takes what a node's disk has, all or what is newer than a copy; of a minority of the voters of now. Of two nodes, it is the one
// that the other one goes on without.
func (x *tale) lose(n string, e event, older bool) {
	c := x.c()
	was := x.copies[n]
	if older && was == nil {
		x.copies[n] = c.hosts[n].copyDisk()
		return
	}
	spare := len(c.Nodes) == 2 && c.alone(x.others(n)[0])
	if !spare && (x.lost >= (len(c.Nodes)-1)/2 || !c.votes(c.Nodes...)) || c.hosts[n].ill() {
		return
	}
	x.lost++
	delete(x.copies, n)
	c.CutPower(n)
	if older {
		c.note("the disk of %s is what it was when the copy was made", n)
		c.hosts[n].set(func(h *Host) { h.stores = was })
	} else {
		c.WipeDisk(n)
	}
	x.back(n, e.For/4)
}

// ask has an operator at some node ask for a change.
func (x *tale) ask(r api.ChangeRequest) {
	c := x.c()
	at := c.Coordinator()
	if at == "" {
		return
	}
	r.By = "anna"
	c.note("an operator at %s: %+v", at, r)
	x.operate(at, func(ctx context.Context, op api.Backend) { _, _ = op.Change(ctx, r) })
}

// calm heals all for a while. A cluster in trouble accepts few changes, and can bear the loss of a disk only once.
func (x *tale) calm(long time.Duration) {
	c := x.c()
	x.heals()
	time.Sleep(long)
	if long > 10*c.Detection && c.up() == len(c.Nodes) && c.votes(c.Nodes...) {
		x.lost = 0
	}
}

// heals heals everything that an event may have begun.
func (x *tale) heals() {
	c := x.c()
	clear(x.gone)
	x.loss, x.twice, x.late = weather{}, weather{}, weather{}
	x.healAll()
	x.blow()
	for _, n := range slices.Concat(c.Nodes, c.Spares) {
		for _, device := range c.devices(n) {
			c.BMC[device].Behave(bmc.Behavior{Answer: 2 * time.Millisecond})
			c.BMC[device].Release()
			for _, o := range c.Nodes {
				c.Blind(o, device, false)
			}
		}
		c.slowApply(n, 0)
		for _, g := range c.Groups {
			for _, r := range x.resources() {
				c.Storage.Set(n, g, r, "start", 0)
				c.Storage.Set(n, g, r, "stop", 0)
			}
		}
	}
	for _, n := range c.Nodes {
		c.Boot(n)
	}
}
