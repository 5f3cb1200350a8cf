package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/resources"
	storage "github.com/hamgr/hamgr/resources/fake"
)

// change has an operator change something, and insists that it is done.
func change(t *testing.T, c *Cluster, r api.ChangeRequest) {
	t.Helper()
	r.By = "anna"
	at := c.Coordinator()
	c.note("an operator at %s: %+v", at, r)
	if _, err := c.Operator(at).Change(t.Context(), r); err != nil {
		t.Fatalf("%+v: %v\n%s", r, err, c.Report())
	}
}

// events are those of a group, in their order, as "what host/token".
func events(c *Cluster, group, resource string) (all []string) {
	for _, e := range c.Storage.Events() {
		if e.Group == group && e.Resource == resource {
			all = append(all, fmt.Sprintf("%s %s/%d", e.What, e.Host, e.Token))
		}
	}
	return all
}

// quiet checks that nobody was shot.
func quiet(t *testing.T, c *Cluster) {
	t.Helper()
	if n := len(c.State().Operations); n != 0 {
		t.Errorf("%d fencing operations\n%s", n, c.Report())
	}
}

// runsAt waits until a group runs on a node.
func runsAt(t *testing.T, c *Cluster, group, node string, limit time.Duration) {
	t.Helper()
	c.WaitFor(limit, group+" runs on "+node, func() bool { return c.Owner(group) == node && c.Runs(group) })
}

// stays checks that a group runs on a node, under one token, for a while.
func stays(t *testing.T, c *Cluster, group, node string, long time.Duration) {
	t.Helper()
	before := c.State().Groups[group].Grant
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if gr := c.State().Groups[group].Grant; gr == nil || before == nil || gr.Token != before.Token || gr.Node != node || !c.Runs(group) {
			t.Fatalf("%s does not stay on %s: %+v, then %+v\n%s", group, node, before, gr, c.Report())
		}
	}
}

// TestOnFailRestart: in place as often as is allowed, then elsewhere.
func TestOnFailRestart(t *testing.T) {
	pick(t, Options{Resource: `on_fail = "restart"`, Keys: map[string]string{"db": "restarts = 2"}}, false, func(t *testing.T, c *Cluster, owner string) {
		before := token(c)
		for range 2 {
			c.Storage.Kill(owner, "db", "app")
			c.WaitFor(5*time.Second, "db runs again", func() bool { return c.Runs("db") })
			if token(c) != before || c.Owner("db") != owner {
				t.Fatalf("token %d after %d, on %s", token(c), before, c.Owner("db"))
			}
		}
		c.Storage.Kill(owner, "db", "app")
		c.WaitFor(10*time.Second, "db runs elsewhere", func() bool { return c.Owner("db") != owner && c.Runs("db") })
		if f := c.State().Groups["db"].Failures[owner]; f.Resource != "app" || !strings.Contains(f.Error, "killed") {
			t.Errorf("failure %+v", f)
		}
		quiet(t, c)
	})
}

// TestOnFailMove: not restarted where it failed.
func TestOnFailMove(t *testing.T) {
	pick(t, Options{Resource: `on_fail = "move"`, Keys: map[string]string{"db": "restarts = 5"}}, false, func(t *testing.T, c *Cluster, owner string) {
		before := token(c)
		c.Storage.Kill(owner, "db", "app")
		c.WaitFor(10*time.Second, "db runs elsewhere", func() bool { return c.Owner("db") != owner && c.Runs("db") })
		started := slices.DeleteFunc(events(c, "db", "app"), func(e string) bool { return e != fmt.Sprintf("starting %s/%d", owner, before) })
		if len(started) != 1 {
			t.Errorf("started %d times where it failed", len(started))
		}
		quiet(t, c)
	})
}

// TestOnFailStop: stopped everywhere, for good, until an operator clears it.
func TestOnFailStop(t *testing.T) {
	for name, fail := range map[string]func(c *Cluster, owner string){
		"while it runs": func(*Cluster, string) {},
		"at its start":  func(c *Cluster, owner string) { c.Storage.Set(owner, "db", "app", "start", storage.Fails) },
	} {
		pick(t, Options{Resource: `on_fail = "stop"`, Keys: map[string]string{"db": "failure_expiry = \"1m\""}}, false, func(t *testing.T, c *Cluster, owner string) {
			fail(c, owner)
			if name == "at its start" {
				change(t, c, api.ChangeRequest{Verb: api.ChangeRestart, Group: "db"})
			} else {
				c.Storage.Kill(owner, "db", "app")
			}
			c.WaitFor(10*time.Second, "db is stopped", func() bool { g := c.State().Groups["db"]; return g.Grant == nil && g.Halted != "" })
			time.Sleep(5 * time.Minute)
			if len(c.Storage.Active()) > 0 || c.State().Groups["db"].Grant != nil {
				t.Errorf("%s: %s", name, c.Report())
			}
			c.Storage.Set(owner, "db", "app", "start", storage.Works)
			change(t, c, api.ChangeRequest{Verb: api.ChangeClear, Group: "db"})
			c.WaitRunning(10 * time.Second)
			quiet(t, c)
		})
	}
}

