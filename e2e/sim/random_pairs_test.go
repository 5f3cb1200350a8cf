package sim

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var pairs = flag.Int("pairs", 120, "how many random schedules of faults are run on two nodes without a witness")

// TestRandomPairs throws random faults, several at once, at two nodes without a witness: crashes, cuts of one way and of both, pauses,
// reboots, restarts of daemons, blackouts, devices that misbehave, operators, and disks that are empty when a node comes back
// to one that went on alone. Nobody writes twice, tokens only grow, and there are never two survivors: those would part in their
// states. At the end both are in, both vote, and everything runs.
func TestRandomPairs(t *testing.T) {
	alone := 0
	if !eachSeed(t, *pairs, func(t *testing.T, s uint64) { alone += randomPair(t, s) }) {
		return
	}
	t.Logf("%d schedules, in which one went on alone %d times", *pairs, alone)
}

func randomPair(t *testing.T, seed uint64) (alone int) {
	rng := rand.New(rand.NewPCG(seed, 4))
	on := []map[string]string{{"db": "alpha", "web": "beta"}, {"db": "beta", "web": "beta"}}[rng.IntN(2)]
	pair(t, Options{Seed: seed, Detection: time.Second, BootTime: 3 * time.Second}, on, func(t *testing.T, c *Cluster) {
		_, stop := c.keepLedger()
		defer stop()
		d := &disaster{disorder: disorder{c: c, rng: rng}}
		for range 6 + rng.IntN(14) {
			time.Sleep(d.within(8 * time.Second))
			if rng.IntN(3) > 0 {
				d.fault()
			} else {
				d.outageOfPair()
			}
			if c.Problems() != nil {
				return
			}
		}
		d.heal()
		looked := time.Now()
		c.WaitFor(20*time.Minute, "both vote, every group runs once, and no order keeps anything", func() bool {
			// Each may have shot the other one, and an operator may have ordered one off. Only a person can switch that on.
			if time.Since(looked) > time.Minute {
				c.note("an operator switches on what is off")
				for _, n := range c.Nodes {
					c.Boot(n)
				}
				looked = time.Now()
			}
			return d.allRun() && c.vote()
		})
		alone = c.logged("going on alone, by the two-node rule")
	})
	return alone
}

func (d *disaster) outageOfPair() {
	c := d.c
	n := c.Nodes[d.rng.IntN(2)]
	other := other(c, n, n)
	switch d.rng.IntN(7) {
	case 0:
		for _, n := range c.Nodes {
			c.CutPower(n)
		}
		for _, n := range d.some() {
			d.later(d.within(20*time.Second), func() { c.Boot(n) })
		}
	case 1:
		for _, n := range d.some() {
			away := d.within(3 * time.Second)
			c.wg.Go(func() { c.RestartDaemon(n, away) })
		}
	case 2:
		c.Freeze(n)
		d.later(d.long(), func() { c.Thaw(n) })
	case 3: // the survivor's daemon, or its host, dies on its way
		c.Crash(other)
		reboots := d.rng.IntN(3) == 0
		d.later(c.Detection+d.within(25*time.Second), func() {
			if reboots {
				c.Reboot(n, time.Second)
			} else {
				c.RestartDaemon(n, 100*time.Millisecond)
			}
		})
	case 4:
		c.note("links are healed")
		c.Net.HealAll()
	case 5:
		c.note("cut between the two")
		c.split([]string{n}, []string{other})
	case 6:
		if c.alone(n) && !c.hosts[other].ill() {
			c.WipeDisk(other)
			c.Reboot(other, d.within(5*time.Second))
		}
	}
}
