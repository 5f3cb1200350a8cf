package sim

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/state"
	storage "github.com/hamgr/hamgr/resources/fake"
)

var ledgerTime = flag.Duration("ledger", 15*time.Second, "for how long TestLedger begins further clusters")

// TestLedger lets a writer in each group stamp its token on the shared storage, through 100 operations drawn at random:
// moves, restarts, nodes that stand by, groups that are disabled, maintenance, resources that fail, daemons that
// restart, nodes that crash and that freeze.
func TestLedger(t *testing.T) {
	seed := beginSeed()
	writes, turns, clusters := 0, 0, uint64(0)
	for began := time.Now(); clusters == 0 || time.Since(began) < *ledgerTime; clusters++ {
		s := seed + clusters
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			w, n := ledgerSchedule(t, s)
			writes, turns = writes+w, turns+n
		})
		if t.Failed() {
			return // one report is long enough
		}
	}
	t.Logf("%d clusters from seed %d, 100 operations each: %d writes, the token changed %d times", clusters, seed, writes, turns)
	if turns < 5*int(clusters) {
		t.Errorf("the token changed only %d times: nothing was tried", turns)
	}
}

func ledgerSchedule(t *testing.T, seed uint64) (writes, turns int) {
	rng := rand.New(rand.NewPCG(seed, 2))
	o := Options{
		Groups: []string{"db", "web", "mail"}, Seed: seed, Detection: time.Second, BootTime: 3 * time.Second,
		Resource: fmt.Sprintf("on_fail = %q\nstart_delay = \"%dms\"\nstop_delay = \"%dms\"",
			[]string{"restart", "restart", "move", "stop", "ignore", "fence"}[rng.IntN(6)], rng.IntN(300), rng.IntN(300)),
		Keys: map[string]string{"db": `failback = "always"`, "web": "failure_expiry = \"20s\"", "mail": "restart_window = \"10s\"\nrestarts = 2"},
	}
	if rng.IntN(2) == 0 {
		o.Keys["web"] += "\n" + []string{"after", "with", "apart"}[rng.IntN(3)] + " = [\"db\"]"
	}
	if rng.IntN(3) == 0 {
		o.Nodes = []string{"alpha", "beta", "gamma", "delta", "epsilon"}
	}
	run(t, o, func(t *testing.T, c *Cluster) {
		l, stop := c.keepLedger()
		defer stop()
		d := &disorder{c: c, rng: rng}
		for range 100 {
			time.Sleep(time.Duration(rng.Int64N(int64(1500 * time.Millisecond))))
			d.operation()
			if c.Problems() != nil {
				break
			}
		}
		if c.Problems() == nil {
			d.heal()
			for _, n := range c.Nodes {
				d.healResources(n)
			}
			c.WaitFor(15*time.Minute, "every group runs once, and no order keeps anything", d.allRun)
		}
		writes, turns = l.Writes, l.Turns
	})
	return writes, turns
}

// operation draws what becomes of a group or a node.
func (d *disorder) operation() {
	c := d.c
	n := c.Nodes[d.rng.IntN(len(c.Nodes))]
	group := c.Groups[d.rng.IntN(len(c.Groups))]
	d.faults++
	switch d.rng.IntN(17) {
	case 0, 1, 2, 3, 4, 5:
		d.change(n)
	case 6, 7:
		owner := c.Owner(group)
		c.note("%s/app dies on %s: %v", group, owner, c.Storage.Kill(owner, group, "app"))
	case 8:
		op, mode := []string{"start", "stop"}[d.rng.IntN(2)], storage.Mode(d.rng.IntN(3))
		c.note("%s of %s/app on %s: mode %d", op, group, n, mode)
		c.Storage.Set(n, group, "app", op, mode)
	case 9:
		c.note("the resources of %s work", n)
		d.healResources(n)
	case 10:
		if c.hosts[n].daemon() != nil {
			c.RestartDaemon(n, time.Duration(d.rng.Int64N(int64(3*time.Second))))
		}
	case 11:
		c.Crash(n)
	case 12:
		c.Freeze(n)
	case 13, 14, 15:
		c.Thaw(n)
		c.Heal(n)
	case 16:
		c.Cut(n)
	}
}

