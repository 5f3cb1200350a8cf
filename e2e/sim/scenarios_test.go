package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	bmc "github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/resources"
	storage "github.com/hamgr/hamgr/resources/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs a test on a cluster that has started, in virtual time.
func run(t *testing.T, o Options, f func(t *testing.T, c *Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, o)
		c.Start()
		f(t, c)
	})
}

// pick starts clusters until the coordinator is, or is not, the owner of db.
func pick(t *testing.T, o Options, ownerLeads bool, f func(t *testing.T, c *Cluster, owner string)) {
	t.Helper()
	// The first to form a cluster leads it, and the first node by name forms it.
	o.Prefer = []string{"beta"}
	if ownerLeads {
		o.Prefer = []string{"alpha"}
	}
	run(t, o, func(t *testing.T, c *Cluster) {
		if leads := c.Owner("db") == c.Coordinator(); leads != ownerLeads {
			t.Fatalf("owner %s, coordinator %s", c.Owner("db"), c.Coordinator())
		}
		f(t, c, c.Owner("db"))
	})
}

// takenOver waits until another node than the old owner runs db, and checks that it took
// a higher token and a power-off to get there.
func takenOver(t *testing.T, c *Cluster, old string, before uint64, limit time.Duration) {
	t.Helper()
	began := time.Now()
	c.WaitFor(limit, "another node has taken over from "+old, func() bool { return c.Owner("db") != old && c.Runs("db") })
	g := c.State().Groups["db"]
	if g.Grant.Token <= before {
		t.Errorf("token %d after %d", g.Grant.Token, before)
	}
	if p := g.Released.Proof; p.Kind != state.PowerOff || p.Node != old {
		t.Errorf("taken over by proof %+v", p)
	}
	t.Logf("taken over from %s after %.2f detection times", old, time.Since(began).Seconds()/c.Detection.Seconds())
}

// token is that of the newest grant of db.
func token(c *Cluster) uint64 {
	g := c.State().Groups["db"]
	if g.Grant == nil {
		return g.Released.Token
	}
	return g.Grant.Token
}

func TestHealthyClusterShootsNobody(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *Cluster) {
		time.Sleep(time.Minute)
		if n := len(c.State().Operations); n != 0 {
			t.Errorf("%d fencing operations", n)
		}
	})
}

// TestLoss loses a node in each way and in each role: the takeover needs a proof, and comes in
// time.
func TestLoss(t *testing.T) {
	faults := map[string]func(*Cluster, string){
		"crash":  (*Cluster).Crash,
		"freeze": (*Cluster).Freeze,
		"cut":    (*Cluster).Cut,
	}
	for _, detection := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second} {
		for name, fault := range faults {
			for _, ownerLeads := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/owner leads %v/%s", name, ownerLeads, detection), func(t *testing.T) {
					pick(t, Options{Detection: detection}, ownerLeads, func(t *testing.T, c *Cluster, owner string) {
						before := token(c)
						fault(c, owner)
						takenOver(t, c, owner, before, detection*5/4+600*time.Millisecond)
						c.Heal(owner)
						c.Thaw(owner)
						c.WaitFor(20*time.Second+c.BootTime, "the old owner is back in a new boot", func() bool {
							n := c.State().Nodes[owner]
							return n.Up && n.Boot == owner+"-boot2"
						})
					})
				})
			}
		}
	}
}

// TestLossOfCoordinatorAlone loses a coordinator that holds nothing: nothing moves, nobody is
// shot, and somebody else coordinates.
func TestLossOfCoordinatorAlone(t *testing.T) {
	for name, fault := range map[string]func(*Cluster, string){"crash": (*Cluster).Crash, "freeze": (*Cluster).Freeze, "cut": (*Cluster).Cut} {
		t.Run(name, func(t *testing.T) {
			pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
				before, first := token(c), c.Coordinator()
				fault(c, first)
				c.WaitFor(c.Detection*6/5, "another node coordinates", func() bool { return c.Coordinator() != "" && c.Coordinator() != first })
				time.Sleep(30 * time.Second)
				if c.Owner("db") != owner || token(c) != before || !c.Runs("db") {
					t.Errorf("the group moved to %s with token %d", c.Owner("db"), token(c))
				}
				if n := len(c.State().Operations); n != 0 {
					t.Errorf("%d fencing operations against a node that held nothing", n)
				}
				c.Heal(first)
				c.Thaw(first)
				time.Sleep(30 * time.Second)
				if n := len(c.State().Operations); n != 0 || token(c) != before {
					t.Errorf("after its return: %d fencing operations, token %d", n, token(c))
				}
			})
		})
	}
}

