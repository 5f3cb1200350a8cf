package sim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	bmc "github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/state"
)

// other gives the member that is neither of the two.
func other(c *Cluster, a, b string) string {
	for _, n := range c.Nodes {
		if n != a && n != b {
			return n
		}
	}
	return ""
}

// lastOp is the newest operation against the node.
func lastOp(c *Cluster, node string) *state.Operation {
	var last *state.Operation
	for _, o := range c.State().Operations {
		if o.Node == node && (last == nil || o.ID > last.ID) {
			last = o
		}
	}
	return last
}

// TestDelegatedShot: the coordinator does not reach the BMC of the node that fails; the third node does,
// and shoots. Known beforehand by the checks of health, or found out by a failed attempt.
func TestDelegatedShot(t *testing.T) {
	for name, warned := range map[string]bool{"known before": true, "found out": false} {
		t.Run(name, func(t *testing.T) {
			pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
				leader := c.Coordinator()
				third := other(c, owner, leader)
				if warned {
					c.Blind(leader, owner, true)
					time.Sleep(12 * time.Minute) // of which each device is read at least once
				} else {
					time.Sleep(time.Minute)
					c.Blind(leader, owner, true)
				}
				before := token(c)
				c.Freeze(owner)
				takenOver(t, c, owner, before, 2*time.Minute)
				o := lastOp(c, owner)
				if o.Executor != third {
					t.Errorf("executor %s, want %s", o.Executor, third)
				}
				if warned && o.Failures != 0 {
					t.Errorf("%d failed attempts, though it was known who reaches the device", o.Failures)
				}
				if !warned && o.Failures == 0 {
					t.Error("no failed attempt: the coordinator was not blind")
				}
				if len(o.Trail) == 0 || len(o.Trail[len(o.Trail)-1].Devices) == 0 {
					t.Errorf("what the devices did is not in the history: %+v", o.Trail)
				}
			})
		})
	}
}

// TestExecutorDies: the node that shoots for the coordinator dies while it does; the coordinator itself
// reaches the device again by then, or another node does.
func TestExecutorDies(t *testing.T) {
	nodes := []string{"alpha", "beta", "gamma", "delta", "epsilon"}
	pick(t, Options{Nodes: nodes}, false, func(t *testing.T, c *Cluster, owner string) {
		leader := c.Coordinator()
		c.Blind(leader, owner, true)
		time.Sleep(12 * time.Minute)
		c.BMC[owner].Behave(bmc.Behavior{Lag: 8 * time.Second})
		before := token(c)
		c.Freeze(owner)
		var executor string
		c.WaitFor(time.Minute, "another node shoots", func() bool {
			o := lastOp(c, owner)
			if o == nil || o.Phase != state.Shooting {
				return false
			}
			executor = o.Executor
			return executor != leader && executor != ""
		})
		time.Sleep(time.Second)
		c.Crash(executor)
		takenOver(t, c, owner, before, 2*time.Minute)
		if o := lastOp(c, owner); o.Executor == executor {
			t.Errorf("proven off by %s, which was dead", executor)
		}
	})
}

// TestCoordinatorDiesWhileAnotherShoots: the next coordinator carries the operation through.
func TestCoordinatorDiesWhileAnotherShoots(t *testing.T) {
	nodes := []string{"alpha", "beta", "gamma", "delta", "epsilon"}
	pick(t, Options{Nodes: nodes}, false, func(t *testing.T, c *Cluster, owner string) {
		leader := c.Coordinator()
		c.Blind(leader, owner, true)
		time.Sleep(12 * time.Minute)
		c.BMC[owner].Behave(bmc.Behavior{Lag: 8 * time.Second})
		before := token(c)
		c.Freeze(owner)
		c.WaitFor(time.Minute, "another node shoots", func() bool {
			o := lastOp(c, owner)
			return o != nil && o.Phase == state.Shooting && o.Executor != leader
		})
		time.Sleep(time.Second)
		c.Crash(leader)
		takenOver(t, c, owner, before, 2*time.Minute)
	})
}

// TestExecutorCutOff: the executor still reaches the BMC, but not the coordinator any more, and the target
// has come back with a new boot meanwhile. Each command needs the coordinator's word: none goes out.
func TestExecutorCutOff(t *testing.T) {
	nodes := []string{"alpha", "beta", "gamma", "delta", "epsilon"}
	pick(t, Options{Nodes: nodes}, false, func(t *testing.T, c *Cluster, owner string) {
		leader := c.Coordinator()
		executor := other(c, owner, leader)
		for _, n := range nodes {
			if n != executor {
				c.Blind(n, owner, true)
			}
		}
		time.Sleep(12 * time.Minute)
		c.BMC[owner].Behave(bmc.Behavior{Answer: 9 * time.Second})
		c.Reboot(owner, 5*time.Second)
		c.WaitFor(time.Minute, executor+" shoots", func() bool {
			o := lastOp(c, owner)
			return o != nil && o.Phase == state.Shooting && o.Executor == executor
		})
		time.Sleep(time.Second)
		c.Cut(executor)
		c.WaitFor(time.Minute, owner+" is back with a new boot", func() bool { return c.State().Nodes[owner].Up && c.State().Nodes[owner].Op == 0 })
		time.Sleep(time.Minute)
		if calls := offs(c.BMC[owner]); len(calls) > 0 {
			t.Errorf("the new boot was shot: %+v", calls)
		}
	})
}

