package sim

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	bmc "github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/cluster/api"
)

var (
	schedules = flag.Int("schedules", 80, "how many random schedules of faults are run")
	firstSeed = flag.Uint64("seed", 0, "seed of the first schedule; 0 takes one from the clock")
)

// TestRandomSchedules throws random faults, several at once, at clusters of three and five
// nodes. At every step the judges watch; at the end everything is healed, and every group has to run
// again.
func TestRandomSchedules(t *testing.T) {
	faults := 0
	if !eachSeed(t, *schedules, func(t *testing.T, s uint64) { faults += schedule(t, s) }) {
		return
	}
	t.Logf("%d schedules, %d faults", *schedules, faults)
}

// beginSeed is the first seed of a test that draws.
func beginSeed() uint64 {
	if *firstSeed != 0 {
		return *firstSeed
	}
	return uint64(time.Now().UnixNano())
}

// eachSeed runs a test n times, each with a seed of its own, and ends at the first that fails: one report is long enough.
func eachSeed(t *testing.T, n int, run func(t *testing.T, seed uint64)) (passed bool) {
	first := beginSeed()
	for i := range n {
		seed := first + uint64(i)
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { run(t, seed) }) {
			return false
		}
	}
	return true
}

// schedule is one cluster's life under faults. It returns how many there were.
func schedule(t *testing.T, seed uint64) (faults int) {
	rng := rand.New(rand.NewPCG(seed, 0))
	o := Options{Groups: []string{"db", "web"}, Seed: seed, Detection: time.Second, BootTime: 3 * time.Second}
	if rng.IntN(2) == 0 {
		o.Nodes = []string{"alpha", "beta", "gamma", "delta", "epsilon"}
	}
	run(t, o, func(t *testing.T, c *Cluster) {
		d := &disorder{c: c, rng: rng}
		for range 15 + rng.IntN(25) {
			time.Sleep(time.Duration(rng.Int64N(int64(2500 * time.Millisecond))))
			d.fault()
			if c.Problems() != nil {
				return
			}
		}
		faults = d.faults
		d.heal()
		// What failed on every node is tried again when the failures expire.
		c.WaitFor(15*time.Minute, "every group runs once, and no order keeps anything", d.allRun)
	})
	return faults
}

// disorder draws faults.
type disorder struct {
	c      *Cluster
	rng    *rand.Rand
	faults int
	asked  atomic.Int32 // what operators wait for
}

func (d *disorder) fault() {
	c := d.c
	n := c.Nodes[d.rng.IntN(len(c.Nodes))]
	other := c.Nodes[d.rng.IntN(len(c.Nodes))]
	d.faults++
	switch d.rng.IntN(22) {
	case 0, 1:
		c.Crash(n)
	case 2:
		c.Reboot(n, time.Duration(d.rng.Int64N(int64(5*time.Second))))
	case 3, 4:
		c.Freeze(n)
	case 5, 6:
		c.Thaw(n)
	case 7:
		c.Cut(n)
	case 8:
		c.Heal(n)
	case 9:
		c.note("cut from %s to %s", n, other)
		c.Net.Cut(n, other)
	case 10:
		c.note("heal from %s to %s", n, other)
		c.Net.Heal(n, other)
	case 11:
		c.RestartDaemon(n, time.Duration(d.rng.Int64N(int64(2*time.Second))))
	case 12:
		b := d.behavior()
		c.note("BMC of %s: %+v", n, b)
		c.BMC[n].Behave(b)
	case 13:
		c.note("power of %s switched on by hand", n)
		c.Boot(n)
	case 14:
		c.note("%s/app dies on %s: %v", c.Groups[0], n, c.Storage.Kill(n, c.Groups[0], "app"))
	case 15:
		loss, twice := d.rng.Float64()*0.2, d.rng.Float64()*0.2
		c.note("network: %.2f lost, %.2f twice", loss, twice)
		c.Net.Loss(loss)
		c.Net.Duplicate(twice)
	case 16, 17:
		blind := d.rng.IntN(3) > 0
		c.note("%s reaches the BMC of %s: %t", n, other, !blind)
		c.Blind(n, other, blind)
	case 18:
		d.order(n, other)
	case 19, 20, 21:
		d.change(n)
	}
}

// order has an operator fence a node, and not wait for what comes of it.
func (d *disorder) order(at, target string) {
	actions := []string{api.ActionOff, api.ActionOn, api.ActionReboot, api.ActionRehearse}
	req := api.FenceRequest{Node: target, Action: actions[d.rng.IntN(len(actions))], By: "anna"}
	if req.Action == api.ActionRehearse {
		req.Level = 1
	}
	d.c.note("an operator at %s orders %s of %s", at, req.Action, target)
	d.operate(at, func(ctx context.Context, op api.Backend) { op.Fence(ctx, req, func(api.FenceEvent) {}) })
}

// operate does something as an operator at a host, if its daemon runs.
func (d *disorder) operate(at string, do func(context.Context, api.Backend)) {
	daemon := d.c.hosts[at].daemon()
	if daemon == nil {
		return
	}
	d.asked.Add(1)
	d.c.wg.Go(func() {
		defer d.asked.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		do(ctx, daemon.Operator())
	})
}

// behavior draws how a BMC misbehaves. None of them says off of a machine that runs: no
// cluster manager survives that without another witness.
func (d *disorder) behavior() bmc.Behavior {
	return []bmc.Behavior{
		{},
		{Answer: 2 * time.Millisecond},
		{Command: "refuse"},
		{Command: "ignore"},
		{Command: "error"},
		{Lag: time.Duration(d.rng.Int64N(int64(3 * time.Second)))},
		{Status: "unknown"},
		{Stall: []string{"status"}},
		{Stall: []string{"off"}, Deaf: true},
		{Rebound: time.Duration(d.rng.Int64N(int64(time.Second))), Rebounds: 2},
		{Login: true},
	}[d.rng.IntN(11)]
}

func (d *disorder) heal() {
	c := d.c
	c.note("all is healed")
	c.Net.HealAll()
	c.Net.Loss(0)
	c.Net.Duplicate(0)
	for _, n := range c.Nodes {
		c.BMC[n].Behave(bmc.Behavior{})
		c.BMC[n].Release()
		for _, other := range c.Nodes {
			c.Blind(n, other, false)
		}
		c.Heal(n)
		c.Thaw(n)
		c.Boot(n)
	}
}