// TestPause stops a node for less than the detection time.
func TestPause(t *testing.T) {
	for _, ownerLeads := range []bool{false, true} {
		t.Run(fmt.Sprintf("owner leads %v", ownerLeads), func(t *testing.T) {
			pick(t, Options{}, ownerLeads, func(t *testing.T, c *Cluster, owner string) {
				for range 50 {
					c.Freeze(owner)
					time.Sleep(c.Detection * 9 / 10)
					c.Thaw(owner)
					time.Sleep(2 * c.Detection)
				}
				if n := len(c.State().Operations); n != 0 {
					t.Errorf("%d fencing operations for 50 pauses of 0.9 detection times\n%s", n, c.Report())
				}
			})
		})
	}
}

// TestCoordinatorDiesAtEachCommit crashes the coordinator of a failover at the moment at which
// each commit of it is applied, which is before the next one. Another one carries on.
func TestCoordinatorDiesAtEachCommit(t *testing.T) {
	points := map[string]func(before, after *state.State) bool{
		"ordered":  opReached(state.Ordered),
		"shooting": opReached(state.Shooting),
		"proven":   opReached(state.ProvenOff),
		"done":     opReached(state.Done),
		"granted":  func(b, a *state.State) bool { return b.LastToken == 1 && a.LastToken == 2 },
		"started": func(b, a *state.State) bool {
			g := a.Groups["db"].Grant
			return g != nil && g.Token == 2 && g.Phase == state.Started
		},
	}
	for name, at := range points {
		t.Run(name, func(t *testing.T) {
			five := Options{Nodes: []string{"alpha", "beta", "gamma", "delta", "epsilon"}}
			pick(t, five, false, func(t *testing.T, c *Cluster, owner string) {
				first := c.Coordinator()
				died := c.when(first, at, func() { c.Crash(first) })
				c.Crash(owner)
				c.WaitFor(10*c.Detection, "the point is reached", died)
				c.WaitFor(10*c.Detection, "db runs elsewhere", func() bool {
					return c.Owner("db") != owner && c.Owner("db") != first && c.Runs("db")
				})
			})
		})
	}
}

func opReached(phase state.OpPhase) func(before, after *state.State) bool {
	return func(before, after *state.State) bool {
		for id, o := range after.Operations {
			if o.Phase == phase && (before.Operations[id] == nil || before.Operations[id].Phase != phase) {
				return true
			}
		}
		return false
	}
}

// TestCoordinatorDiesAtAnyMoment sweeps the death of the coordinator over the whole failover.
func TestCoordinatorDiesAtAnyMoment(t *testing.T) {
	five := Options{Nodes: []string{"alpha", "beta", "gamma", "delta", "epsilon"}}
	for i := range 40 {
		after := time.Duration(i) * 5 * time.Millisecond
		pick(t, five, false, func(t *testing.T, c *Cluster, owner string) {
			first := c.Coordinator()
			c.Crash(owner)
			c.WaitFor(10*c.Detection, "the shot is ordered", func() bool { return len(c.State().Operations) > 0 })
			time.Sleep(after)
			c.Crash(first)
			c.WaitFor(10*c.Detection, "db runs elsewhere", func() bool {
				return !slices.Contains([]string{owner, first}, c.Owner("db")) && c.Runs("db")
			})
		})
	}
}

