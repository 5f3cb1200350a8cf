package sim

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	bmc "github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/node"
	"github.com/hamgr/hamgr/cluster/state"
)

const quietPolicy = "storm_window = \"0s\"\nquarantine_window = \"0s\"\n"

// pair starts a cluster of two nodes without a witness. Each of the groups prefers the node that is named first; both vote.
func pair(t *testing.T, o Options, on map[string]string, f func(t *testing.T, c *Cluster)) {
	t.Helper()
	o.Nodes, o.Text, o.Cluster = []string{"alpha", "beta"}, true, "two_node = true\n"+quietPolicy
	o.Groups, o.Keys = nil, map[string]string{}
	for _, g := range []string{"db", "web"} {
		if on[g] != "" {
			o.Groups = append(o.Groups, g)
			o.Keys[g] = fmt.Sprintf("allow = [\"alpha\", \"beta\"]\nprefer = [%q]", on[g])
		}
	}
	run(t, o, func(t *testing.T, c *Cluster) {
		c.bothVote(10 * o.Detection)
		time.Sleep(2 * o.Detection)
		for g, n := range on {
			if c.Owner(g) != n {
				t.Fatalf("%s is on %s, not on %s", g, c.Owner(g), n)
			}
		}
		f(t, c)
	})
}

// bothVote waits until both nodes are in, and the two-node rule can be applied again.
func (c *Cluster) bothVote(limit time.Duration) {
	c.t.Helper()
	c.WaitFor(limit, "both nodes vote", c.vote)
}

// vote reports whether they do.
func (c *Cluster) vote() bool {
	if !c.State().TwoNode || c.up() != 2 || c.Coordinator() == "" {
		return false
	}
	for _, n := range c.Nodes {
		if d := c.hosts[n].daemon(); d == nil || len(d.Voting()) != 2 {
			return false
		}
	}
	return true
}

// alone reports whether a node coordinates as the only voter.
func (c *Cluster) alone(name string) bool {
	d := c.hosts[name].daemon()
	return d != nil && d.Coordinates() && slices.Equal(d.Voting(), []string{name})
}

// lead has a node coordinate.
func (c *Cluster) lead(name string) {
	c.t.Helper()
	for range 10 {
		if c.Coordinator() == name {
			return
		}
		c.RestartDaemon(c.Coordinator(), c.Detection/2)
		c.WaitFor(time.Minute, "somebody leads", func() bool { return c.Coordinator() != "" })
		time.Sleep(2 * c.Detection)
	}
	c.t.Fatalf("%s does not lead", name)
}

// secondShot is when the one that does not shoot first has done so, at the latest.
func (c *Cluster) secondShot(name string) time.Duration {
	return c.Detection + node.SecondShotDelay(c.config(name, c.file), name) + 2*c.Detection + 3*time.Second
}

// shotOf is how often a node was switched off by a command.
func (c *Cluster) shotOf(name string) int { return len(offs(c.BMC[name])) }

var losses = map[string]func(*Cluster, string){"crash": (*Cluster).Crash, "freeze": (*Cluster).Freeze, "cut": (*Cluster).Cut}

// TestTwoNodesLoseTheHolder: the one that holds is lost. Where it is down or stands still, the other one reads that it has
// power, gives it the time to shoot first, shoots it, and takes over alone. Where the link is cut the holder is the one that
// shoots. What comes back is a newcomer, and then it all works the other way round.
func TestTwoNodesLoseTheHolder(t *testing.T) {
	for name, fault := range losses {
		for _, leads := range []bool{false, true} {
			for _, detection := range []time.Duration{time.Second, 3 * time.Second} {
				t.Run(fmt.Sprintf("%s/it leads %v/%s", name, leads, detection), func(t *testing.T) {
					pair(t, Options{Detection: detection}, map[string]string{"db": "beta"}, func(t *testing.T, c *Cluster) {
						for round := range 3 {
							holder := c.Owner("db")
							idle := other(c, holder, holder)
							if leads {
								c.lead(holder)
							} else {
								c.lead(idle)
							}
							before, events := token(c), len(c.Storage.Events())
							shots := map[string]int{holder: c.shotOf(holder), idle: c.shotOf(idle)}
							began := time.Now()
							fault(c, holder)
							dies, lives := holder, idle
							if name == "cut" {
								dies, lives = idle, holder
							}
							c.WaitFor(c.secondShot(idle), "one goes on alone", func() bool {
								return c.alone(lives) && c.Runs("db") && c.Owner("db") == lives
							})
							t.Logf("round %d: after %.2f detection times", round, time.Since(began).Seconds()/detection.Seconds())
							if c.shotOf(dies) != shots[dies]+1 || c.shotOf(lives) != shots[lives] {
								t.Errorf("commands: to %s %v, to %s %v", dies, c.commands(dies), lives, c.commands(lives))
							}
							if name == "cut" && (len(c.touched(events)) > 0 || token(c) != before) {
								t.Errorf("what the holder ran was touched: %v", c.touched(events))
							} else if name != "cut" && token(c) <= before {
								t.Errorf("token %d after %d", token(c), before)
							}
							c.Heal(holder)
							c.Thaw(holder)
							c.bothVote(c.BootTime + time.Minute)
							time.Sleep(5 * detection)
						}
					})
				})
			}
		}
	}
}

