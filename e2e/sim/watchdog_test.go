package sim

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	bmc "github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/cluster/node"
	"github.com/hamgr/hamgr/cluster/state"
)

// guarded runs a cluster whose hosts have watchdogs, in which the owner of db does not lead, with a ledger that is kept
// all the time. The owner's BMC is dead.
func guarded(t *testing.T, o Options, tested bool, f func(t *testing.T, c *Cluster, owner string)) {
	t.Helper()
	o.Prefer = []string{"beta"}
	o.Resource += "\nstart_timeout = \"5s\"\nstop_timeout = \"5s\"\n" // the times of the watchdog follow
	synctest.Test(t, func(t *testing.T) {
		c := New(t, o)
		c.watchdogs(tested)
		c.Start()
		owner := c.Owner("db")
		if owner == c.Coordinator() {
			t.Fatalf("%s owns and leads", owner)
		}
		l, stop := c.keepLedger()
		defer func() {
			stop()
			if l.Writes == 0 {
				t.Error("nobody wrote")
			}
		}()
		c.hosts[owner].dog.stays = true
		c.BMC[owner].Behave(bmc.Behavior{Status: "error", Command: "refuse"})
		c.WaitFor(20*c.Detection, "the owner's claim is known", func() bool { return c.claims(owner, tested) })
		f(t, c, owner)
	})
}

// claims reports whether a node's silence counts, by what is committed.
func (c *Cluster) claims(name string, tested bool) bool {
	w := c.State().Nodes[name].Watchdog
	return w != nil && w.Armed && w.Tested == tested
}

func (c *Cluster) expiry(name string) time.Duration {
	return node.WatchdogTiming(c.config(name, c.text(name))).Expiry
}

// expires waits for the takeover by proof (e), and checks that it did not come early.
func expires(t *testing.T, c *Cluster, owner string, since time.Time) {
	t.Helper()
	before, expiry := token(c), c.expiry(owner)
	c.WaitFor(3*expiry, "another node has taken over", func() bool { return c.Owner("db") != owner && c.Runs("db") })
	g := c.State().Groups["db"]
	if took := time.Since(since); took < expiry || g.Grant.Token <= before {
		t.Errorf("taken over after %s, with token %d after %d", took, g.Grant.Token, before)
	}
	if p := g.Released.Proof; p.Kind != state.Watchdog || p.Node != owner || !strings.Contains(strings.Join(p.Evidence, " "), "nothing was read off") {
		t.Errorf("by proof %+v", p)
	}
	t.Logf("taken over after %s, expiry %s", time.Since(since), expiry)
}

// resetBefore checks that the watchdog reset the host, and long before anybody counts on it.
func resetBefore(t *testing.T, c *Cluster, owner string, since time.Time) {
	t.Helper()
	if resets := c.hosts[owner].dog.resets(); len(resets) != 1 || resets[0].Sub(since) > c.expiry(owner) {
		t.Errorf("reset at %v, silent since %s", resets, since)
	} else {
		t.Logf("reset %s after its silence began", resets[0].Sub(since))
	}
}

// TestWatchdogEndsAFrozenDaemon: the host stands still, with its writers; it would go on at any time, with what it believed.
func TestWatchdogEndsAFrozenDaemon(t *testing.T) {
	guarded(t, Options{}, true, func(t *testing.T, c *Cluster, owner string) {
		since := time.Now()
		c.Freeze(owner)
		expires(t, c, owner, since)
		resetBefore(t, c, owner, since)
		c.Thaw(owner)
		time.Sleep(time.Minute)
	})
}

// TestWatchdogEndsAHungStop: cut off, the node lets go, which hangs.
func TestWatchdogEndsAHungStop(t *testing.T) {
	guarded(t, Options{Resource: `hang_stop = ["beta"]`}, true, func(t *testing.T, c *Cluster, owner string) {
		since := time.Now()
		c.Cut(owner)
		expires(t, c, owner, since)
		resetBefore(t, c, owner, since)
	})
}