// TestBMCFaults lets the BMC of the failed owner misbehave: there is no takeover before a proof, and
// one soon after the BMC works again.
func TestBMCFaults(t *testing.T) {
	faults := map[string]bmc.Behavior{
		"refuses":                {Command: "refuse"},
		"lies":                   {Command: "ignore"},
		"stalls":                 {Stall: []string{"status", "off", "on"}},
		"stalls deaf":            {Stall: []string{"status"}, Deaf: true},
		"login":                  {Login: true},
		"unknown state":          {Status: "unknown"},
		"missing state":          {Status: "missing"},
		"error on read":          {Status: "error"},
		"always on":              {Status: "on"},
		"comes on again":         {Rebound: 30 * time.Millisecond},
		"no answer to open":      {Stall: []string{"open"}},
		"does, but never answer": {Stall: []string{"off"}, Status: "unknown"},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
				before := token(c)
				c.BMC[owner].Behave(fault)
				c.Freeze(owner)
				time.Sleep(time.Minute)
				if c.Owner("db") != owner || token(c) != before {
					t.Fatalf("taken over without a proof\n%s", c.Report())
				}
				if o := c.State().OpenOperation(owner); o == nil || o.Failures == 0 || o.Error == "" {
					t.Errorf("the failure is not on record: %+v", o)
				}
				c.BMC[owner].Behave(bmc.Behavior{})
				c.BMC[owner].Release()
				takenOver(t, c, owner, before, 90*time.Second)
			})
		})
	}
}

// TestErrorAnswerDisprovesNothing: a BMC that answers with an error, but obeys.
func TestErrorAnswerDisprovesNothing(t *testing.T) {
	pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
		before := token(c)
		c.BMC[owner].Behave(bmc.Behavior{Command: "error"})
		c.Freeze(owner)
		takenOver(t, c, owner, before, 2*c.Detection)
	})
}

// TestDeviceAgainstNode: the device says off, the node still talks. That is no proof.
func TestDeviceAgainstNode(t *testing.T) {
	pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
		before := token(c)
		c.BMC[owner].Behave(bmc.Behavior{Status: "off"})
		// A stop that hangs needs fencing, while the node is well.
		c.Storage.Set(owner, "db", "app", "stop", storage.Fails)
		c.Storage.Kill(owner, "db", "data")
		time.Sleep(30 * time.Second)
		o := c.State().OpenOperation(owner)
		if token(c) != before || o == nil || !strings.Contains(o.Error, "contradict") {
			t.Errorf("token %d, operation %+v\n%s", token(c), o, c.Report())
		}
	})
}

// TestNewBootBeforeTheShot: the owner resets and is back before anybody could shoot. Its new boot is the
// proof, and must not be shot.
func TestNewBootBeforeTheShot(t *testing.T) {
	for _, back := range []time.Duration{time.Second, 2900 * time.Millisecond, 3050 * time.Millisecond} {
		t.Run(back.String(), func(t *testing.T) {
			pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
				before := token(c)
				c.BMC[owner].Behave(bmc.Behavior{Answer: 200 * time.Millisecond})
				c.Reboot(owner, back)
				c.WaitFor(10*c.Detection, "db runs again", func() bool { return token(c) > before && c.Runs("db") })
				time.Sleep(20 * time.Second)
				if n := c.State().Nodes[owner]; n.Boot != owner+"-boot2" {
					t.Errorf("%s is in %s: the new boot was shot\n%s", owner, n.Boot, c.Report())
				}
			})
		})
	}
}

// TestMinorityNeverActs cuts one node off, and then two of three from each other.
func TestMinorityNeverActs(t *testing.T) {
	pick(t, Options{}, true, func(t *testing.T, c *Cluster, owner string) {
		for _, n := range c.Nodes {
			c.Cut(n)
		}
		time.Sleep(time.Minute)
		if len(c.State().Operations) > 0 || len(c.Storage.Active()) > 0 {
			t.Errorf("without a majority: %d operations, active %v", len(c.State().Operations), c.Storage.Active())
		}
		for _, n := range c.Nodes {
			c.Heal(n)
		}
		c.WaitRunning(20 * time.Second)
		if n := len(c.State().Operations); n != 0 {
			t.Errorf("%d fencing operations after a cut of all from all", n)
		}
	})
}

