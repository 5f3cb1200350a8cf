package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	storage "github.com/hamgr/hamgr/resources/fake"
)

// TestRandomResourceFaults adds to the faults of TestRandomSchedules those of the resources: starts and
// stops that fail or hang, processes that die, daemons that are stopped in order, nodes that
// apply late, and pairs of nodes that do not hear each other.
func TestRandomResourceFaults(t *testing.T) {
	eachSeed(t, (*schedules+3)/4, resourceSchedule)
}

func resourceSchedule(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	o := Options{Groups: []string{"db", "web"}, Seed: seed, Detection: time.Second, BootTime: 3 * time.Second}
	if rng.IntN(2) == 0 {
		o.Nodes = []string{"alpha", "beta", "gamma", "delta", "epsilon"}
	}
	run(t, o, func(t *testing.T, c *Cluster) {
		d := &disorder{c: c, rng: rng}
		for range 15 + rng.IntN(25) {
			time.Sleep(time.Duration(rng.Int64N(int64(2500 * time.Millisecond))))
			if rng.IntN(3) == 0 {
				d.fault()
			} else {
				d.resourceFault()
			}
			if c.Problems() != nil {
				return
			}
		}
		d.heal()
		for _, n := range c.Nodes {
			d.healResources(n)
		}
		// What failed on every node is tried again when the failures expire.
		c.WaitFor(15*time.Minute, "every group runs once, and no order keeps anything", d.allRun)
	})
}

func (d *disorder) resourceFault() {
	c := d.c
	n := c.Nodes[d.rng.IntN(len(c.Nodes))]
	other := c.Nodes[d.rng.IntN(len(c.Nodes))]
	group := c.Groups[d.rng.IntN(len(c.Groups))]
	resource := []string{"data", "app"}[d.rng.IntN(2)]
	owner := c.Owner(group)
	switch d.rng.IntN(8) {
	case 0, 1, 2:
		c.note("%s/%s dies on %s: %v", group, resource, owner, c.Storage.Kill(owner, group, resource))
	case 3:
		op, mode := []string{"start", "stop"}[d.rng.IntN(2)], storage.Mode(d.rng.IntN(3))
		c.note("%s of %s/%s on %s: mode %d", op, group, resource, n, mode)
		c.Storage.Set(n, group, resource, op, mode)
	case 4:
		if c.hosts[n].daemon() != nil {
			c.RestartDaemon(n, time.Duration(d.rng.Int64N(int64(3*time.Second))))
		}
	case 5:
		late := time.Duration(d.rng.Int64N(int64(50 * time.Millisecond)))
		c.note("%s applies %s late", n, late)
		c.slowApply(n, late)
	case 6:
		c.note("cut between %s and %s", n, other)
		c.Net.Cut(n, other)
		c.Net.Cut(other, n)
	case 7:
		c.note("all links healed")
		c.Net.HealAll()
	}
}

func (d *disorder) healResources(node string) {
	c := d.c
	c.slowApply(node, 0)
	for _, g := range c.Groups {
		for _, r := range []string{"data", "app"} {
			for _, op := range []string{"start", "stop"} {
				c.Storage.Set(node, g, r, op, storage.Works)
			}
		}
	}
}