// TestTwoNodesLoseTheIdle: the one that holds nothing is lost. The holder shoots at once, and what it runs runs on.
func TestTwoNodesLoseTheIdle(t *testing.T) {
	for name, fault := range losses {
		for _, leads := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/it leads %v", name, leads), func(t *testing.T) {
				pair(t, Options{Detection: time.Second}, map[string]string{"db": "beta", "web": "beta"}, func(t *testing.T, c *Cluster) {
					for range 3 {
						if leads {
							c.lead("alpha")
						} else {
							c.lead("beta")
						}
						events, shots := len(c.Storage.Events()), c.shotOf("alpha")
						fault(c, "alpha")
						c.WaitFor(c.Detection*2+time.Second, "beta goes on alone", func() bool { return c.alone("beta") })
						if c.shotOf("alpha") != shots+1 {
							t.Errorf("commands %v", c.commands("alpha"))
						}
						c.Heal("alpha")
						c.Thaw("alpha")
						c.bothVote(c.BootTime + time.Minute)
						time.Sleep(5 * c.Detection)
						if len(c.touched(events)) > 0 || len(offs(c.BMC["beta"])) > 0 {
							t.Errorf("touched %v, commands to beta %v", c.touched(events), c.commands("beta"))
						}
					}
				})
			})
		}
	}
}

// quick is how a device behaves that is well.
var quick = bmc.Behavior{Answer: 2 * time.Millisecond}

// dead is how a device behaves that does nothing any more.
var dead = bmc.Behavior{Stall: []string{"status", "off", "on", "identity", "open", "check"}}

// TestTwoNodesCutApart: both hold, and do not hear each other. Exactly one of them survives, the first one by name; where its
// shot cannot succeed, the other one.
func TestTwoNodesCutApart(t *testing.T) {
	for name, tc := range map[string]struct {
		device  bmc.Behavior // of beta
		lives   string
		oneLink bool
	}{
		"quick devices":          {bmc.Behavior{Answer: 2 * time.Millisecond}, "alpha", false},
		"a slow one":             {bmc.Behavior{Answer: 200 * time.Millisecond, Lag: time.Second}, "alpha", false},
		"beta's does not obey":   {bmc.Behavior{Command: "refuse"}, "beta", false},
		"beta's does not answer": {dead, "beta", false},
		"beta hears, alpha not":  {bmc.Behavior{Answer: 2 * time.Millisecond}, "alpha", true},
	} {
		t.Run(name, func(t *testing.T) {
			pair(t, Options{Detection: time.Second}, map[string]string{"db": "alpha", "web": "beta"}, func(t *testing.T, c *Cluster) {
				c.BMC["beta"].Behave(tc.device)
				dies := other(c, tc.lives, tc.lives)
				if c.Net.Cut("beta", "alpha"); !tc.oneLink {
					c.Net.Cut("alpha", "beta")
				}
				c.WaitFor(c.secondShot("beta")+10*c.Detection, tc.lives+" runs all", func() bool {
					return c.Owner("db") == tc.lives && c.Owner("web") == tc.lives && c.Runs("db") && c.Runs("web")
				})
				if c.hosts[tc.lives].boots != 1 {
					t.Errorf("%s was shot, too: %v", tc.lives, c.commands(tc.lives))
				}
				c.Net.HealAll()
				c.BMC["beta"].Behave(bmc.Behavior{})
				c.BMC["beta"].Release()
				c.bothVote(c.BootTime + 2*time.Minute)
				if n := c.State().Nodes[dies]; n.Boot == dies+"-boot1" {
					t.Errorf("%s was not shot", dies)
				}
			})
		})
	}
}

