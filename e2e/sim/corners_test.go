package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/agents"
	bmc "github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/state"
	storage "github.com/hamgr/hamgr/resources/fake"
)

// TestEndedGrantIsNotStartedAgain: the owner reports a clean stop, the coordinator commits it, but
// the owner applies the log a little later than the answer reaches it. What it still reads as its
// grant is over, and must not be started again: another node may hold the group already.
func TestEndedGrantIsNotStartedAgain(t *testing.T) {
	for _, lag := range []time.Duration{0, 5 * time.Millisecond, 100 * time.Millisecond} {
		t.Run(lag.String(), func(t *testing.T) {
			pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
				before := token(c)
				c.slowApply(owner, lag)
				c.Storage.Set(owner, "db", "app", "start", storage.Fails)
				c.Storage.Kill(owner, "db", "app")
				c.WaitFor(time.Minute, "db runs elsewhere", func() bool { return c.Owner("db") != owner && c.Runs("db") })
				time.Sleep(10 * time.Second)
				stopped := false
				for _, e := range c.Storage.Events() {
					if e.Host != owner || e.Token != before {
						continue
					}
					stopped = stopped || e.What == "stopped" && e.Resource == "data"
					if stopped && (e.What == "starting" || e.What == "refused") {
						t.Errorf("%s after its stop was reported: %s", e.What, e.Holding)
					}
				}
			})
		})
	}
}

// TestGroupMissingFromTheFile restarts the owner's daemon with a file that lacks the group it holds.
// What runs on there was not stopped, so a clean stop must not be reported: no other node may start
// it before the owner is proven off.
func TestGroupMissingFromTheFile(t *testing.T) {
	pick(t, Options{Groups: []string{"db", "web"}}, false, func(t *testing.T, c *Cluster, owner string) {
		all := c.Groups
		c.Groups = []string{"web"}
		c.RestartDaemon(owner, 100*time.Millisecond)
		c.Groups = all
		time.Sleep(30 * time.Second)
		if g := c.State().Groups["db"]; g.Released != nil && g.Released.Proof.Kind == state.CleanStop {
			for _, h := range c.Storage.Active() {
				if h.Group == "db" && h.Token == g.Released.Token {
					t.Errorf("released by a clean stop, yet active: %s", h)
				}
			}
		}
	})
}

// TestTwoTargets: two nodes cannot stop a group, as when the storage that both use hangs, and
// one of them coordinates. Both are shot, one after the other where the majority depends on it, and
// the groups run again.
func TestTwoTargets(t *testing.T) {
	for _, nodes := range [][]string{{"alpha", "beta", "gamma"}, {"alpha", "beta", "gamma", "delta", "epsilon"}} {
		for _, lag := range []time.Duration{0, 5 * time.Second} {
			t.Run(fmt.Sprintf("%d nodes, power off takes %s", len(nodes), lag), func(t *testing.T) {
				run(t, Options{Nodes: nodes, Groups: []string{"db", "web"}}, func(t *testing.T, c *Cluster) {
					a, b := c.Owner("db"), c.Owner("web")
					if a == b || a != c.Coordinator() && b != c.Coordinator() {
						t.Fatalf("owners %s and %s, coordinator %s", a, b, c.Coordinator())
					}
					for owner, group := range map[string]string{a: "db", b: "web"} {
						c.BMC[owner].Behave(bmc.Behavior{Lag: lag})
						c.Storage.Set(owner, group, "app", "start", storage.Fails)
						c.Storage.Set(owner, group, "data", "stop", storage.Fails)
						c.Storage.Kill(owner, group, "app")
					}
					c.WaitFor(2*time.Minute, "both groups run again, after a proof", func() bool {
						return c.State().Groups["db"].Released != nil && c.State().Groups["web"].Released != nil && c.Runs("db") && c.Runs("web")
					})
					c.WaitFor(time.Minute, "both are back", func() bool {
						return c.State().Nodes[a].Boot == a+"-boot2" && c.State().Nodes[b].Boot == b+"-boot2"
					})
				})
			})
		}
	}
}