// TestWatchdogOfAKilledDaemon: its groups write on, with nobody to stop them.
func TestWatchdogOfAKilledDaemon(t *testing.T) {
	guarded(t, Options{}, true, func(t *testing.T, c *Cluster, owner string) {
		since := time.Now()
		p := c.hosts[owner].take()
		if err := p.end(p.Halt); err != nil {
			t.Fatal(err)
		}
		expires(t, c, owner, since)
		resetBefore(t, c, owner, since)
	})
}

// TestCutOffItLetsGo: what can stop is stopped, then nothing is held, and nothing is reset.
func TestCutOffItLetsGo(t *testing.T) {
	guarded(t, Options{}, true, func(t *testing.T, c *Cluster, owner string) {
		since := time.Now()
		c.Cut(owner)
		expires(t, c, owner, since)
		if resets := c.hosts[owner].dog.resets(); len(resets) > 0 || c.hosts[owner].dog.armed() {
			t.Errorf("armed %v, resets %v", c.hosts[owner].dog.armed(), resets)
		}
	})
}

// TestUntestedWatchdogIsNoProof: it resets the host all the same, and nobody takes over before a device says off.
func TestUntestedWatchdogIsNoProof(t *testing.T) {
	guarded(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
		since, before := time.Now(), token(c)
		c.Freeze(owner)
		time.Sleep(3 * c.expiry(owner))
		resetBefore(t, c, owner, since)
		if now := c.Owner("db"); now != owner {
			t.Errorf("taken over by %s without a proof", now)
		}
		c.BMC[owner].Behave(bmc.Behavior{})
		takenOver(t, c, owner, before, 3*time.Minute)
	})
}

// TestRestartUnderTheWatchdog: a daemon that comes back in time takes the watchdog over, also from one that was killed.
func TestRestartUnderTheWatchdog(t *testing.T) {
	guarded(t, Options{}, true, func(t *testing.T, c *Cluster, owner string) {
		before := token(c)
		for range 8 {
			c.RestartDaemon(owner, time.Second)
			time.Sleep(20 * time.Second)
		}
		if resets := c.hosts[owner].dog.resets(); len(resets) > 0 || token(c) != before || !c.hosts[owner].dog.armed() {
			t.Errorf("resets %v, token %d after %d", resets, token(c), before)
		}
	})
}

// TestMaintenanceUnderTheWatchdog: what is left alone is left alone by the watchdog, once that is known; and the silence
// of such a node proves nothing, also after the maintenance.
func TestMaintenanceUnderTheWatchdog(t *testing.T) {
	guarded(t, Options{}, true, func(t *testing.T, c *Cluster, owner string) {
		maintenance(t, c, scopes(owner)["cluster"], true)
		c.WaitFor(10*c.Detection, "its claim is withdrawn", func() bool { return !c.claims(owner, true) })
		time.Sleep(c.Detection) // until the owner knows that
		c.Cut(owner)
		time.Sleep(2 * c.expiry(owner))
		maintenance(t, c, scopes(owner)["cluster"], false)
		time.Sleep(3 * c.expiry(owner))
		if resets := c.hosts[owner].dog.resets(); len(resets) > 0 || c.Owner("db") != owner {
			t.Errorf("resets %v, db is %s's", resets, c.Owner("db"))
		}
	})
}

// TestWatchdogUnderANewCoordinator: what the node said to the last coordinator may have been answered, so its silence is
// counted anew; its claim is known.
func TestWatchdogUnderANewCoordinator(t *testing.T) {
	guarded(t, Options{Nodes: []string{"alpha", "beta", "gamma", "delta", "epsilon"}}, true, func(t *testing.T, c *Cluster, owner string) {
		c.Freeze(owner)
		time.Sleep(c.expiry(owner) * 9 / 10)
		since := time.Now()
		c.Crash(c.Coordinator())
		expires(t, c, owner, since)
	})
}
