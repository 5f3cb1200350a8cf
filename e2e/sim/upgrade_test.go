package sim

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// speak has a host's daemon know the log's format up to a version, from its next start on.
func (c *Cluster) speak(version int, hosts ...string) {
	for _, name := range hosts {
		c.note("%s is to run a hamgr that knows version %d", name, version)
		c.hosts[name].set(func(h *Host) { h.speaks = version })
	}
}

// hasLogged reports whether a host said it.
func (c *Cluster) hasLogged(host, text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for line := range strings.Lines(c.logs.String()) {
		if strings.Contains(line, "host="+host) && strings.Contains(line, text) {
			return true
		}
	}
	return false
}

// undisturbed checks that the service ran on all the time under one grant, and that nobody was shot.
func (c *Cluster) undisturbed(granted uint64) {
	c.t.Helper()
	if token(c) != granted || !c.Runs("db") || len(c.State().Operations) > 0 {
		c.t.Errorf("token %d after %d, runs %v\n%s", token(c), granted, c.Runs("db"), c.Report())
	}
	for _, e := range c.Storage.Events() {
		if e.What == "stopping" || e.What == "died" {
			c.t.Errorf("the service was stopped: %v", e)
		}
	}
}

// older is a cluster whose daemons all know version 1 only.
func older(t *testing.T, f func(t *testing.T, c *Cluster, granted uint64)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Prefer: []string{"beta"}, Text: true})
		c.speak(1, c.Nodes...)
		c.Start()
		time.Sleep(20 * c.Detection)
		if f := c.State().Format(); f != 1 {
			t.Fatalf("format %d among daemons that know 1", f)
		}
		f(t, c, token(c))
	})
}

// TestRollingUpgrade: node by node, in any order. The cluster keeps to the format that all know, does without what can be
// said only in the next one, and goes over to that when the last one knows it; and nothing of that is felt.
func TestRollingUpgrade(t *testing.T) {
	for _, order := range [][]string{{"alpha", "beta", "gamma"}, {"gamma", "beta", "alpha"}, {"beta", "gamma", "alpha"}} {
		t.Run(strings.Join(order, " "), func(t *testing.T) {
			older(t, func(t *testing.T, c *Cluster, granted uint64) {
				for i, name := range order {
					c.speak(2, name)
					c.RestartDaemon(name, time.Second)
					c.whole(20*c.Detection, c.Nodes...)
					if i == len(order)-1 {
						break
					}
					for range 10 { // one that knows more should lead, and still not go ahead
						if leads := c.Coordinator(); slices.Contains(order[i+1:], leads) {
							c.RestartDaemon(leads, time.Second)
							c.whole(20*c.Detection, c.Nodes...)
						}
					}
					time.Sleep(5 * c.Detection)
					if f := c.State().Format(); f != 1 {
						t.Fatalf("format %d when only %v know more than 1", f, order[:i+1])
					}
				}
				c.WaitFor(5*c.Detection, "the format is raised", func() bool { return c.State().Format() == 2 })
				time.Sleep(5 * c.Detection)
				c.undisturbed(granted)
			})
		})
	}
}

// TestMixedCluster: what the older ones do not know is refused in words that say what to do, or done without.
func TestMixedCluster(t *testing.T) {
	older(t, func(t *testing.T, c *Cluster, granted uint64) {
		for _, name := range []string{"alpha", "beta"} {
			c.speak(2, name)
			c.RestartDaemon(name, time.Second)
			c.whole(20*c.Detection, c.Nodes...)
		}
		for _, name := range c.Nodes {
			res, err := c.Operator(name).Apply(t.Context(), api.ApplyRequest{Text: "[cluster]\n", From: c.State().Configured.Index, By: "anna"})
			if err == nil && (res.Applied || len(res.Refused) == 0) {
				t.Errorf("%s applied a configuration: %+v", name, res)
			}
			t.Logf("%s: %v %+v", name, err, res.Refused)
		}
		// A stop of the owner's service leaves the group, as it did before there were departures.
		began := time.Now()
		c.Depart("beta")
		if took := time.Since(began); took > c.Detection {
			t.Errorf("it took %s", took)
		}
		if !c.hasLogged("beta", "not every node knows yet what a departure is") {
			t.Errorf("it does not say why its groups stay\n%s", c.Report())
		}
		c.hosts["beta"].start()
		c.whole(20*c.Detection, c.Nodes...)
		time.Sleep(5 * c.Detection)
		c.undisturbed(granted)
	})
}

