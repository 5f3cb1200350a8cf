package sim

import (
	"testing"
	"time"

	bmc "github.com/hamgr/hamgr/agents/fake"
)

// TestSnapshotBringsANodeBack keeps a node away until the log of its time is gone, so that it
// comes back by a snapshot; then it has to carry on for both others.
func TestSnapshotBringsANodeBack(t *testing.T) {
	pick(t, Options{Detection: time.Second, Groups: []string{"db", "web"}}, false, func(t *testing.T, c *Cluster, owner string) {
		c.Crash(owner) // so that there is something to remember
		c.WaitRunning(time.Minute)
		c.WaitFor(time.Minute, owner+" is back", func() bool { n := c.State().Nodes[owner]; return n.Up && n.Op == 0 })
		idle := "gamma"
		c.Crash(idle)
		c.WaitRunning(time.Minute)
		c.WaitFor(time.Minute, "it is back", func() bool { n := c.State().Nodes[idle]; return n.Up && n.Op == 0 })
		c.BMC[idle].Behave(bmc.Behavior{Command: "ignore"})
		c.Crash(idle)
		time.Sleep(30 * time.Minute)
		c.BMC[idle].Behave(bmc.Behavior{})
		c.Boot(idle)
		c.WaitRunning(time.Minute)
		time.Sleep(20 * time.Second)
		first := c.Coordinator()
		c.RestartDaemon(first, 5*time.Second)
		c.WaitRunning(time.Minute)
		time.Sleep(20 * time.Second)
	})
}

// TestRestartOfAllDaemons: an upgrade of all nodes at once stops no service and shoots nobody.
func TestRestartOfAllDaemons(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 30 * time.Second} {
		t.Run(away.String(), func(t *testing.T) {
			pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
				before := token(c)
				for _, n := range c.Nodes {
					c.wg.Go(func() { c.RestartDaemon(n, away) })
				}
				time.Sleep(away + time.Minute)
				if token(c) != before || !c.Runs("db") || len(c.State().Operations) > 0 {
					t.Errorf("token %d, runs %v\n%s", token(c), c.Runs("db"), c.Report())
				}
				for _, e := range c.Storage.Events() {
					if e.What == "stopping" || e.What == "died" {
						t.Errorf("the service was stopped: %v", e)
					}
				}
			})
		})
	}
}
