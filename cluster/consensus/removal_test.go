package consensus

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// configured starts a node with other voters than the rest.
func configured(names ...string) func(*Config) {
	return func(cfg *Config) { cfg.Voters = names }
}

// restartWith gives all but some nodes another configuration, one after the other.
func (c *cluster) restartWith(names []string) {
	c.t.Helper()
	for _, name := range names {
		c.nodes[name].stop()
		c.nodes[name].start(configured(names...))
		c.within(4*c.detection, "a coordinator", func() bool { return len(c.coordinators()) == 1 })
	}
}

func (n *node) votersAre(names ...string) bool {
	var got []string
	for _, v := range n.log.Status().Voters {
		if v.Votes {
			got = append(got, v.Node)
		}
	}
	slices.Sort(got)
	return slices.Equal(got, names)
}

func TestUnconfiguredVotersAreRemoved(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ all, off, stay, want int }{
		"three to two, it is up":   {3, 0, 2, 2},
		"three to two, it is off":  {3, 1, 2, 2},
		"five to three, all up":    {5, 0, 3, 3},
		"five to three, one off":   {5, 1, 3, 3},
		"five to three, both off":  {5, 2, 3, 3},
		"four to three, it is off": {4, 1, 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, time.Second, tc.all)
				c.startAll()
				c.allVote(5 * time.Second)
				stay := c.names[:tc.stay]
				for _, name := range c.names[tc.all-tc.off:] {
					c.nodes[name].stop()
				}
				c.restartWith(stay)
				c.within(15*time.Second, "removed", func() bool {
					if all := c.coordinators(); len(all) == 1 && !slices.Contains(stay, all[0].name) {
						_ = all[0].log.Transfer(shortly(t)) // no leader removes itself: one that leaves hands over
					}
					return c.nodes[stay[0]].votersAre(stay...)
				})
				c.within(4*time.Second, "one of them leads", func() bool {
					all := c.coordinators()
					return len(all) == 1 && slices.Contains(stay, all[0].name)
				})
				c.coordinators()[0].mustPropose("after")
				for _, name := range c.names[tc.stay : tc.all-tc.off] {
					n := c.nodes[name]
					c.within(10*time.Second, "it says so", func() bool {
						s := n.log.Status()
						return s.Removed && strings.Contains(s.Waiting, "it was removed")
					})
				}
			})
		})
	}
}

// The one that shall take its place is not there yet: the old voter stays as long as without it
// fewer would vote than are configured to be needed.
func TestRemovalWaitsForTheSuccessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 5)
		old, late := c.names[:3], c.names[3:]
		for _, name := range old {
			c.nodes[name].start(configured(old...))
		}
		c.within(5*time.Second, "formed", func() bool { return c.nodes["alpha"].log.Status().Cluster != "" && c.nodes["alpha"].votersAre(old...) })
		next := append([]string{"alpha"}, late...) // b and c leave, d and e come
		a := c.nodes["alpha"]
		a.stop()
		a.start(configured(next...))
		if n := c.coordinator(4 * time.Second); n != a {
			if err := n.log.raft.LeadershipTransferToServer(serverOf(a.log.id)).Error(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Second)
		if s := a.log.Status(); len(s.Voters) != 2 || !a.log.IsCoordinator() {
			t.Fatalf("with two of the three missing: %+v", s)
		}
		for _, name := range late {
			c.nodes[name].start(configured(next...))
		}
		c.within(15*time.Second, "all is as configured", func() bool { return a.votersAre(next...) })
	})
}

// B17: removed while away, the remover is gone, the log behind: it says so all the same, and again
// after a restart. One that merely hears nobody does not.
func TestRemovedWhileAway(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, time.Second, 3)
			c.startAll()
			c.allVote(4 * time.Second)
			away := c.nodes["clpha"]
			c.network.Isolate(away.name)
			c.coordinator(4 * time.Second)
			c.restartWith(c.names[:2])
			c.within(10*time.Second, "removed", func() bool { return c.nodes["alpha"].votersAre("alpha", "blpha") })
			leader := c.coordinator(4 * time.Second)
			for i := range 20 {
				leader.mustPropose(fmt.Sprint(i))
			}
			time.Sleep(5 * time.Second)
			if s := away.log.Status(); s.Removed || !strings.Contains(s.Waiting, "do not answer") {
				t.Errorf("cut off: %+v", s)
			}
			leader.stop()
			c.network.HealAll()
			if restarted {
				away.stop()
				away.start()
			}
			c.within(6*time.Second, "it says so", func() bool {
				s := away.log.Status()
				return s.Removed && strings.Contains(s.Waiting, "it was removed")
			})
		})
	}
}

func TestVoices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 4)
		c.startAll()
		c.allVote(5 * time.Second)
		leader := c.coordinator(0)
		asks, wiped, off := c.others(leader)[0], c.others(leader)[1], c.others(leader)[2]
		off.stop()
		wiped.stop()
		wiped.wipe()
		c.network.Cut(leader.name, wiped.name) // so that it stays out
		c.network.Cut(wiped.name, leader.name)
		wiped.start()
		began := time.Now()
		voices := asks.log.Voices(t.Context())
		if took := time.Since(began); took > DeriveTiming(c.detection).Ask+time.Millisecond {
			t.Errorf("took %s", took)
		}
		if len(voices) != 3 {
			t.Errorf("%+v", voices)
		}
		if v := voices[leader.name]; !v.Answers || !v.Voter || !v.Formed || v.Coordinator != leader.name || v.ID != leader.log.id.ID || v.Cluster == "" {
			t.Errorf("the leader: %+v", v)
		}
		if v := voices[wiped.name]; !v.Answers || v.Voter || v.Formed || v.Coordinator != "" {
			t.Errorf("the wiped one: %+v", v)
		}
		if v := voices[off.name]; v.Answers || v.Why == "" {
			t.Errorf("the one that is off: %+v", v)
		}
	})
}
