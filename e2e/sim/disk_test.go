package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/state"
)

// TestCoordinatorsDiskHangs: the coordinator gives up within the detection time, and another one coordinates. What the old one holds is
// taken over after a proof; one that holds nothing is left alone, and is back when its disk is, in the same boot.
func TestCoordinatorsDiskHangs(t *testing.T) {
	for _, ownerLeads := range []bool{false, true} {
		for _, detection := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second} {
			t.Run(fmt.Sprintf("owner leads %v/%s", ownerLeads, detection), func(t *testing.T) {
				pick(t, Options{Detection: detection}, ownerLeads, func(t *testing.T, c *Cluster, owner string) {
					before, first := token(c), c.Coordinator()
					began := time.Now()
					c.HangDisk(first)
					c.WaitFor(detection, "it gives up", func() bool { return c.Coordinator() != first })
					t.Logf("given up after %.2f detection times", time.Since(began).Seconds()/detection.Seconds())
					c.WaitFor(2*detection, "another node coordinates", func() bool { return c.Coordinator() != "" })
					if ownerLeads {
						takenOver(t, c, owner, before, detection*3/2) // it has fallen silent when it gave up
					} else {
						stays(t, c, "db", owner, time.Minute)
						quiet(t, c)
					}
					c.MendDisk(first)
					c.whole(20*time.Second+2*detection+c.BootTime, c.Nodes...)
					time.Sleep(time.Minute)
					if n := c.State().Nodes[first]; !ownerLeads && (n.Boot != first+"-boot1" || len(c.commands(first)) > 0) {
						t.Errorf("%s is in %s, and was ordered %v", first, n.Boot, c.commands(first))
					}
					if !c.Runs("db") {
						t.Error(c.Report())
					}
				})
			})
		}
	}
}

// TestFollowersDiskHangs: nobody else notices. One that holds a group is fenced for it, one that holds none is not.
func TestFollowersDiskHangs(t *testing.T) {
	for _, holds := range []bool{false, true} {
		t.Run(fmt.Sprintf("holds %v", holds), func(t *testing.T) {
			pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
				before, first := token(c), c.Coordinator()
				if holds {
					c.HangDisk(owner)
					takenOver(t, c, owner, before, c.Detection*9/4)
					c.MendDisk(owner)
				} else {
					c.HangDisk("gamma")
					stays(t, c, "db", owner, time.Minute)
					quiet(t, c)
					c.MendDisk("gamma")
				}
				if c.Coordinator() != first {
					t.Errorf("coordinated by %s after %s", c.Coordinator(), first)
				}
				c.whole(20*time.Second+c.BootTime, c.Nodes...)
			})
		})
	}
}

// TestTwoOfThreeDisksHang: there is no majority, hence nothing happens: nobody is shot, and nothing moves, though a
// healthy coordinator may be left over. When the disks work again everything does, whether they hung for a moment or for long.
func TestTwoOfThreeDisksHang(t *testing.T) {
	for _, hung := range [][]string{{"alpha", "beta"}, {"beta", "gamma"}, {"alpha", "gamma"}, {"alpha", "beta", "gamma"}} {
		for _, long := range []float64{0.3, 0.6, 1.2, 20} { // in detection times
			t.Run(fmt.Sprintf("%v/%.1f", hung, long), func(t *testing.T) {
				pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
					before := token(c)
					for _, n := range hung {
						c.HangDisk(n)
					}
					began := time.Now()
					if long > 1 {
						c.WaitFor(c.Detection, "nobody coordinates", func() bool { return c.Coordinator() == "" })
					}
					time.Sleep(time.Duration(long*float64(c.Detection)) - time.Since(began))
					if quiet(t, c); token(c) != before || len(c.Storage.Active()) > 2 {
						t.Errorf("without a majority: token %d after %d, active %v", token(c), before, c.Storage.Active())
					}
					for _, n := range hung {
						c.MendDisk(n)
					}
					c.whole(10*time.Second+2*c.Detection, c.Nodes...)
					c.WaitRunning(10 * c.Detection)
					time.Sleep(time.Minute)
					quiet(t, c)
					for _, n := range c.Nodes {
						if c.State().Nodes[n].Boot != n+"-boot1" {
							t.Errorf("%s is in %s", n, c.State().Nodes[n].Boot)
						}
					}
				})
			})
		}
	}
}

