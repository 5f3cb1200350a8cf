package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/resources"
	storage "github.com/hamgr/hamgr/resources/fake"
)

// TestFailbackInItsWindow: the preferred node is back, and gets its group back when people sleep.
func TestFailbackInItsWindow(t *testing.T) {
	const day = "15:04"
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).In(time.Local) // when virtual time begins
	keys := map[string]string{"db": fmt.Sprintf("failback = \"%s-%s\"", now.Add(10*time.Minute).Format(day), now.Add(20*time.Minute).Format(day))}
	run(t, Options{Prefer: []string{"beta"}, Keys: keys}, func(t *testing.T, c *Cluster) {
		c.Crash("beta")
		c.WaitFor(time.Minute, "db runs elsewhere, and beta is back", func() bool {
			return c.Owner("db") != "beta" && c.Runs("db") && c.State().Nodes["beta"].Boot == "beta-boot2"
		})
		stays(t, c, "db", c.Owner("db"), 8*time.Minute)
		ops := len(c.State().Operations)
		runsAt(t, c, "db", "beta", 4*time.Minute)
		if p := c.State().Groups["db"].Released.Proof.Kind; p != state.CleanStop || len(c.State().Operations) != ops {
			t.Errorf("failback by %s\n%s", p, c.Report())
		}
		stays(t, c, "db", "beta", 10*time.Minute)
	})
}

// TestMove: once, it stays where it was sent; for a time, it returns when the rules say so.
func TestMove(t *testing.T) {
	t.Run("once", func(t *testing.T) {
		run(t, Options{Prefer: []string{"alpha"}}, func(t *testing.T, c *Cluster) {
			before := token(c)
			change(t, c, api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Node: "gamma"})
			runsAt(t, c, "db", "gamma", 10*time.Second)
			if token(c) <= before || c.State().Groups["db"].Released.Proof.Kind != state.CleanStop {
				t.Errorf("token %d after %d", token(c), before)
			}
			stays(t, c, "db", "gamma", 12*time.Minute)
			if w := c.State().Groups["db"].Wish; w != nil {
				t.Errorf("a rule is left: %+v", w)
			}
			quiet(t, c)
		})
	})
	t.Run("for a time", func(t *testing.T) {
		run(t, Options{Prefer: []string{"alpha"}, Keys: map[string]string{"db": `failback = "always"`}}, func(t *testing.T, c *Cluster) {
			change(t, c, api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Node: "gamma", ForMS: (8 * time.Minute).Milliseconds()})
			runsAt(t, c, "db", "gamma", 10*time.Second)
			stays(t, c, "db", "gamma", 7*time.Minute)
			runsAt(t, c, "db", "alpha", 2*time.Minute)
			quiet(t, c)
		})
	})
	t.Run("away", func(t *testing.T) {
		run(t, Options{Prefer: []string{"alpha"}}, func(t *testing.T, c *Cluster) {
			change(t, c, api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Away: true})
			c.WaitFor(10*time.Second, "db runs elsewhere", func() bool { return c.Owner("db") != "alpha" && c.Runs("db") })
			quiet(t, c)
		})
	})
}

// TestRestartByOperator: on the same node, under a new token.
func TestRestartByOperator(t *testing.T) {
	pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
		before := token(c)
		change(t, c, api.ChangeRequest{Verb: api.ChangeRestart, Group: "db"})
		c.WaitFor(10*time.Second, "db runs under a new token", func() bool { return token(c) > before && c.Runs("db") })
		if c.Owner("db") != owner {
			t.Errorf("on %s", c.Owner("db"))
		}
		quiet(t, c)
	})
}

// TestDisable: it runs nowhere, whatever happens, until it is enabled.
func TestDisable(t *testing.T) {
	run(t, Options{Groups: []string{"db", "web"}}, func(t *testing.T, c *Cluster) {
		change(t, c, api.ChangeRequest{Verb: api.ChangeDisable, Group: "db"})
		c.WaitFor(10*time.Second, "db is stopped", func() bool { return c.Owner("db") == "" && len(c.Storage.Holders("db")) == 0 })
		c.Crash(c.Owner("web"))
		time.Sleep(2 * time.Minute)
		if len(c.Storage.Holders("db")) > 0 || !c.Runs("web") {
			t.Error(c.Report())
		}
		change(t, c, api.ChangeRequest{Verb: api.ChangeEnable, Group: "db"})
		c.WaitRunning(20 * time.Second)
	})
}

// scopes are what maintenance is of, where the node is the holder of db.
func scopes(node string) map[string]api.ChangeRequest {
	return map[string]api.ChangeRequest{"node": {Node: node}, "group": {Group: "db"}, "cluster": {}}
}

