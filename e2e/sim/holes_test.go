package sim

import (
	"slices"
	"testing"
	"time"

	bmc "github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/resources"
	storage "github.com/hamgr/hamgr/resources/fake"
)

// TestMovedByHandInMaintenance: an operator stops a group and starts it on another node by hand. The end of the
// maintenance must not start a second copy where it was, whatever the holder may do about a failure elsewise.
func TestMovedByHandInMaintenance(t *testing.T) {
	for name, scope := range scopes("beta") {
		t.Run(name, func(t *testing.T) {
			pick(t, Options{Keys: map[string]string{"db": "restarts = 5"}}, false, func(t *testing.T, c *Cluster, owner string) {
				maintenance(t, c, scope, true)
				c.Storage.Kill(owner, "db", "app")
				c.Storage.Kill(owner, "db", "data")
				// The storage takes no lower token than the highest that it saw: a copy that the cluster starts is refused there.
				stray, err := storage.Kind(c.Storage, "gamma").Options().New(resources.Env{Group: "db", Resource: "data", Node: "gamma", Boot: "gamma-boot1", Token: token(c) + 100})
				if err != nil {
					t.Fatal(err)
				}
				if err := stray.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				c.WaitFor(20*time.Second, "what runs on gamma is noticed", func() bool { return c.State().Groups["db"].Found["gamma"] != "" })
				before := len(c.Storage.Events())
				maintenance(t, c, scope, false)
				time.Sleep(time.Minute)
				for _, e := range c.Storage.Events()[before:] {
					if e.Host != "gamma" && (e.What == "starting" || e.What == "refused") {
						t.Errorf("%s while it is active on gamma: %s", e.What, e.Holding)
					}
				}
				if g := c.State().Groups["db"]; g.Grant != nil || g.Found["gamma"] == "" {
					t.Errorf("%+v", g)
				}
				quiet(t, c)
			})
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