// offs are the off commands that reached a device.
func offs(d *bmc.Device) (calls []bmc.Call) {
	for _, call := range d.Calls() {
		if call.Verb == "off" {
			calls = append(calls, call)
		}
	}
	return calls
}

// TestWrongMachine: the BMC that is configured for the owner says that it powers another machine. It is
// never told to switch, nothing is taken over, and the status says why.
func TestWrongMachine(t *testing.T) {
	pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
		c.BMC[owner].Behave(bmc.Behavior{UUID: machineID("somebody else's")})
		leader := c.Coordinator()
		c.Freeze(owner)
		time.Sleep(3 * time.Minute)
		if calls := offs(c.BMC[owner]); len(calls) > 0 {
			t.Errorf("%d offs were sent to a BMC of another machine", len(calls))
		}
		if c.Owner("db") != owner {
			t.Errorf("db was granted to %s without a proof", c.Owner("db"))
		}
		if o := lastOp(c, owner); o == nil || o.Failures == 0 || !strings.Contains(o.Error, "wrong machine") {
			t.Errorf("operation: %+v", o)
		}
		status, err := c.Operator(leader).Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !says(status, "wrong machine") {
			t.Errorf("the status does not say it: %+v", status.Problems)
		}
		// The right BMC again: now it goes through.
		c.BMC[owner].Behave(bmc.Behavior{UUID: machineID(owner)})
		c.WaitFor(3*time.Minute, "db is taken over", func() bool { return c.Owner("db") != owner && c.Runs("db") })
	})
}

func says(s api.Status, text string) bool {
	for _, p := range s.Problems {
		if strings.Contains(p.Text, text) {
			return true
		}
	}
	return false
}

// TestHealthIsShown: trouble of a device is known to every node's operator before it is needed, and its end too.
func TestHealthIsShown(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *Cluster) {
		c.BMC["beta"].Behave(bmc.Behavior{Check: "privilege"})
		time.Sleep(12 * time.Minute)
		for _, host := range c.Nodes {
			status, err := c.Operator(host).Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !says(status, "wrong privilege") {
				t.Errorf("%s: %+v", host, status.Problems)
			}
		}
		c.BMC["beta"].Behave(bmc.Behavior{})
		test, err := c.Operator("gamma").FenceTest(t.Context(), "beta")
		if err != nil || len(test.Devices) != 2 {
			t.Fatalf("%v, %+v", err, test)
		}
		for _, d := range test.Devices {
			if !d.OK || d.State != "on" || d.ReadBy == "beta" {
				t.Errorf("%+v", d)
			}
		}
		status, err := c.Operator("alpha").Status(t.Context())
		if err != nil || says(status, "wrong privilege") {
			t.Errorf("%v, %+v", err, status.Problems)
		}
		for name, d := range c.BMC {
			if d.Overlapped() {
				t.Errorf("two nodes were at %s's BMC at once", name)
			}
			if len(offs(d)) > 0 {
				t.Errorf("%s was switched off", name)
			}
		}
	})
}

// TestStormBrake: after one of three was fenced, the second failure within the window waits for the
// clock, or for an operator.
func TestStormBrake(t *testing.T) {
	const window = 5 * time.Minute
	for name, byHand := range map[string]bool{"the window ends": false, "an operator orders it": true} {
		t.Run(name, func(t *testing.T) {
			pick(t, Options{Cluster: "storm_window = \"5m\"\n"}, false, func(t *testing.T, c *Cluster, owner string) {
				before := token(c)
				began := time.Now()
				c.Freeze(owner)
				takenOver(t, c, owner, before, time.Minute)
				c.WaitFor(time.Minute, owner+" is back", func() bool { return c.State().Nodes[owner].Up })
				second := c.Owner("db")
				third := other(c, owner, second)
				before = token(c)
				c.Freeze(second)
				time.Sleep(time.Minute)
				if c.Owner("db") != second {
					t.Fatalf("db went to %s: the brake does not hold", c.Owner("db"))
				}
				status, err := c.Operator(c.Coordinator()).Status(t.Context())
				if err != nil || !says(status, "storm brake") {
					t.Errorf("%v, %+v", err, status.Problems)
				}
				if byHand {
					go c.Operator(third).Fence(t.Context(), api.FenceRequest{Node: second, Action: api.ActionOff, By: "anna"}, func(api.FenceEvent) {})
				}
				takenOver(t, c, second, before, window)
				if held := time.Since(began) >= window; held == byHand {
					t.Errorf("taken over %s after the first failure", time.Since(began))
				}
			})
		})
	}
}