// TestShotKeepsTheMajority: a node that needs fencing is alive and part of the last majority. With its
// vote goes the power to commit the proof, to take over and to switch it on again: nothing would
// ever run. It has to wait until another voter is back.
func TestShotKeepsTheMajority(t *testing.T) {
	pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
		before := token(c)
		c.Crash("gamma")
		time.Sleep(10 * time.Second)
		c.Storage.Set(owner, "db", "app", "start", storage.Fails)
		c.Storage.Set(owner, "db", "data", "stop", storage.Fails)
		c.Storage.Kill(owner, "db", "app")
		time.Sleep(30 * time.Second)
		if c.BMC[owner].Power("") != agents.On && c.Coordinator() == "" {
			t.Errorf("%s was shot, nobody can coordinate, and nobody will switch it on again\n%s", owner, c.Report())
		}
		c.Boot("gamma")
		takenOver(t, c, owner, before, time.Minute)
	})
}

// TestPairCut takes away only what lies between the coordinator and the owner; both hear the
// third node. The service must not stay down for as long as that lasts.
func TestPairCut(t *testing.T) {
	for _, oneWay := range []string{"", "to coordinator", "to owner"} {
		t.Run("cut "+oneWay, func(t *testing.T) {
			pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
				first := c.Coordinator()
				c.note("cut between %s and %s %s", owner, first, oneWay)
				if oneWay != "to owner" {
					c.Net.Cut(owner, first)
				}
				if oneWay != "to coordinator" {
					c.Net.Cut(first, owner)
				}
				time.Sleep(10 * c.Detection)
				c.WaitRunning(time.Minute)
			})
		})
	}
}

// TestDaemonDiesInTheMiddleOfAStart: the daemon that starts a group is killed at any moment of that. The next one clears away what was
// left half started, and goes on: the group stays, under the same grant, and nothing has failed.
func TestDaemonDiesInTheMiddleOfAStart(t *testing.T) {
	for at := 50 * time.Millisecond; at < 500*time.Millisecond; at += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			c := New(t, Options{Resource: "start_delay = \"200ms\"", Prefer: []string{"beta"}, BootTime: time.Second})
			for _, n := range c.Nodes {
				c.Boot(n)
			}
			granted := func() bool { g := c.State().Groups["db"]; return g != nil && g.Grant != nil }
			for !granted() {
				time.Sleep(time.Millisecond)
			}
			owner, before := c.Owner("db"), token(c)
			time.Sleep(at)
			c.RestartDaemon(owner, 100*time.Millisecond)
			c.WaitRunning(20 * c.Detection)
			if c.Owner("db") != owner || token(c) != before || len(c.State().Groups["db"].Failures) > 0 {
				t.Errorf("killed after %s: on %s with token %d, after %s with %d; failed %v", at, c.Owner("db"), token(c), owner, before, c.State().Groups["db"].Failures)
			}
		})
	}
}

// TestLeaveIsFinal stops the daemon of a node that holds nothing, in order. From then on it is no
// member: it gets no group, and nobody waits for it.
func TestLeaveIsFinal(t *testing.T) {
	for range 10 {
		pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
			idle := "gamma"
			c.StopDaemon(idle)
			time.Sleep(2 * c.Detection)
			if n := c.State().Nodes[idle]; n.Up || !n.Left {
				t.Errorf("%s left, and yet: up %v, left %v", idle, n.Up, n.Left)
			}
		})
	}
}

