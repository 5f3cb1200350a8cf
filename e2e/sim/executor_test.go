package sim

import (
	"errors"
	"strings"
	"testing"
	"time"

	bmc "github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/state"
)

// soon has the devices read often, so that who reaches them is known within a minute.
const soon = "storm_window = \"0s\"\nquarantine_window = \"0s\"\nhealth_interval = \"20s\"\n"

// TestLiarWhomOthersContradict: a BMC says off of a node that runs. The coordinator cannot know better by itself, since its
// way to the node is cut. The executor hears it; or only a third node does, through which it greets the coordinator.
func TestLiarWhomOthersContradict(t *testing.T) {
	nodes := []string{"alpha", "beta", "gamma", "delta", "epsilon"}
	for name, executorHears := range map[string]bool{"the executor hears it": true, "a third node hears it": false} {
		t.Run(name, func(t *testing.T) {
			pick(t, Options{Nodes: nodes, Cluster: soon}, false, func(t *testing.T, c *Cluster, owner string) {
				leader := c.Coordinator()
				executor := other(c, owner, leader)
				deaf := []string{leader}
				if !executorHears {
					deaf = append(deaf, executor)
				}
				for _, n := range deaf {
					c.Net.Cut(n, owner)
					c.Net.Cut(owner, n)
				}
				for _, n := range nodes {
					c.Blind(n, owner, n != executor)
				}
				time.Sleep(time.Minute)
				c.BMC[owner].Behave(bmc.Behavior{Status: "off", Command: "ignore"})
				go c.Operator(leader).Fence(t.Context(), api.FenceRequest{Node: owner, Action: api.ActionOff, By: "anna"}, func(api.FenceEvent) {})
				tried := func() bool {
					o := lastOp(c, owner)
					return o != nil && o.Executor == executor && o.Failures > 0
				}
				c.WaitFor(2*time.Minute, executor+" tries", tried)
				time.Sleep(time.Minute)
				if o := lastOp(c, owner); o.Proof != nil {
					t.Errorf("proven off though it runs: %+v", o.Proof)
				}
				c.BMC[owner].Behave(bmc.Behavior{})
			})
		})
	}
}

// TestLateOffOfEarlierExecutor: an executor got leave for its command and was cut off while its agent was still at it.
// Another node proves the target off meanwhile. It is switched on only when the first one's command
// can no longer arrive: the new boot would be shot by an order against the old one.
func TestLateOffOfEarlierExecutor(t *testing.T) {
	nodes := []string{"alpha", "beta", "gamma", "delta", "epsilon"}
	pick(t, Options{Nodes: nodes, Cluster: soon, Detection: time.Second, BootTime: time.Second}, false, func(t *testing.T, c *Cluster, owner string) {
		leader := c.Coordinator()
		executor := other(c, owner, leader)
		for _, n := range nodes {
			c.Blind(n, owner, n != executor)
		}
		time.Sleep(time.Minute)
		c.BMC[owner].Behave(bmc.Behavior{Stall: []string{"off"}})
		before := token(c)
		c.Freeze(owner)
		c.WaitFor(time.Minute, executor+" sends off", func() bool { return len(offs(c.BMC[owner])) == 1 })
		c.BMC[owner].Behave(bmc.Behavior{})
		for _, n := range nodes {
			c.Blind(n, owner, false)
		}
		c.Cut(executor)
		time.AfterFunc(9*time.Second, c.BMC[owner].Release)
		takenOver(t, c, owner, before, 10*time.Second)
		c.WaitFor(time.Minute, owner+" is back", func() bool { n := c.State().Nodes[owner]; return n.Up && n.Op == 0 })
		boot := c.State().Nodes[owner].Boot
		time.Sleep(time.Minute)
		if o := lastOp(c, owner); o.Phase != state.Done || c.State().Nodes[owner].Boot != boot || c.hosts[owner].daemon() == nil {
			t.Errorf("its new boot %s was shot: %+v, %+v", boot, *c.State().Nodes[owner], *o)
		}
	})
}

// TestStoppedDaemonLeavesNoSession: BMCs have few sessions, and keep one that is left behind for minutes. A daemon that is
// restarted while it reads closes its own.
func TestStoppedDaemonLeavesNoSession(t *testing.T) {
	run(t, Options{Cluster: soon}, func(t *testing.T, c *Cluster) {
		leader := c.Coordinator()
		target := other(c, leader, "")
		c.BMC[target].Behave(bmc.Behavior{Answer: 200 * time.Millisecond})
		c.WaitFor(time.Minute, "a session is open", func() bool { return c.BMC[target].Handles() > 0 })
		c.StopDaemon(leader)
		if n := c.BMC[target].Handles(); n > 0 {
			t.Errorf("%d sessions are left behind", n)
		}
	})
}

// TestRehearsalWithDeadBMC: a rehearsal finds out that the BMC does not answer at all. The node runs on, and is
// not kept from its groups by a power-on that nobody can read back.
func TestRehearsalWithDeadBMC(t *testing.T) {
	pick(t, Options{Cluster: soon}, false, func(t *testing.T, c *Cluster, owner string) {
		standby(t, c, owner, true)
		c.WaitFor(time.Minute, "db has moved", func() bool { return c.Owner("db") != owner && c.Runs("db") })
		for _, n := range c.Nodes {
			c.Blind(n, owner, true)
		}
		op := c.Operator(c.Coordinator())
		_, err := op.Fence(t.Context(), api.FenceRequest{Node: owner, Action: api.ActionRehearse, Level: 1, By: "anna"}, func(api.FenceEvent) {})
		if !errors.Is(err, api.ErrFailed) {
			t.Errorf("rehearsed: %v", err)
		}
		c.WaitFor(5*time.Minute, owner+" is free again", func() bool { return c.State().Nodes[owner].Op == 0 })
		if n := c.State().Nodes[owner]; n.Unclean != "" || !n.Up {
			t.Errorf("%+v", *n)
		}
		standby(t, c, owner, false)
	})
}

// TestFilesThatDisagreeOnFeeds: one node has a file by which beta has two feeds. Every operator sees it.
func TestFilesThatDisagreeOnFeeds(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *Cluster) {
		differ := func() bool {
			for _, n := range c.Nodes {
				if status, err := c.Operator(n).Status(t.Context()); err != nil || !says(status, "files of gamma and "+c.Coordinator()+" differ") {
					return false
				}
			}
			return true
		}
		time.Sleep(10 * time.Second)
		if differ() {
			t.Fatal("all have the same file")
		}
		c.Edit("gamma", func(text string) string {
			return strings.Replace(text, "device = \"beta\"\n", "device = \"beta\"\nplugs = { beta = [\"1\", \"2\"] }\n", 1)
		})
		c.RestartDaemon("gamma", time.Second)
		c.WaitFor(time.Minute, "it is told", differ)
	})
}