// problem looks for an alarm in what a node tells.
func (c *Cluster) problem(name, text string) bool {
	c.t.Helper()
	st, err := c.Operator(name).Status(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return says(st, text)
}

// TestTwoNodesDeadDevice: the victim's device is dead. Nothing is taken over, what runs goes on, and the node says what it needs.
// Once the device reads off, it goes on.
func TestTwoNodesDeadDevice(t *testing.T) {
	for _, holder := range []bool{false, true} {
		t.Run(fmt.Sprintf("the holder is lost %v", holder), func(t *testing.T) {
			pair(t, Options{Detection: time.Second}, map[string]string{"db": "beta"}, func(t *testing.T, c *Cluster) {
				lost, left := "alpha", "beta"
				if holder {
					lost, left = "beta", "alpha"
				}
				events, tokens := len(c.Storage.Events()), c.State().LastToken
				c.BMC[lost].Behave(dead)
				c.Crash(lost)
				time.Sleep(2 * time.Minute)
				for _, e := range c.touched(events) {
					if e.Host == left {
						t.Errorf("%v", e)
					}
				}
				if c.State().LastToken != tokens || !c.problem(left, "does not go on alone") {
					t.Errorf("token %d after %d\n%s", c.State().LastToken, tokens, c.Report())
				}
				c.BMC[lost].Behave(bmc.Behavior{})
				c.BMC[lost].Release()
				c.WaitFor(time.Minute, "it goes on", func() bool { return c.Owner("db") == left && c.Runs("db") })
				c.bothVote(c.BootTime + time.Minute)
			})
		})
	}
}

// TestTwoNodesFoundOff: the victim has no power. That is proof enough, and no command is sent before it is fenced in order.
func TestTwoNodesFoundOff(t *testing.T) {
	pair(t, Options{Detection: time.Second}, map[string]string{"db": "beta"}, func(t *testing.T, c *Cluster) {
		c.CutPower("beta")
		c.WaitFor(3*c.Detection, "alpha takes over without any delay", func() bool { return c.Owner("db") == "alpha" && c.Runs("db") })
		if c.shotOf("beta") > 0 {
			t.Errorf("commands %v", c.commands("beta"))
		}
		c.bothVote(c.BootTime + time.Minute)
	})
}

// TestTwoNodesBootAlone: one that boots alone waits, and says for what. The one that went on alone before goes on.
func TestTwoNodesBootAlone(t *testing.T) {
	start := func(t *testing.T, f func(t *testing.T, c *Cluster)) {
		pair(t, Options{Detection: time.Second}, map[string]string{"db": "beta"}, func(t *testing.T, c *Cluster) { f(t, c) })
	}
	waits := func(t *testing.T, c *Cluster, name string) {
		t.Helper()
		tokens, shots := c.State().LastToken, c.shotOf("alpha")+c.shotOf("beta")
		c.Boot(name)
		time.Sleep(2 * time.Minute)
		if c.State().LastToken != tokens || c.shotOf("alpha")+c.shotOf("beta") != shots || len(c.Storage.Active()) > 0 {
			t.Errorf("%s did not wait\n%s", name, c.Report())
		}
		if !c.problem(name, "has not been part of a quorum since it booted") {
			t.Errorf("%s does not say for what it waits", name)
		}
	}
	for _, first := range []string{"alpha", "beta"} {
		t.Run("after a blackout, first "+first, func(t *testing.T) {
			start(t, func(t *testing.T, c *Cluster) {
				shots := c.shotOf("alpha") + c.shotOf("beta")
				c.CutPower("alpha")
				c.CutPower("beta")
				time.Sleep(time.Minute)
				waits(t, c, first)
				c.Boot(other(c, first, first))
				c.WaitRunning(20 * c.Detection)
				c.bothVote(20 * c.Detection)
				if c.shotOf("alpha")+c.shotOf("beta") != shots {
					t.Errorf("somebody was shot: %v %v", c.commands("alpha"), c.commands("beta"))
				}
			})
		})
		t.Run("both at once/"+first, func(t *testing.T) {
			start(t, func(t *testing.T, c *Cluster) {
				c.CutPower("alpha")
				c.CutPower("beta")
				time.Sleep(time.Minute)
				c.Boot(first)
				c.Boot(other(c, first, first))
				c.WaitRunning(10 * c.Detection)
				if c.shotOf("alpha")+c.shotOf("beta") > 0 {
					t.Errorf("somebody was shot: %v %v", c.commands("alpha"), c.commands("beta"))
				}
			})
		})
	}
	alone := func(c *Cluster) {
		c.Crash("beta")
		c.WaitFor(c.secondShot("alpha"), "alpha goes on alone", func() bool { return c.Owner("db") == "alpha" && c.Runs("db") })
		c.CutPower("beta") // so that it does not come back at once
	}
	t.Run("the survivor reboots while alone", func(t *testing.T) {
		start(t, func(t *testing.T, c *Cluster) {
			c.BMC["beta"].Behave(bmc.Behavior{})
			alone(c)
			c.Reboot("alpha", 5*time.Second)
			c.WaitFor(30*time.Second, "it goes on", func() bool { return c.Runs("db") && c.State().Nodes["alpha"].Boot == "alpha-boot2" })
		})
	})
	t.Run("the other one comes back first", func(t *testing.T) {
		start(t, func(t *testing.T, c *Cluster) {
			alone(c)
			c.CutPower("alpha")
			time.Sleep(time.Second)
			c.CutPower("beta")
			waits(t, c, "beta")
			c.Boot("alpha")
			c.WaitRunning(time.Minute)
			c.bothVote(time.Minute)
		})
	})
}

// TestTwoNodesStop: one of the two is stopped in order. Its groups move, the other one goes on without any shot, and nothing that it
// runs is touched; also where the one that goes leads. When it is started again both vote.
func TestTwoNodesStop(t *testing.T) {
	for _, way := range []string{"stop", "depart", "depart and power off"} {
		for _, leads := range []bool{false, true} {
			for _, goes := range []string{"alpha", "beta"} {
				t.Run(fmt.Sprintf("%s of %s, it leads %v", way, goes, leads), func(t *testing.T) {
					pair(t, Options{Detection: time.Second}, map[string]string{"db": "beta"}, func(t *testing.T, c *Cluster) {
						if way == "stop" && goes == "beta" {
							return // it leaves what it holds as it is
						}
						stays := other(c, goes, goes)
						for range 3 {
							if leads {
								c.lead(goes)
							} else {
								c.lead(stays)
							}
							events := len(c.Storage.Events())
							if way == "stop" {
								c.StopDaemon(goes)
							} else {
								c.Depart(goes)
							}
							if way == "depart and power off" {
								c.CutPower(goes)
							}
							c.WaitFor(3*c.Detection, "the other one goes on", func() bool {
								return c.Owner("db") == stays && c.Runs("db") && c.alone(stays)
							})
							time.Sleep(time.Minute)
							quiet(t, c)
							if goes != "beta" && len(c.touched(events)) > 0 || c.Coordinator() != stays || c.shotOf(goes)+c.shotOf(stays) > 0 {
								t.Errorf("touched %v, coordinator %q, commands %v %v", c.touched(events), c.Coordinator(), c.commands(goes), c.commands(stays))
							}
							if way == "depart and power off" {
								c.Boot(goes)
							} else {
								c.hosts[goes].start()
							}
							c.bothVote(time.Minute)
							if goes == "beta" { // it takes nothing back by itself
								change(t, c, api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Node: "beta"})
								c.WaitFor(time.Minute, "db is back", func() bool { return c.Owner("db") == "beta" && c.Runs("db") })
							}
						}
					})
				})
			}
		}
	}
}

// TestTwoNodesLastWord: beta coordinates, and is taken into maintenance by an entry that is committed because alpha has it too;
// beta dies before alpha hears that it is. A node in maintenance is not shot.
func TestTwoNodesLastWord(t *testing.T) {
	pair(t, Options{Detection: time.Second}, map[string]string{"db": "alpha", "web": "alpha"}, func(t *testing.T, c *Cluster) {
		c.lead("beta")
		said := c.when("beta", func(_, after *state.State) bool { return after.Maintenance }, func() { c.Crash("beta") })
		beta := c.Operator("beta")
		c.wg.Go(func() { // nobody is left to answer
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_, _ = beta.Change(ctx, api.ChangeRequest{Verb: api.ChangeMaintenanceOn, By: "anna"})
		})
		c.WaitFor(10*time.Second, "beta is in maintenance, and dead", said)
		time.Sleep(time.Minute)
		if n := c.shotOf("beta"); n != 0 {
			t.Errorf("beta is shot %d times", n)
		}
		if !c.Runs("db") || !c.Runs("web") {
			t.Error("alpha let go of what it holds")
		}
	})
}