// TestFileOfTheNextCoordinator: one node's file is older than the cluster's. That it leads one day is no
// order to stop the groups that it does not know.
func TestFileOfTheNextCoordinator(t *testing.T) {
	pick(t, Options{Groups: []string{"db", "web"}, Nodes: []string{"alpha", "beta", "gamma"}}, false, func(t *testing.T, c *Cluster, owner string) {
		all := c.Groups
		first := c.Coordinator()
		c.Groups = []string{"web"}
		c.RestartDaemon("gamma", 100*time.Millisecond)
		c.Groups = all
		time.Sleep(5 * time.Second)
		for range 40 { // who follows is for the others' logs and their luck to decide
			if c.Coordinator() == "gamma" {
				break
			}
			c.RestartDaemon(c.Coordinator(), 2*time.Second)
			c.WaitFor(time.Minute, "somebody leads", func() bool { return c.Coordinator() != "" })
		}
		if c.Coordinator() != "gamma" {
			t.Fatalf("%s, then %s led", first, c.Coordinator())
		}
		time.Sleep(10 * time.Second)
		if g := c.State().Groups["db"]; g == nil || g.Removed || g.Grant == nil {
			t.Errorf("db was stopped by the file of the new coordinator: %+v", g)
		}
	})
}

// TestStopGoesOnAfterRestart restarts the owner's daemon while it stops a group. The new daemon goes on
// with the stop; it must not start anything of the group.
func TestStopGoesOnAfterRestart(t *testing.T) {
	pick(t, Options{Resource: `stop_delay = "4s"`}, false, func(t *testing.T, c *Cluster, owner string) {
		before := token(c)
		c.Storage.Set(owner, "db", "app", "start", storage.Fails)
		c.Storage.Kill(owner, "db", "app")
		c.WaitFor(time.Minute, "the group is being stopped", func() bool {
			return c.State().Groups["db"].Grant.Phase == state.Stopping
		})
		time.Sleep(time.Second)
		c.Storage.Set(owner, "db", "app", "start", storage.Works)
		restarted := time.Now()
		c.RestartDaemon(owner, 100*time.Millisecond)
		c.WaitFor(time.Minute, "db runs elsewhere", func() bool { return c.Owner("db") != owner && c.Runs("db") })
		for _, e := range c.Storage.Events() {
			if e.Host == owner && e.Token == before && e.At.After(restarted) && (e.What == "starting" || e.What == "started") {
				t.Errorf("%s though the grant says stopping: %s", e.What, e.Holding)
			}
		}
	})
}

// TestNoProgressAfterRestart: the owner's daemon restarts, and its copy of the state hangs, while
// another node becomes the coordinator. It answers, but makes no progress: it must not stay for
// ever as it is.
func TestNoProgressAfterRestart(t *testing.T) {
	five := Options{Nodes: []string{"alpha", "beta", "gamma", "delta", "epsilon"}}
	pick(t, five, false, func(t *testing.T, c *Cluster, owner string) {
		before := token(c)
		first := c.Coordinator()
		c.slowApply(owner, time.Hour)
		c.Crash(first)
		c.RestartDaemon(owner, time.Second)
		c.WaitFor(2*time.Minute, "db runs elsewhere", func() bool { return token(c) > before && c.Owner("db") != owner && c.Runs("db") })
		c.slowApply(owner, 0)
	})
}

// TestNewFileEverywhere: a group is added to the file of every node, and another one is taken out. The files seed a cluster, and no
// more: what has not been applied changes nothing, whoever leads.
func TestNewFileEverywhere(t *testing.T) {
	for _, text := range []bool{false, true} {
		pick(t, Options{Groups: []string{"db", "web"}, Text: text}, false, func(t *testing.T, c *Cluster, owner string) {
			before, events := token(c), len(c.Storage.Events())
			for _, n := range c.Nodes {
				c.Edit(n, func(text string) string { return strings.ReplaceAll(text, `name = "web"`, `name = "mail"`) })
				c.RestartDaemon(n, 100*time.Millisecond)
				time.Sleep(10 * time.Second)
			}
			c.WaitRunning(10 * time.Second)
			if token(c) != before || c.Owner("db") != owner || c.State().Groups["mail"] != nil || len(c.touched(events)) > 0 {
				t.Errorf("the text is in the log: %v; db on %s with token %d after %d, mail %+v, touched %v", text, c.Owner("db"), token(c), before, c.State().Groups["mail"], c.touched(events))
			}
		})
	}
}

