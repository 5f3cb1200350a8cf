package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/state"
)

// whole waits until every node that is meant sees all of them alive and hears a coordinator.
func (c *Cluster) whole(limit time.Duration, nodes ...string) {
	c.t.Helper()
	c.WaitFor(limit, fmt.Sprintf("%v are whole", nodes), func() bool {
		return !slices.ContainsFunc(nodes, func(n string) bool { return !c.sees(n, nodes) })
	})
}

// sees reports whether a host hears a coordinator and has all of these alive.
func (c *Cluster) sees(host string, nodes []string) bool {
	d := c.hosts[host].daemon()
	if d == nil {
		return false
	}
	st, err := d.Operator().Status(c.t.Context())
	if err != nil || !st.Quorate {
		return false
	}
	for _, n := range st.Nodes {
		if slices.Contains(nodes, n.Name) && n.State != api.NodeAlive {
			return false
		}
	}
	return true
}

// commands are the offs and ons that the node's device was ordered.
func (c *Cluster) commands(node string) (all []string) {
	for _, call := range c.BMC[node].Calls() {
		if call.Verb == "off" || call.Verb == "on" {
			all = append(all, call.Verb)
		}
	}
	return all
}

// blackout takes the power of all hosts, and gives it back to some a minute later, in that order, a second apart.
func (c *Cluster) blackout(back ...string) {
	for _, n := range c.Nodes {
		c.CutPower(n)
	}
	time.Sleep(time.Minute)
	for _, n := range back {
		c.Boot(n)
		time.Sleep(time.Second)
	}
}

// TestFreshMajority: of a cluster that never was, only a majority starts. It forms without the third one, which may be
// anything: nobody may shoot it. It comes ten minutes later, and is in.
func TestFreshMajority(t *testing.T) {
	for _, absent := range []string{"alpha", "gamma"} {
		t.Run("without "+absent, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(t, Options{})
				there := slices.DeleteFunc(slices.Clone(c.Nodes), func(n string) bool { return n == absent })
				for _, n := range there {
					c.Boot(n)
				}
				c.WaitRunning(8 * c.Detection) // the first placement waits for late ones
				c.whole(10*time.Second, there...)
				before := token(c)
				time.Sleep(10 * time.Minute)
				c.Boot(absent)
				c.whole(10*time.Second, c.Nodes...)
				c.WaitFor(10*time.Second, "it is in", func() bool { return c.State().Nodes[absent].Up })
				time.Sleep(time.Minute)
				if quiet(t, c); token(c) != before || !c.Runs("db") || len(c.commands(absent)) > 0 {
					t.Errorf("token %d after %d, %v to %s\n%s", token(c), before, c.commands(absent), absent, c.Report())
				}
			})
		})
	}
}

// TestFreshAlone: a node alone forms nothing, and says for whom it waits.
func TestFreshAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{})
		c.Boot("beta")
		time.Sleep(10 * time.Minute)
		c.waitsFor("beta", false, "1 more empty voter", "alpha, gamma do not answer")
		c.Boot("gamma")
		c.WaitRunning(8 * c.Detection) // the first placement waits for late ones
		quiet(t, c)
	})
}