// TestAbsentDuringUpgrade: who is away may be older, and so holds the upgrade up.
func TestAbsentDuringUpgrade(t *testing.T) {
	older(t, func(t *testing.T, c *Cluster, granted uint64) {
		c.StopDaemon("gamma") // it holds nothing, so it takes its leave
		for _, name := range []string{"alpha", "beta"} {
			c.speak(2, name)
			c.RestartDaemon(name, time.Second)
			c.whole(20*c.Detection, "alpha", "beta")
		}
		time.Sleep(10 * time.Minute)
		if f := c.State().Format(); f != 1 {
			t.Fatalf("format %d while a node that knows 1 is away", f)
		}
		c.hosts["gamma"].start()
		c.whole(20*c.Detection, c.Nodes...)
		if f := c.State().Format(); f != 1 {
			t.Fatalf("format %d with a node that knows 1", f)
		}
		c.speak(2, "gamma")
		c.RestartDaemon("gamma", time.Second)
		c.WaitFor(20*c.Detection, "the format is raised", func() bool { return c.State().Format() == 2 })
		c.undisturbed(granted)
	})
}

// TestDowngrade: a daemon that is older than the format says so, and is no part of the cluster until a newer one is there. The
// others go on.
func TestDowngrade(t *testing.T) {
	run(t, Options{Prefer: []string{"beta"}, Text: true}, func(t *testing.T, c *Cluster) {
		c.WaitFor(20*c.Detection, "the format is raised", func() bool { return c.State().Format() == 2 })
		granted := token(c)
		c.speak(1, "gamma")
		c.RestartDaemon("gamma", time.Second)
		time.Sleep(10 * c.Detection)
		if n := c.hosts["gamma"].daemon(); n != nil && n.Coordinates() || c.sees("gamma", nil) {
			t.Errorf("an older daemon takes part\n%s", c.Report())
		}
		if !c.hasLogged("gamma", "install the version of hamgr that the other nodes run") {
			t.Errorf("it does not say what to do\n%s", c.Report())
		}
		c.whole(c.Detection, "alpha", "beta")
		c.speak(2, "gamma")
		c.whole(time.Minute, c.Nodes...)
		c.undisturbed(granted)
	})
}

// TestDowngradeBehindASnapshot: the same, where all that the older one could read is a snapshot. It does not even start.
func TestDowngradeBehindASnapshot(t *testing.T) {
	run(t, Options{Prefer: []string{"beta"}, Text: true}, func(t *testing.T, c *Cluster) {
		c.WaitFor(20*c.Detection, "the format is raised", func() bool { return c.State().Format() == 2 })
		granted := token(c)
		time.Sleep(30 * time.Minute)
		h := c.hosts["gamma"]
		p := h.take()
		if err := p.end(p.Halt); err != nil {
			t.Fatal(err)
		}
		c.speak(1, "gamma")
		if p, err := h.begin(h.setup(h.boots, h.booted, h.stores)); err == nil || !strings.Contains(err.Error(), "install the version of hamgr that the other nodes run") {
			t.Errorf("an older daemon starts, or does not say what to do: %v", err)
			if err == nil {
				_ = p.end(p.Halt)
			}
		}
		c.speak(2, "gamma")
		h.start()
		c.whole(time.Minute, c.Nodes...)
		c.undisturbed(granted)
	})
}