// change draws an order of an operator at a host, and does not wait for what comes of it.
func (d *disorder) change(at string) {
	c := d.c
	n := c.Nodes[d.rng.IntN(len(c.Nodes))]
	group := c.Groups[d.rng.IntN(len(c.Groups))]
	r := []api.ChangeRequest{
		{Verb: api.ChangeMove, Group: group, Node: n},
		{Verb: api.ChangeMove, Group: group, Node: n, ForMS: 1 + d.rng.Int64N(20_000)},
		{Verb: api.ChangeMove, Group: group, Away: true},
		{Verb: api.ChangeMove, Group: group, End: true},
		{Verb: api.ChangeRestart, Group: group},
		{Verb: api.ChangeRestart, Group: group},
		{Verb: api.ChangeDisable, Group: group},
		{Verb: api.ChangeEnable, Group: group},
		{Verb: api.ChangeEnable, Group: group},
		{Verb: api.ChangeClear, Group: group},
		{Verb: api.ChangeStandby, Node: n},
		{Verb: api.ChangeOnline, Node: n},
		{Verb: api.ChangeOnline, Node: n},
		[]api.ChangeRequest{
			{Verb: api.ChangeMaintenanceOn, Node: n},
			{Verb: api.ChangeMaintenanceOn, Group: group},
			{Verb: api.ChangeMaintenanceOn},
		}[d.rng.IntN(3)],
		{Verb: api.ChangeMaintenanceOff},
		{Verb: api.ChangeMaintenanceOff, Node: n},
		{Verb: api.ChangeMaintenanceOff, Group: group},
	}[d.rng.IntN(17)]
	r.By = "anna"
	c.note("an operator at %s: %+v", at, r)
	d.operate(at, func(ctx context.Context, op api.Backend) { op.Change(ctx, r) })
}

// allOrdersEnded has an operator end what was ordered, and reports whether that is done.
func (d *disorder) allOrdersEnded() bool {
	orders := ends(d.c.State())
	if len(orders) == 0 {
		return true
	}
	if leader := d.c.Coordinator(); leader != "" {
		for _, r := range orders {
			r.By = "anna"
			d.operate(leader, func(ctx context.Context, op api.Backend) { op.Change(ctx, r) })
		}
		time.Sleep(time.Second)
	}
	return false
}

// allRun has an operator end all orders, also those that come through late, and reports whether every group runs. Of one
// that runs but for a resource whose failure is ignored, an operator has to think.
func (d *disorder) allRun() bool {
	c := d.c
	run := d.allOrdersEnded()
	for _, name := range c.Groups {
		run = run && c.Runs(name)
		g := c.State().Groups[name]
		if c.Runs(name) || !strings.Contains(c.Resource, "ignore") || g.Grant == nil || g.Grant.Phase != state.Started {
			continue
		}
		if leader := c.Coordinator(); leader != "" {
			d.operate(leader, func(ctx context.Context, op api.Backend) {
				op.Change(ctx, api.ChangeRequest{Verb: api.ChangeRestart, Group: name, Token: g.Grant.Token, By: "anna"})
			})
			time.Sleep(10 * time.Second)
		}
	}
	return run
}

// ends are the changes after which nothing that was ordered holds any more.
func ends(s *state.State) (all []api.ChangeRequest) {
	if s.Maintenance {
		all = append(all, api.ChangeRequest{Verb: api.ChangeMaintenanceOff})
	}
	for _, n := range s.NodeNames() {
		if s.Nodes[n].Standby {
			all = append(all, api.ChangeRequest{Verb: api.ChangeOnline, Node: n})
		}
		if s.Nodes[n].Maintenance {
			all = append(all, api.ChangeRequest{Verb: api.ChangeMaintenanceOff, Node: n})
		}
	}
	for _, name := range s.GroupNames() {
		g := s.Groups[name]
		if g.Maintenance {
			all = append(all, api.ChangeRequest{Verb: api.ChangeMaintenanceOff, Group: name})
		}
		if g.Disabled || g.Halted != "" {
			all = append(all, api.ChangeRequest{Verb: api.ChangeEnable, Group: name})
		}
	}
	return all
}