// TestRestartedDaemonIsAlone: the daemon restarts on a node that hears nobody, and cannot be shot. It lets go of what the
// one before it started, as that would have (S5); but not in maintenance, which it knows of from that one.
func TestRestartedDaemonIsAlone(t *testing.T) {
	holds := func(c *Cluster, host string) bool {
		return slices.ContainsFunc(c.Storage.Active(), func(h storage.Holding) bool { return h.Host == host })
	}
	pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
		before := token(c)
		c.BMC[owner].Behave(bmc.Behavior{Command: "ignore"})
		c.Cut(owner)
		c.RestartDaemon(owner, time.Second)
		time.Sleep(10 * c.Detection)
		if holds(c, owner) {
			t.Errorf("%s hears nobody and holds on: %v\n%s", owner, c.Storage.Active(), c.Report())
		}
		c.BMC[owner].Behave(bmc.Behavior{})
		c.Heal(owner)
		c.WaitFor(time.Minute, "db runs again", func() bool { return c.Runs("db") && token(c) > before })
	})
	for name, scope := range scopes("beta") {
		t.Run("in maintenance of the "+name, func(t *testing.T) {
			pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
				before := token(c)
				maintenance(t, c, scope, true)
				c.Cut(owner)
				c.RestartDaemon(owner, time.Second)
				time.Sleep(10 * c.Detection)
				if !holds(c, owner) {
					t.Errorf("stopped in maintenance: %s", c.Report())
				}
				c.Heal(owner)
				time.Sleep(10 * c.Detection)
				maintenance(t, c, scope, false)
				time.Sleep(10 * c.Detection)
				if token(c) != before || !c.Runs("db") {
					t.Errorf("token %d after %d: %s", token(c), before, c.Report())
				}
				// What is recorded is the present: the next daemon that is alone lets go.
				c.BMC[owner].Behave(bmc.Behavior{Command: "ignore"})
				c.Cut(owner)
				c.RestartDaemon(owner, time.Second)
				time.Sleep(10 * c.Detection)
				if holds(c, owner) {
					t.Errorf("%s holds on: %v", owner, c.Storage.Active())
				}
			})
		})
	}
}

// TestRestartedDaemonIsOutcast: an operator says wrongly that a node is down, and its daemon restarts meanwhile. What the
// one before it started must end as soon as the new one hears that its boot is over, before anybody else starts it.
func TestRestartedDaemonIsOutcast(t *testing.T) {
	for _, inMaintenance := range []string{"the cluster", "the group too"} {
		t.Run("in maintenance of "+inMaintenance, func(t *testing.T) {
			pick(t, Options{Cluster: "on_quorum_loss = \"freeze\"\nstorm_window = \"0s\"\n"}, false, func(t *testing.T, c *Cluster, owner string) {
				if inMaintenance != "the cluster" {
					maintenance(t, c, api.ChangeRequest{Group: "db"}, true)
				}
				c.BMC[owner].Behave(bmc.Behavior{Command: "refuse"})
				c.Cut(owner)
				maintenance(t, c, api.ChangeRequest{}, true) // so that nobody starts it too early
				word := api.FenceRequest{Node: owner, Action: api.ActionConfirm, By: "anna", Force: true}
				if _, err := c.Operator(c.Coordinator()).Fence(t.Context(), word, func(api.FenceEvent) {}); err != nil {
					t.Fatal(err)
				}
				c.RestartDaemon(owner, time.Second)
				c.Heal(owner)
				time.Sleep(3 * c.Detection)
				if active := c.Storage.Active(); len(active) > 0 {
					t.Fatalf("still active: %v\n%s", active, c.Report())
				}
				maintenance(t, c, api.ChangeRequest{Group: "db"}, false)
				maintenance(t, c, api.ChangeRequest{}, false)
				c.WaitFor(time.Minute, "db is taken over", func() bool { return c.Owner("db") != owner && c.Runs("db") })
			})
		})
	}
}