// TestQuarantine: a node that fails again and again is left off, for longer each time, until then
// or until an operator wants it back.
func TestQuarantine(t *testing.T) {
	keys := "storm_window = \"0s\"\nquarantine_after = 2\nquarantine_window = \"30m\"\nquarantine_time = \"10m\"\n"
	nodes := []string{"alpha", "beta", "gamma", "delta", "epsilon"} // of which one can be spared
	pick(t, Options{Nodes: nodes, Cluster: keys}, false, func(t *testing.T, c *Cluster, owner string) {
		up := func() bool { return c.State().Nodes[owner].Up && c.Runs("db") }
		fail := func() {
			c.WaitFor(time.Minute, owner+" is up", up)
			// Something that it holds is needed for it to be shot: the group comes back to it, all others gone on standby.
			if c.Owner("db") != owner {
				others := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == owner })
				for _, n := range others {
					standby(t, c, n, true)
				}
				c.WaitFor(time.Minute, owner+" holds db", func() bool { return c.Owner("db") == owner && c.Runs("db") })
				for _, n := range others {
					standby(t, c, n, false)
				}
			}
			c.Freeze(owner)
			c.WaitFor(time.Minute, "db is taken over", func() bool { return c.Owner("db") != owner && c.Runs("db") })
		}
		fail()
		fail()
		began := time.Now()
		time.Sleep(9 * time.Minute)
		if up() {
			t.Fatal("it was switched on within its quarantine")
		}
		status, err := c.Operator(c.Coordinator()).Status(t.Context())
		if err != nil || !says(status, "quarantine") {
			t.Errorf("%v, %+v", err, status.Problems)
		}
		c.WaitFor(3*time.Minute, owner+" is let in again", up)
		if d := time.Since(began); d < 10*time.Minute {
			t.Errorf("back after %s", d)
		}
		fail()
		time.Sleep(15 * time.Minute)
		if up() {
			t.Fatal("the second quarantine is no longer than the first")
		}
		if _, err := c.Operator("alpha").Fence(t.Context(), api.FenceRequest{Node: owner, Action: api.ActionOn, By: "anna"}, func(api.FenceEvent) {}); err != nil {
			t.Fatal(err)
		}
		c.WaitFor(time.Minute, "the operator has it back", up)
	})
}

// TestQuarantineKeepsTheMajority: of three nodes one is in quarantine when the next one fails. Nobody could switch anything
// on again, ever, if the first one were left off: it is on, and holds nothing.
func TestQuarantineKeepsTheMajority(t *testing.T) {
	keys := "storm_window = \"0s\"\nquarantine_after = 1\nquarantine_window = \"30m\"\nquarantine_time = \"1h\"\n"
	pick(t, Options{Cluster: keys}, false, func(t *testing.T, c *Cluster, owner string) {
		before := token(c)
		c.Freeze(owner)
		takenOver(t, c, owner, before, time.Minute)
		c.WaitFor(time.Minute, owner+" is on", func() bool { return c.State().Nodes[owner].Up })
		second := c.Owner("db")
		before = token(c)
		c.Freeze(second)
		takenOver(t, c, second, before, time.Minute)
		if c.Owner("db") == owner {
			t.Errorf("%s is in quarantine and was given db", owner)
		}
	})
}

func standbyVerb(on bool) string {
	if on {
		return api.ChangeStandby
	}
	return api.ChangeOnline
}

func standby(t *testing.T, c *Cluster, node string, on bool) {
	t.Helper()
	if _, err := c.Operator(c.Nodes[0]).Change(t.Context(), api.ChangeRequest{Verb: standbyVerb(on), Node: node, By: "anna"}); err != nil {
		t.Fatal(err)
	}
}