// waitsFor checks that a host's status names what it waits for, and that this is its first problem.
func (c *Cluster) waitsFor(host string, formed bool, what ...string) {
	c.t.Helper()
	st, err := c.Operator(host).Status(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	if st.Formed != formed || st.Quorate || len(st.Problems) == 0 || st.Problems[0].Severity != api.SeverityAlarm {
		c.t.Errorf("formed %v, quorate %v, problems %+v", st.Formed, st.Quorate, st.Problems)
		return
	}
	for _, w := range what {
		if !strings.Contains(st.Waiting, w) || !strings.Contains(st.Problems[0].Text, w) {
			c.t.Errorf("waits for %q, problem %q; want %q", st.Waiting, st.Problems[0].Text, w)
		}
	}
}

// TestBlackout: all hosts lose their power and all come back, in every order. Every group runs again, and no device is
// ordered anything.
func TestBlackout(t *testing.T) {
	for _, order := range [][]string{
		{"alpha", "beta", "gamma"}, {"alpha", "gamma", "beta"}, {"beta", "alpha", "gamma"},
		{"beta", "gamma", "alpha"}, {"gamma", "alpha", "beta"}, {"gamma", "beta", "alpha"},
	} {
		t.Run(strings.Join(order, ", "), func(t *testing.T) {
			run(t, Options{Groups: []string{"db", "web", "mail"}}, func(t *testing.T, c *Cluster) {
				last, owners := c.State().LastToken, map[string]string{}
				for _, g := range c.Groups {
					owners[g] = c.Owner(g)
				}
				c.blackout(order...)
				c.WaitRunning(10 * c.Detection)
				for _, g := range c.Groups {
					if c.Owner(g) != owners[g] {
						t.Errorf("%s is on %s, and was on %s", g, c.Owner(g), owners[g])
					}
				}
				c.WaitFor(10*time.Second, "all are in", func() bool { return c.up() == len(c.Nodes) })
				time.Sleep(time.Minute)
				for _, g := range c.Groups {
					if got := c.State().Groups[g].Grant.Token; got <= last {
						t.Errorf("%s runs with token %d after %d", g, got, last)
					}
				}
				for _, n := range c.Nodes {
					if got := c.commands(n); len(got) > 0 {
						t.Errorf("%s was ordered %v\n%s", n, got, c.Report())
					}
				}
			})
		})
	}
}

// up is how many nodes are in.
func (c *Cluster) up() (n int) {
	for _, node := range c.State().Nodes {
		if node.Up {
			n++
		}
	}
	return n
}

// TestBlackoutOfOneThatHeldNothing: a majority comes back, and the one that does not held nothing: it is left alone, and is
// in again ten minutes later.
func TestBlackoutOfOneThatHeldNothing(t *testing.T) {
	for _, power := range []bool{false, true} { // to the absent one, which then hangs somewhere before its daemon
		t.Run(fmt.Sprintf("power %v", power), func(t *testing.T) {
			pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
				before := token(c)
				for _, n := range c.Nodes {
					c.CutPower(n)
				}
				if power {
					c.Crash("gamma")
				}
				time.Sleep(time.Minute)
				c.Boot("alpha")
				c.Boot("beta")
				runsAt(t, c, "db", owner, 10*c.Detection)
				time.Sleep(10 * time.Minute)
				c.Boot("gamma")
				c.whole(10*time.Second, c.Nodes...)
				quiet(t, c)
				if token(c) != before+1 || len(c.commands("gamma")) > 0 {
					t.Errorf("token %d after %d, %v to gamma", token(c), before, c.commands("gamma"))
				}
			})
		})
	}
}

// TestBlackoutOfTheOwner: the one that does not come back held the group, by the log. Where its device says that it has no power that
// is the proof, and no command is given; where it has, it is shot.
func TestBlackoutOfTheOwner(t *testing.T) {
	for _, power := range []bool{false, true} {
		t.Run(fmt.Sprintf("power %v", power), func(t *testing.T) {
			pick(t, Options{BootTime: time.Hour}, false, func(t *testing.T, c *Cluster, owner string) {
				before := token(c)
				if power {
					c.BMC[owner].OnPower = nil // nobody is at home
				}
				for _, n := range c.Nodes {
					c.CutPower(n)
				}
				if power {
					c.Crash(owner)
					c.BMC[owner].SetPower("", agents.On)
				}
				time.Sleep(time.Minute)
				for _, n := range c.Nodes {
					if n != owner {
						c.Boot(n)
					}
				}
				c.WaitFor(10*c.Detection, "db runs elsewhere", func() bool { return c.Owner("db") != owner && c.Runs("db") })
				p := c.State().Groups["db"].Released.Proof
				if got := slices.Contains(c.commands(owner), "off"); got != power || p.Kind != state.PowerOff || p.Node != owner || token(c) <= before {
					t.Errorf("commands %v, proof %+v, token %d after %d\n%s", c.commands(owner), p, token(c), before, c.Report())
				}
			})
		})
	}
}

// TestBlackoutAlone: one comes back alone. It may have been the owner or the coordinator: it starts nothing, shoots nobody,
// and says for whom it waits. Ten minutes later another one comes.
func TestBlackoutAlone(t *testing.T) {
	for _, first := range []string{"alpha", "beta", "gamma"} {
		t.Run(first, func(t *testing.T) {
			pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
				before := token(c)
				c.blackout(first)
				time.Sleep(10 * time.Minute)
				others := slices.DeleteFunc(slices.Clone(c.Nodes), func(n string) bool { return n == first })
				c.waitsFor(first, true, "coordinator", strings.Join(others, ", ")+" do not answer")
				if len(c.Storage.Active()) > 0 || token(c) != before {
					t.Errorf("alone: token %d, active %v", token(c), c.Storage.Active())
				}
				for _, n := range c.Nodes {
					if len(c.commands(n)) > 0 {
						t.Errorf("alone, it ordered %v to %s", c.commands(n), n)
					}
				}
				c.Boot(others[0])
				c.WaitRunning(10 * c.Detection)
			})
		})
	}
}