// TestRestartOfDaemon: restarting hamgr neither stops the service nor gets the node shot.
func TestRestartOfDaemon(t *testing.T) {
	for _, ownerLeads := range []bool{false, true} {
		pick(t, Options{}, ownerLeads, func(t *testing.T, c *Cluster, owner string) {
			before := token(c)
			c.RestartDaemon(owner, time.Second)
			time.Sleep(20 * time.Second)
			if token(c) != before || !c.Runs("db") || len(c.State().Operations) > 0 {
				t.Errorf("token %d, runs %v\n%s", token(c), c.Runs("db"), c.Report())
			}
			for _, e := range c.Storage.Events() {
				if e.What == "stopping" || e.What == "died" {
					t.Errorf("the service was stopped: %v", e)
				}
			}
		})
	}
}

// TestHungStop: a group that cannot be stopped gets its node fenced.
func TestHungStop(t *testing.T) {
	for _, ownerLeads := range []bool{false, true} {
		pick(t, Options{}, ownerLeads, func(t *testing.T, c *Cluster, owner string) {
			before := token(c)
			c.Storage.Set(owner, "db", "app", "stop", storage.Hangs)
			c.Storage.Set(owner, "db", "data", "start", storage.Fails)
			c.Storage.Kill(owner, "db", "data")
			takenOver(t, c, owner, before, 3*time.Minute)
		})
	}
}

// TestFailedResource: a resource that does not start is stopped cleanly, and tried elsewhere; nobody is
// shot.
func TestFailedResource(t *testing.T) {
	pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
		c.Storage.Set(owner, "db", "app", "start", storage.Fails)
		c.Storage.Kill(owner, "db", "app")
		c.WaitFor(time.Minute, "db runs elsewhere", func() bool { return c.Owner("db") != owner && c.Runs("db") })
		if n := len(c.State().Operations); n != 0 {
			t.Errorf("%d fencing operations for a failed start", n)
		}
		if p := c.State().Groups["db"].Released.Proof.Kind; p != state.CleanStop {
			t.Errorf("released by %s", p)
		}
	})
}

// TestTotalPowerLoss: all hosts lose power and come back; the group runs again, and nobody is
// shot.
func TestTotalPowerLoss(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *Cluster) {
		before := token(c)
		for _, n := range c.Nodes {
			c.Reboot(n, 20*time.Second)
		}
		c.WaitFor(2*time.Minute, "db runs again", func() bool { return token(c) > before && c.Runs("db") })
		if n := len(c.State().Operations); n != 0 {
			t.Errorf("%d fencing operations\n%s", n, c.Report())
		}
	})
}

// TestRestartTrustsNothing restarts the daemon of a former owner, which then applies its old log
// entry by entry: at some moment that says that it holds the group. It must not act on it before it
// asked.
func TestRestartTrustsNothing(t *testing.T) {
	pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
		c.Storage.Set(owner, "db", "app", "start", storage.Fails)
		c.Storage.Kill(owner, "db", "app")
		c.WaitFor(time.Minute, "db runs elsewhere", func() bool { return c.Owner("db") != owner && c.Runs("db") })
		c.slowApply(owner, 50*time.Millisecond)
		c.RestartDaemon(owner, 100*time.Millisecond)
		time.Sleep(30 * time.Second)
		for _, e := range c.Storage.Events() {
			if e.What == "refused" {
				t.Errorf("the former owner started the group again: %v", e)
			}
		}
		if !c.Runs("db") {
			t.Error(c.Report())
		}
	})
}

// TestFoundActive: something of the group is active on a node that was never granted it. No second copy is
// started until it is gone.
func TestFoundActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{})
		stray, err := storage.Kind(c.Storage, "gamma").Options().New(resources.Env{Group: "db", Resource: "data", Node: "gamma", Boot: "gamma-boot1"})
		if err != nil {
			t.Fatal(err)
		}
		if err := stray.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, n := range c.Nodes {
			c.Boot(n)
		}
		c.WaitFor(20*time.Second, "what runs on gamma is noticed", func() bool {
			g := c.State().Groups["db"]
			return g != nil && g.Found["gamma"] != ""
		})
		time.Sleep(time.Minute)
		if c.State().LastToken != 0 || len(c.Storage.Active()) != 1 {
			t.Errorf("token %d, active %v", c.State().LastToken, c.Storage.Active())
		}
		if err := stray.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.WaitRunning(30 * time.Second)
	})
}