// TestSlowDisks: every write of every disk takes its time, though not so long that the log gives up. All works, only later.
func TestSlowDisks(t *testing.T) {
	for _, write := range []time.Duration{10 * time.Millisecond, 30 * time.Millisecond} {
		t.Run(write.String(), func(t *testing.T) {
			pick(t, Options{}, true, func(t *testing.T, c *Cluster, owner string) {
				before := token(c)
				for _, n := range c.Nodes {
					c.SlowDisk(n, write)
				}
				time.Sleep(5 * time.Minute)
				if quiet(t, c); token(c) != before || !c.Runs("db") {
					t.Errorf("token %d after %d", token(c), before)
				}
				c.Crash(owner)
				takenOver(t, c, owner, before, 2*c.Detection)
			})
		})
	}
}

// TestRequestWhileTheDiskHangs: what an operator asked for just before, or just after, the coordinator's disk began to hang ends within
// bounds, and is called unknown where it may have been committed. What became of it is then the same everywhere.
func TestRequestWhileTheDiskHangs(t *testing.T) {
	unknown := 0
	for _, hung := range [][]string{{"alpha"}, {"beta", "gamma"}, {"alpha", "beta", "gamma"}} {
		for _, at := range []string{"alpha", "beta"} {
			t.Run(fmt.Sprintf("%v/at %s", hung, at), func(t *testing.T) {
				pick(t, Options{}, false, func(t *testing.T, c *Cluster, owner string) {
					for _, n := range hung {
						c.HangDisk(n)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 10*c.Detection)
					defer cancel()
					began := time.Now()
					_, err := c.Operator(at).Change(ctx, api.ChangeRequest{Verb: api.ChangeStandby, Node: "gamma", By: "anna"})
					if took := time.Since(began); took > 3*c.Detection {
						t.Errorf("an answer after %s: %v", took, err)
					}
					var refused *api.Error
					switch {
					case errors.As(err, &refused) && refused.Code == api.ErrUnknownOutcome:
						unknown++
					case errors.As(err, &refused) && slices.Contains([]api.Code{api.ErrNoCoordinator, api.ErrNoQuorum}, refused.Code):
						c.healthy(hung)
						if c.State().Nodes["gamma"].Standby {
							t.Errorf("refused, and done: %v", err)
						}
					case err == nil:
						c.healthy(hung)
						if !c.State().Nodes["gamma"].Standby {
							t.Error("said to be done, and not done")
						}
					default:
						t.Errorf("%v", err)
					}
					t.Logf("after %s: %v", time.Since(began), err)
				})
			})
		}
	}
	if unknown == 0 {
		t.Error("no request was under way when a disk hung")
	}
}

// healthy mends the disks, and waits until the cluster works again.
func (c *Cluster) healthy(hung []string) {
	c.t.Helper()
	for _, n := range hung {
		c.MendDisk(n)
	}
	c.whole(10*time.Second+2*c.Detection, c.Nodes...)
	c.WaitFor(10*c.Detection, "all is applied everywhere", func() bool { return c.State().Nodes["gamma"].Up && c.Coordinator() != "" })
	time.Sleep(5 * time.Second)
}

// TestWipedNode: a node that lost its disk comes back as a newcomer, with a reboot or only with another daemon, also where it
// coordinated or held the group; what it runs goes on if the boot does, and nobody is shot.
func TestWipedNode(t *testing.T) {
	for _, ownerLeads := range []bool{false, true} {
		for _, victim := range []string{"alpha", "beta", "gamma"} {
			t.Run(fmt.Sprintf("owner leads %v/%s", ownerLeads, victim), func(t *testing.T) {
				pick(t, Options{}, ownerLeads, func(t *testing.T, c *Cluster, owner string) {
					before := token(c)
					c.WipeDisk(victim)
					c.RestartDaemon(victim, 100*time.Millisecond)
					c.whole(20*time.Second, c.Nodes...)
					time.Sleep(time.Minute)
					if quiet(t, c); token(c) != before || !c.Runs("db") {
						t.Errorf("token %d after %d\n%s", token(c), before, c.Report())
					}
					c.WipeDisk(victim)
					c.Reboot(victim, c.Detection/2)
					c.WaitFor(time.Minute, "it is back", func() bool { return c.State().Nodes[victim].Boot == victim+"-boot2" && c.State().Nodes[victim].Up })
					c.WaitRunning(time.Minute)
					quiet(t, c)
					// Its vote counts again: another one may be lost.
					other := c.Nodes[(slices.Index(c.Nodes, victim)+1)%3]
					time.Sleep(10 * time.Second)
					c.Crash(other)
					c.WaitRunning(time.Minute)
					if c.State().Groups["db"].Grant.Phase != state.Started {
						t.Error(c.Report())
					}
				})
			})
		}
	}
}