// TestRehearsal: a node on standby is really switched off and on, and the cluster remembers how that went. A
// node that is in service is left alone.
func TestRehearsal(t *testing.T) {
	pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
		op := c.Operator(other(c, owner, c.Coordinator()))
		rehearse := func() (api.FenceResult, error) {
			return op.Fence(t.Context(), api.FenceRequest{Node: owner, Action: api.ActionRehearse, Level: 1, By: "anna"}, func(api.FenceEvent) {})
		}
		if _, err := rehearse(); !errors.Is(err, api.ErrUnsafe) {
			t.Fatalf("rehearsal of a node in service: %v", err)
		}
		standby(t, c, owner, true)
		c.WaitFor(time.Minute, "db has moved", func() bool { return c.Owner("db") != owner && c.Runs("db") })
		boot := c.State().Nodes[owner].Boot
		res, err := rehearse()
		if err != nil || res.Phase != api.PhaseDone {
			t.Fatalf("%+v, %v", res, err)
		}
		if len(offs(c.BMC[owner])) != 1 {
			t.Errorf("%d offs", len(offs(c.BMC[owner])))
		}
		c.WaitFor(time.Minute, owner+" is back", func() bool { n := c.State().Nodes[owner]; return n.Up && n.Boot != boot })
		if r := c.State().Nodes[owner].Rehearsals[owner+"-bmc"]; r.Op != res.Op || r.OffMS <= 0 {
			t.Errorf("recorded: %+v", c.State().Nodes[owner].Rehearsals)
		}
		// One that fails is recorded as such, and the node is left on.
		c.BMC[owner].Behave(bmc.Behavior{Command: "ignore"})
		if _, err := rehearse(); !errors.Is(err, api.ErrFailed) {
			t.Errorf("rehearsal with a BMC that ignores: %v", err)
		}
		time.Sleep(10 * time.Second)
		if n := c.State().Nodes[owner]; n.Unclean != "" || n.Op != 0 || !n.Up {
			t.Errorf("after a failed rehearsal: %+v", n)
		}
		c.BMC[owner].Behave(bmc.Behavior{})
		standby(t, c, owner, false)
		time.Sleep(time.Minute)
		if !c.Runs("db") {
			t.Error("db does not run")
		}
	})
}

// TestConfirm: an operator's word ends what no device can prove, but not while anything says that the node
// is alive; and it is never taken for a fencing.
func TestConfirm(t *testing.T) {
	pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
		op := c.Operator(c.Coordinator())
		word := api.FenceRequest{Node: owner, Action: api.ActionConfirm, By: "anna", Reason: "cable pulled"}
		confirm := func(req api.FenceRequest) (api.FenceResult, error) {
			return op.Fence(t.Context(), req, func(api.FenceEvent) {})
		}
		if _, err := confirm(word); !errors.Is(err, api.ErrUnsafe) {
			t.Fatalf("confirmed although the node is heard: %v", err)
		}
		c.BMC[owner].Behave(bmc.Behavior{Command: "refuse"})
		before := token(c)
		c.Crash(owner)
		time.Sleep(time.Minute)
		c.BMC[owner].Behave(bmc.Behavior{Command: "refuse", Status: "on"})
		if _, err := confirm(word); !errors.Is(err, api.ErrUnsafe) || !strings.Contains(err.Error(), "says on") {
			t.Fatalf("confirmed although its BMC says on: %v", err)
		}
		c.BMC[owner].Behave(bmc.Behavior{Command: "refuse", Status: "error"})
		if c.Owner("db") != owner {
			t.Fatal("taken over without a proof")
		}
		res, err := confirm(word)
		if err != nil || !strings.Contains(res.Proof, "operator's word") {
			t.Fatalf("%+v, %v", res, err)
		}
		c.WaitFor(time.Minute, "db is taken over", func() bool { return c.Owner("db") != owner && c.Runs("db") })
		if token(c) <= before {
			t.Error("the token did not grow")
		}
		history, err := op.FenceHistory(t.Context(), owner)
		if err != nil || len(history.Operations) < 2 || history.Operations[0].Action != "confirm" || !strings.HasPrefix(history.Operations[0].By, "anna on ") {
			t.Errorf("%v, %+v", err, history)
		}
		if p := c.State().Groups["db"].Released.Proof; p.Kind != state.OperatorWord {
			t.Errorf("proof %+v", p)
		}
	})
}

// TestForcedConfirm: the operator insists although the node answers. What the node holds it then loses
// by itself at once, as a node does that is told that its boot is over.
func TestForcedConfirm(t *testing.T) {
	pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
		c.BMC[owner].Behave(bmc.Behavior{Command: "refuse"})
		c.Cut(owner)
		time.Sleep(time.Minute) // it has let go by now
		op := c.Operator(c.Coordinator())
		req := api.FenceRequest{Node: owner, Action: api.ActionConfirm, By: "anna", Force: true}
		if _, err := op.Fence(t.Context(), req, func(api.FenceEvent) {}); err != nil {
			t.Fatal(err)
		}
		c.WaitFor(time.Minute, "db is taken over", func() bool { return c.Owner("db") != owner && c.Runs("db") })
		c.Heal(owner)
		time.Sleep(time.Minute)
		if c.State().Nodes[owner].Up {
			t.Error("a boot that was confirmed down is in the cluster again")
		}
		for _, n := range c.Nodes {
			if status, err := c.Operator(n).Status(t.Context()); n != owner && (err != nil || !says(status, "although that is proven over")) {
				t.Errorf("%s does not tell that it runs: %v, %+v", n, err, status.Problems)
			}
		}
	})
}
