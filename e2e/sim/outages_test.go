package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestRandomOutages adds to the faults of TestRandomSchedules those that hit many at once, or last long: blackouts after which
// the hosts come back in any order, or late; restarts of many daemons; disks that hang, are slow, or are empty; pauses from
// a tenth of a detection time to sixty; cuts of one way. At the end the cluster is whole and everything runs.
func TestRandomOutages(t *testing.T) {
	eachSeed(t, (*schedules+3)/4, outages)
}

func outages(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	o := Options{Groups: []string{"db", "web"}, Seed: seed, Detection: time.Second, BootTime: 3 * time.Second}
	if rng.IntN(3) == 0 {
		o.Nodes = nineNodes[:5]
	}
	run(t, o, func(t *testing.T, c *Cluster) {
		d := &disaster{disorder: disorder{c: c, rng: rng}}
		for range 10 + rng.IntN(20) {
			time.Sleep(d.within(2500 * time.Millisecond))
			if rng.IntN(3) == 0 {
				d.fault()
			} else {
				d.outage()
			}
			if c.Problems() != nil {
				return
			}
		}
		for _, n := range c.Nodes {
			c.MendDisk(n)
		}
		d.heal()
		// What failed on every node is tried again when the failures expire.
		quorate := time.Now()
		c.WaitFor(15*time.Minute, "every group runs once, and no order keeps anything", func() bool {
			if c.Coordinator() != "" {
				quorate = time.Now()
			}
			// An operation that was under way may have taken the last majority along. Only a person can switch that on.
			if time.Since(quorate) > time.Minute {
				c.note("an operator switches on what is off")
				for _, n := range c.Nodes {
					c.Boot(n)
				}
				quorate = time.Now()
			}
			return d.allRun()
		})
		c.WaitFor(time.Minute, "all are up", func() bool { return c.up() == len(c.Nodes) })
		c.whole(10*time.Second, c.Nodes...)
	})
}

// disaster draws faults that hit many, or last long.
type disaster struct {
	disorder
	wiped int
}

// within draws a time.
func (d *disaster) within(most time.Duration) time.Duration {
	return time.Duration(d.rng.Int64N(int64(most)))
}

// some draws nodes, at least one, in any order.
func (d *disaster) some() []string {
	all := slices.Clone(d.c.Nodes)
	d.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+d.rng.IntN(len(all))]
}

// later does something after a while, besides what else goes on.
func (d *disaster) later(after time.Duration, do func()) {
	d.c.wg.Go(func() {
		time.Sleep(after)
		do()
	})
}

// long draws the length of a pause, from a tenth of a detection time to sixty; short ones are as frequent as long ones.
func (d *disaster) long() time.Duration {
	tenths := 1 << d.rng.IntN(10)
	return d.c.Detection * time.Duration(min(tenths, 600)) / 10
}

func (d *disaster) outage() {
	c := d.c
	n := c.Nodes[d.rng.IntN(len(c.Nodes))]
	switch d.rng.IntN(10) {
	case 0: // some stay dark until the end
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
	case 2, 3:
		for _, n := range d.some() {
			c.Freeze(n)
			d.later(d.long(), func() { c.Thaw(n) })
		}
	case 4:
		for _, n := range d.some() {
			c.HangDisk(n)
			d.later(d.long(), func() { c.MendDisk(n) })
		}
	case 5:
		c.HangDisk(n)
		d.later(d.within(2*c.Detection), func() { c.MendDisk(n) })
	case 6:
		c.SlowDisk(n, d.within(c.Detection*2/5))
		d.later(d.long(), func() { c.MendDisk(n) })
	case 7:
		d.wipe(n)
	case 8:
		in := d.rng.IntN(2) == 0
		c.note("one-way cut of %s, incoming %v", n, in)
		for _, peer := range c.Nodes {
			if in && peer != n {
				c.Net.Cut(peer, n)
			} else if peer != n {
				c.Net.Cut(n, peer)
			}
		}
	case 9:
		c.note("all links are healed")
		c.Net.HealAll()
	}
}

// wipe empties a disk. More than a minority of them would be the end of what the cluster remembers.
func (d *disaster) wipe(n string) {
	if c := d.c; d.wiped < (len(c.Nodes)-1)/2 && !c.hosts[n].ill() {
		d.wiped++
		c.WipeDisk(n)
		if d.rng.IntN(2) == 0 {
			c.Reboot(n, d.within(5*time.Second))
		} else {
			away := d.within(2 * time.Second)
			c.wg.Go(func() { c.RestartDaemon(n, away) })
		}
	}
}
