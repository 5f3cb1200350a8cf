package sim

import (
	"context"
	"fmt"
	"testing"
	"time"

	bmc "github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/cluster/api"
)

// TestDepart: a node is stopped in order: its groups leave first, nobody is shot, and it is not missed.
func TestDepart(t *testing.T) {
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprintf("the owner leads %v", leads), func(t *testing.T) {
			pick(t, Options{Text: true, Detection: time.Second}, leads, func(t *testing.T, c *Cluster, owner string) {
				time.Sleep(3 * time.Second)
				before := token(c)
				c.Depart(owner)
				if len(c.held(owner)) > 0 {
					t.Errorf("left behind: %v", c.held(owner))
				}
				c.WaitFor(10*c.Detection, "db runs elsewhere", func() bool { return c.Owner("db") != owner && c.Runs("db") && token(c) > before })
				c.CutPower(owner)
				time.Sleep(time.Minute)
				quiet(t, c)
				c.Boot(owner)
				c.WaitFor(time.Minute, "it is back", func() bool { return c.up() == 3 })
			})
		})
	}
}

// TestDepartWithoutQuorum: there is nobody to ask. The groups are stopped here.
func TestDepartWithoutQuorum(t *testing.T) {
	pick(t, Options{Text: true, Detection: time.Second}, false, func(t *testing.T, c *Cluster, owner string) {
		time.Sleep(3 * time.Second)
		c.BMC[owner].Behave(bmc.Behavior{Command: "refuse"})
		c.Cut(owner)
		began := time.Now()
		c.Depart(owner)
		if len(c.held(owner)) > 0 || time.Since(began) > 10*c.Detection {
			t.Errorf("after %s left behind: %v", time.Since(began), c.held(owner))
		}
	})
}

// TestDepartInMaintenance: what an operator wants left alone stays as it is.
func TestDepartInMaintenance(t *testing.T) {
	pick(t, Options{Text: true, Detection: time.Second}, false, func(t *testing.T, c *Cluster, owner string) {
		time.Sleep(3 * time.Second)
		change(t, c, api.ChangeRequest{Verb: api.ChangeMaintenanceOn, Group: "db"})
		events := len(c.Storage.Events())
		c.Depart(owner)
		time.Sleep(time.Minute)
		quiet(t, c)
		if len(c.touched(events)) > 0 || len(c.held(owner)) != 2 {
			t.Errorf("touched %v", c.touched(events))
		}
		c.hosts[owner].start()
		c.WaitFor(time.Minute, "it is back", func() bool { return c.up() == 3 && !c.State().Nodes[owner].Leaving })
		change(t, c, api.ChangeRequest{Verb: api.ChangeMaintenanceOff, Group: "db"})
		time.Sleep(5 * time.Second)
		if len(c.touched(events)) > 0 || !c.Runs("db") {
			t.Errorf("touched %v", c.touched(events))
		}
	})
}

// TestDepartOfAll: all are stopped, one after the other, and then the hosts lose their power. Nobody is shot then or afterwards.
func TestDepartOfAll(t *testing.T) {
	run(t, Options{Text: true, Detection: time.Second, Groups: []string{"db", "web", "mail"}}, func(t *testing.T, c *Cluster) {
		time.Sleep(3 * time.Second)
		for _, n := range c.Nodes {
			c.Depart(n)
			c.CutPower(n)
			time.Sleep(time.Second)
		}
		if len(c.Storage.Active()) > 0 {
			t.Errorf("left behind: %v", c.Storage.Active())
		}
		time.Sleep(time.Minute)
		for _, n := range c.Nodes {
			c.Boot(n)
		}
		c.WaitRunning(20 * c.Detection)
		c.WaitFor(time.Minute, "all are in", func() bool { return c.up() == 3 })
		quiet(t, c)
	})
}

// TestDeathWhileDeparting: the node dies in the middle of it. It is fenced as any other.
func TestDeathWhileDeparting(t *testing.T) {
	for _, after := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			pick(t, Options{Text: true, Detection: time.Second, Resource: "stop_delay = \"2s\""}, false, func(t *testing.T, c *Cluster, owner string) {
				time.Sleep(3 * time.Second)
				before := token(c)
				c.wg.Go(func() { c.Depart(owner) })
				time.Sleep(after)
				c.Crash(owner)
				takenOver(t, c, owner, before, 4*c.Detection)
			})
		})
	}
}

// TestDeathWhileAway: a daemon says that it restarts, and its host dies. It is fenced when the time is over that was announced.
func TestDeathWhileAway(t *testing.T) {
	pick(t, Options{Text: true, Detection: time.Second}, false, func(t *testing.T, c *Cluster, owner string) {
		time.Sleep(3 * time.Second)
		before := token(c)
		p := c.hosts[owner].take()
		if err := p.end(func(ctx context.Context) error { return p.Restart(ctx, "the service is restarted") }); err != nil {
			t.Error(err)
		}
		c.Crash(owner)
		began := time.Now()
		time.Sleep(10 * time.Second)
		quiet(t, c)
		takenOver(t, c, owner, before, 15*time.Second)
		if took := time.Since(began); took < 14*time.Second || took > 18*time.Second {
			t.Errorf("after %s; announced were 15 s", took)
		}
	})
}
