package sim

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/state"
	storage "github.com/hamgr/hamgr/resources/fake"
)

var mixes = flag.Int("mixes", 12, "how many random schedules mix faults of all kinds with changes of the configuration")

// TestRandomMix mixes all that is drawn elsewhere: faults of one node and of many, disks that hang, are slow, are empty or come from
// an older copy, operators, daemons that stop in order, and configurations that change, with nodes, addresses, groups and disks that
// come and go. At the end all is healed, and what can run does, with the last configuration that was accepted.
func TestRandomMix(t *testing.T) {
	eachSeed(t, *mixes, mix)
}

func mix(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 6))
	s, spares := threeNodes(), []string{"delta", "epsilon", "zeta"}
	s.groups[0].rules, s.groups[1].rules = map[string]string{}, map[string]string{}
	if rng.IntN(2) == 0 {
		for i, n := range spares[:2] {
			s.nodes = append(s.nodes, siteNode{name: n, number: 4 + i, links: []int{0, 1}, devices: 1})
		}
		spares = spares[2:]
	}
	run(t, Options{Site: s, Seed: seed, BootTime: 3 * time.Second, Spares: spares}, func(t *testing.T, c *Cluster) {
		x := &mixture{
			disaster: disaster{disorder: disorder{c: c, rng: rng}, wiped: len(nineNodes)}, mover: mover{c: c, rng: rng, hasty: true},
			offered: map[string]*site{}, copies: map[string]*consensus.Stores{},
		}
		for range 30 + rng.IntN(30) {
			time.Sleep(x.within(4 * time.Second))
			x.turn()
			x.follow()
			if c.Problems() != nil {
				return
			}
		}
		x.end()
		t.Logf("%d configurations were in force", x.applied)
	})
}

// mixture draws faults and configurations. Of them, disk alone empties disks: it knows who votes.
type mixture struct {
	disaster
	mover
	offered map[string]*site             // by text
	copies  map[string]*consensus.Stores // of disks, from earlier
	lost    int                          // how many disks lost what they had
}

// turn does one thing. Now and then all is healed for a while: a cluster in trouble accepts few changes.
func (x *mixture) turn() {
	switch x.disorder.rng.IntN(9) {
	case 0, 1:
		x.fault()
	case 2, 3:
		x.outage()
	case 4:
		x.disk()
	case 5:
		x.healAll()
		time.Sleep(x.within(30 * time.Second))
	default:
		x.reconfigure()
	}
}

func (x *mixture) healAll() {
	for n := range x.disorder.c.hosts {
		x.disorder.c.MendDisk(n)
	}
	x.heal()
}

// reconfigure has an operator somewhere apply another configuration, and does not wait for what comes of it.
func (x *mixture) reconfigure() {
	wanted := x.draw()
	if len(wanted.groups) > 0 {
		x.offer(wanted)
	}
}

func (x *mixture) offer(wanted *site) {
	c := x.disorder.c
	x.offered[wanted.text()] = wanted
	req := api.ApplyRequest{Text: wanted.text(), From: c.State().Configured.Index, By: "anna"}
	at := c.Nodes[x.within2(len(c.Nodes))]
	said := x.said
	x.operate(at, func(ctx context.Context, op api.Backend) {
		res, err := op.Apply(ctx, req)
		why, _ := refused(res, err)
		c.note("an operator at %s applied %q: %v, refused %q", at, said, res.Applied, why)
	})
}

func (x *mixture) within2(n int) int { return x.mover.rng.IntN(n) }

// follow has the test go by the configuration that the log has now. Nodes that came are installed; those that went run on, or do not.
func (x *mixture) follow() {
	c := x.disorder.c
	s := x.offered[c.State().Text]
	if s == nil || s.text() == c.Site.text() {
		return
	}
	x.applied++
	old := c.Nodes
	c.Site, c.Nodes, c.Detection, c.Groups = s, s.names(), s.detection, []string{}
	for _, g := range s.groups {
		c.Groups = append(c.Groups, g.name)
	}
	for _, n := range c.Nodes {
		if !slices.Contains(old, n) {
			x.install(n)
		}
	}
	for _, n := range old {
		if !slices.Contains(c.Nodes, n) && x.within2(2) == 0 {
			c.Crash(n)
		}
	}
}

// install makes a node of a host: with an empty disk, unless it votes still, from before it was removed.
func (x *mixture) install(n string) {
	c := x.disorder.c
	c.MendDisk(n)
	c.Thaw(n)
	if d := c.hosts[c.Nodes[0]].daemon(); d == nil || slices.Contains(d.Voting(), n) {
		text := c.Site.text()
		c.Edit(n, func(string) string { return text })
		c.wg.Go(func() { c.RestartDaemon(n, time.Second) })
		return
	}
	c.install(n)
}

// disk takes a copy of a node's disk, or puts an earlier one back, or has it be empty.
func (x *mixture) disk() {
	c := x.disorder.c
	n := c.Nodes[x.within2(len(c.Nodes))]
	older := x.copies[n]
	if older == nil {
		x.copies[n] = c.hosts[n].copyDisk()
	} else if x.lost < (len(c.Nodes)-1)/2 && c.votes(c.Nodes...) && !c.hosts[n].ill() { // as many as the voters of now can bear
		x.lost++
		delete(x.copies, n)
		c.CutPower(n)
		if x.within2(2) == 0 {
			c.WipeDisk(n)
		} else {
			c.note("the disk of %s is what it was when the copy was made", n)
			c.hosts[n].set(func(h *Host) { h.stores = older })
		}
		x.later(x.within(5*time.Second), func() { c.Boot(n) })
	}
}

// end heals everything, and waits until what can run does.
func (x *mixture) end() {
	c := x.disorder.c
	x.healAll()
	quorate := time.Now()
	c.WaitFor(20*time.Minute, "all are up, run with the last configuration, and no order keeps anything", func() bool {
		x.follow()
		if c.Coordinator() != "" {
			quorate = time.Now()
		}
		if time.Since(quorate) > time.Minute { // an operation may have taken the last majority along
			c.note("an operator switches on what is off")
			x.heal()
			quorate = time.Now()
		}
		return c.up() == len(c.Nodes) && c.follow(c.Site.text()) && x.allOrdersEnded()
	})
	c.WaitFor(15*time.Minute, "every group that was granted runs", func() bool {
		for _, g := range c.Groups {
			if gr := c.State().Groups[g]; gr == nil || gr.Grant != nil && !c.active(g, gr.Grant) {
				return false
			}
		}
		return true
	})
	c.whole(10*time.Second, c.Nodes...)
	c.WaitFor(time.Minute, "these vote, and nobody else", func() bool { return c.votes(c.Nodes...) })
}

// active reports whether a group was started by its grant and is active there, with the resources of now or of an earlier configuration.
func (c *Cluster) active(group string, g *state.Grant) bool {
	return g.Phase == state.Started && slices.ContainsFunc(c.Storage.Active(), func(h storage.Holding) bool {
		return h.Group == group && h.Host == g.Node && h.Token == g.Token && h.Started
	})
}

// copyDisk is a copy of what the host's disk has now.
func (h *Host) copyDisk() *consensus.Stores {
	h.mu.Lock()
	defer h.mu.Unlock()
	copied, err := h.stores.Copy()
	if err != nil {
		h.c.t.Errorf("copy the disk of %s: %v", h.name, err)
	}
	return copied
}