func maintenance(t *testing.T, c *Cluster, scope api.ChangeRequest, on bool) {
	t.Helper()
	scope.Verb = api.ChangeMaintenanceOff
	if on {
		scope.Verb = api.ChangeMaintenanceOn
	}
	change(t, c, scope)
	time.Sleep(time.Second) // until it is applied everywhere
}

// TestMaintenance: nothing is started, stopped or restarted; a silent node is not shot, and lets go of nothing. When it
// ends, what is silent is shot, and what is dead is restarted.
func TestMaintenance(t *testing.T) {
	for name, scope := range scopes("beta") {
		t.Run(name, func(t *testing.T) {
			pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
				before := token(c)
				maintenance(t, c, scope, true)
				c.Storage.Kill(owner, "db", "app")
				c.Cut(owner)
				time.Sleep(4 * time.Minute)
				if what := history(c); what[len(what)-1] != "died db/app" || len(c.State().Operations) > 0 || token(c) != before {
					t.Errorf("%v\n%s", what, c.Report())
				}
				maintenance(t, c, scope, false)
				takenOver(t, c, owner, before, 20*time.Second)
			})
		})
		t.Run(name+" of a node that is well", func(t *testing.T) {
			pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
				before := token(c)
				maintenance(t, c, scope, true)
				c.Storage.Kill(owner, "db", "app")
				time.Sleep(4 * time.Minute)
				if what := history(c); what[len(what)-1] != "died db/app" {
					t.Errorf("%v\n%s", what, c.Report())
				}
				maintenance(t, c, scope, false)
				c.WaitFor(5*time.Second, "db runs again", func() bool { return c.Runs("db") })
				if token(c) != before {
					t.Errorf("token %d after %d", token(c), before)
				}
				quiet(t, c)
			})
		})
	}
}

// TestDaemonRestartInMaintenance: the next daemon leaves alone what the last one left alone, and finds what died
// meanwhile when the maintenance is over.
func TestDaemonRestartInMaintenance(t *testing.T) {
	for name, scope := range scopes("beta") {
		t.Run(name, func(t *testing.T) {
			pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
				before := token(c)
				maintenance(t, c, scope, true)
				c.Storage.Kill(owner, "db", "app")
				c.RestartDaemon(owner, 30*time.Second)
				time.Sleep(2 * time.Minute)
				c.StopDaemon(owner)
				time.Sleep(time.Minute)
				c.hosts[owner].start()
				time.Sleep(time.Minute)
				if what := history(c); what[len(what)-1] != "died db/app" || c.Owner("db") != owner {
					t.Errorf("%v\n%s", what, c.Report())
				}
				maintenance(t, c, scope, false)
				c.WaitFor(5*time.Second, "db runs again", func() bool { return c.Runs("db") })
				if token(c) != before {
					t.Errorf("token %d after %d", token(c), before)
				}
				quiet(t, c)
			})
		})
	}
}

// TestMovedByHandInMaintenance: an operator stops a group and starts it on another node by hand. The end of the
// maintenance must not start a second copy anywhere, whether the cluster heard of it before or not, and whatever is to
// become of a failure.
func TestMovedByHandInMaintenance(t *testing.T) {
	for name, scope := range scopes("beta") {
		for _, onFail := range []string{"restart", "move"} {
			for _, known := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, known %t", name, onFail, known), func(t *testing.T) {
					pick(t, Options{Resource: fmt.Sprintf("on_fail = %q", onFail)}, false, func(t *testing.T, c *Cluster, owner string) {
						maintenance(t, c, scope, true)
						movedByHand(t, c, owner, known, scope)
					})
				})
			}
		}
	}
}

func movedByHand(t *testing.T, c *Cluster, owner string, known bool, scope api.ChangeRequest) {
	time.Sleep(time.Minute)
	c.Storage.Kill(owner, "db", "app")
	c.Storage.Kill(owner, "db", "data")
	// The storage takes no lower token than the highest that it saw: a copy that the cluster starts is refused there.
	byHand, err := storage.Kind(c.Storage, "gamma").Options().New(resources.Env{Group: "db", Resource: "data", Node: "gamma", Boot: "gamma-boot1", Token: token(c) + 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := byHand.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	noticed := func() bool { return c.State().Groups["db"].Found["gamma"] != "" }
	if known {
		c.WaitFor(20*time.Second, "what runs on gamma is noticed", noticed)
	} else if noticed() {
		t.Fatal("noticed too early")
	}
	before := len(c.Storage.Events())
	maintenance(t, c, scope, false)
	time.Sleep(time.Minute)
	for _, e := range c.Storage.Events()[before:] {
		if e.Host != "gamma" && (e.What == "starting" || e.What == "refused") {
			t.Errorf("%s while it is active on gamma: %s", e.What, e.Holding)
		}
	}
	if g := c.State().Groups["db"]; g.Grant != nil || !noticed() {
		t.Errorf("%+v", g)
	}
	quiet(t, c)
}