// TestOnFailIgnore: it is shown and watched on, and nothing is done; nor does its death, told again and again, keep the
// node busy.
func TestOnFailIgnore(t *testing.T) {
	pick(t, Options{Resource: `on_fail = "ignore"`}, false, func(t *testing.T, c *Cluster, owner string) {
		before := token(c)
		shown := func() string {
			st, err := c.Operator(owner).Status(t.Context())
			if err != nil || len(st.Groups) != 1 || len(st.Groups[0].Resources) != 2 {
				t.Fatalf("%+v %v", st, err)
			}
			return st.Groups[0].Resources[1].State
		}
		c.Storage.Kill(owner, "db", "app")
		time.Sleep(2 * time.Minute)
		if token(c) != before || shown() != "failed" || len(c.Storage.Active()) != 1 {
			t.Errorf("token %d, shown %s\n%s", token(c), shown(), c.Report())
		}
		if n := strings.Count(c.Report(), "which is ignored"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		// Somebody starts it by hand.
		app, err := storage.Kind(c.Storage, owner).Options().New(resources.Env{Group: "db", Resource: "app", Node: owner, Boot: owner + "-boot1", Token: before})
		if err != nil {
			t.Fatal(err)
		}
		if err := app.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.WaitFor(15*time.Second, "it is seen to be well", func() bool { return shown() == "active" })
		if !strings.Contains(c.Report(), "well again") {
			t.Error("not told")
		}
		// A start that fails is another matter: without it the group never ran there.
		c.Storage.Set(owner, "db", "app", "start", storage.Fails)
		change(t, c, api.ChangeRequest{Verb: api.ChangeRestart, Group: "db"})
		c.WaitFor(10*time.Second, "db runs elsewhere", func() bool { return c.Owner("db") != owner && c.Runs("db") })
		quiet(t, c)
	})
}

// TestOnFailFence: the node is fenced, though it stops what it can.
func TestOnFailFence(t *testing.T) {
	for _, ownerLeads := range []bool{false, true} {
		pick(t, Options{Resource: `on_fail = "fence"`}, ownerLeads, func(t *testing.T, c *Cluster, owner string) {
			c.Storage.Kill(owner, "db", "app")
			c.WaitFor(20*time.Second, owner+" is fenced", func() bool { return lastOp(c, owner) != nil && lastOp(c, owner).Proof != nil })
			if why := lastOp(c, owner).Reason; !strings.Contains(why, "on_fail is fence") {
				t.Errorf("fenced because %s", why)
			}
			c.WaitFor(10*time.Second, "db runs elsewhere", func() bool { return c.Owner("db") != owner && c.Runs("db") })
			if !slices.Contains(events(c, "db", "data"), fmt.Sprintf("stopping %s/1", owner)) {
				t.Errorf("nothing was stopped: %v", events(c, "db", "data"))
			}
		})
	}
}

// TestRestartWindowSlides: only the restarts of the last minute count, whoever of this boot's daemons made them.
func TestRestartWindowSlides(t *testing.T) {
	keys := map[string]string{"db": "restarts = 2\nrestart_window = \"1m\""}
	pick(t, Options{Keys: keys}, false, func(t *testing.T, c *Cluster, owner string) {
		before := token(c)
		restarted := func() {
			t.Helper()
			c.Storage.Kill(owner, "db", "app")
			c.WaitFor(15*time.Second, "db runs again", func() bool { return c.Runs("db") })
			if token(c) != before {
				t.Fatalf("token %d after %d\n%s", token(c), before, c.Report())
			}
		}
		for range 3 {
			restarted()
			time.Sleep(35 * time.Second)
		}
		restarted() // the one of 35 s ago counts, and this one
		c.RestartDaemon(owner, time.Second)
		time.Sleep(10 * time.Second)
		c.Storage.Kill(owner, "db", "app")
		c.WaitFor(15*time.Second, "db runs elsewhere", func() bool { return c.Owner("db") != owner && c.Runs("db") })
		quiet(t, c)
	})
}

// TestDeathWhileTheDaemonIsAway: what died meanwhile is a failure like any other.
func TestDeathWhileTheDaemonIsAway(t *testing.T) {
	for onFail, moves := range map[string]bool{"restart": false, "move": true} {
		pick(t, Options{Resource: fmt.Sprintf("on_fail = %q", onFail)}, false, func(t *testing.T, c *Cluster, owner string) {
			before := token(c)
			c.wg.Go(func() { c.RestartDaemon(owner, 2*time.Second) })
			time.Sleep(time.Second)
			c.Storage.Kill(owner, "db", "app")
			c.WaitFor(15*time.Second, "db runs again", func() bool { return c.Runs("db") })
			if moved := c.Owner("db") != owner; moved != moves || (token(c) > before) != moves {
				t.Errorf("on_fail %s: on %s with token %d\n%s", onFail, c.Owner("db"), token(c), c.Report())
			}
			quiet(t, c)
		})
	}
}

// TestFailureExpires: a group that failed on every node waits, and is tried again when its failures are old.
func TestFailureExpires(t *testing.T) {
	run(t, Options{Keys: map[string]string{"db": "failure_expiry = \"2m\""}}, func(t *testing.T, c *Cluster) {
		for _, n := range c.Nodes {
			c.Storage.Set(n, "db", "app", "start", storage.Fails)
		}
		change(t, c, api.ChangeRequest{Verb: api.ChangeRestart, Group: "db"})
		c.WaitFor(20*time.Second, "it failed everywhere", func() bool { return len(c.State().Groups["db"].Failures) == 3 })
		failed := time.Now()
		for _, n := range c.Nodes {
			c.Storage.Set(n, "db", "app", "start", storage.Works)
		}
		time.Sleep(100 * time.Second)
		if c.Owner("db") != "" {
			t.Errorf("tried again too soon\n%s", c.Report())
		}
		c.WaitRunning(30 * time.Second)
		t.Logf("tried again after %s", time.Since(failed).Round(time.Second))
		quiet(t, c)
	})
}
