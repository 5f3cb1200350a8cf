package membership

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
)

func TestDeathIsSeenInTime(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			var worst, first float64
			for trial := range 15 {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, 3*time.Second, n, uint64(trial))
					time.Sleep(time.Duration(trial) * 37 * time.Millisecond)
					victim := c.nodes[c.names[trial%n]]
					died := time.Now()
					victim.die()
					for _, o := range c.others(victim) {
						c.within(c.detection*5/4, o.name+" sees "+victim.name+" dead", func() bool {
							return o.members.View()[victim.name].State == Dead
						})
						took := float64(o.members.View()[victim.name].Since.Sub(died)) / float64(c.detection)
						worst, first = max(worst, took), min(max(first, took), took)
						if took < 0.98 {
							t.Errorf("%s called %s dead after %.3f detection times", o.name, victim.name, took)
						}
					}
				})
			}
			t.Logf("last observer after %.3f detection times", worst)
			if worst > 1.2 {
				t.Errorf("last observer after %.3f detection times", worst)
			}
		})
	}
}

// TestDeadStaysDead: that a dead node is forgotten raises nobody.
func TestDeadStaysDead(t *testing.T) {
	for trial := range 3 {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, time.Second, 5, uint64(trial))
			victim := c.nodes[c.names[trial]]
			victim.die()
			time.Sleep(2 * c.detection)
			dead := time.Now()
			time.Sleep(30 * c.detection)
			for _, o := range c.others(victim) {
				if s := o.members.View()[victim.name].State; s != Dead {
					t.Errorf("%s is %s to %s", victim.name, s, o.name)
				}
				for _, e := range o.since(dead) {
					t.Errorf("%s saw %s %s, %s after the death", o.name, e.Node, e.State, e.at.Sub(dead))
				}
			}
		})
	}
}

func TestPausedNodeIsNotDead(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			for trial := range 25 {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, 3*time.Second, n, uint64(trial))
					time.Sleep(time.Duration(trial) * 53 * time.Millisecond)
					began := time.Now()
					victim := c.names[trial%n]
					c.network.Freeze(victim)
					time.Sleep(c.detection * 9 / 10)
					c.network.Thaw(victim)
					time.Sleep(3 * c.detection)
					if d := c.deaths(began); len(d) > 0 {
						t.Errorf("trial %d, %s paused: %v", trial, victim, d)
					}
				})
			}
		})
	}
}

func TestLeaveIsNotDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3, 1)
		gone, stay := c.nodes["node0"], c.nodes["node1"]
		began := time.Now()
		leave(t, gone)
		c.within(c.detection/2, "all see it left", func() bool {
			return stay.members.View()["node0"].State == Left && c.nodes["node2"].members.View()["node0"].State == Left
		})
		gone.stop()
		time.Sleep(5 * c.detection)
		if d := c.deaths(began); len(d) > 0 {
			t.Errorf("after a clean leave: %v", d)
		}
		if got := stay.members.View()["node0"]; got.State != Left || string(got.Meta) != "boot 1 of node0" {
			t.Errorf("who left shows as %+v", got)
		}

		gone.start("boot 2 of node0") // and comes back
		c.within(2*time.Second, "the one who left is back", c.whole)
		if got := string(stay.members.View()["node0"].Meta); got != "boot 2 of node0" {
			t.Errorf("came back with meta %q", got)
		}
		began = time.Now()
		gone.die() // this time without a word
		c.within(c.detection*5/4, "dead", func() bool { return stay.members.View()["node0"].State == Dead })
		if d := c.deaths(began); len(d) == 0 {
			t.Error("no event tells of the death")
		}
	})
}

func TestRestartShowsNewMeta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3*time.Second, 3, 1)
		began := time.Now()
		c.nodes["node0"].die()
		c.network.Up("node0")
		c.nodes["node0"].start("boot 2 of node0")
		for _, o := range c.others(c.nodes["node0"]) {
			c.within(c.detection, o.name+" sees the new boot", func() bool {
				return string(o.members.View()["node0"].Meta) == "boot 2 of node0"
			})
			events := o.since(began)
			if last := events[len(events)-1]; last.Node != "node0" || last.State != Alive || string(last.Meta) != "boot 2 of node0" {
				t.Errorf("%s last heard %+v", o.name, last)
			}
		}
		time.Sleep(3 * c.detection)
		if d := c.deaths(began); len(d) > 0 {
			t.Errorf("a restart faster than the detection time looked like death: %v", d)
		}
	})
}

func TestViewHasEveryConfiguredNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 2, 1)
		view := c.nodes["node0"].members.View()
		if self := view["node0"]; self.State != Alive || string(self.Meta) != "boot 1 of node0" || self.Since.IsZero() {
			t.Errorf("itself: %+v", self)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 1, 1)
		c.nodes["node0"].stop()
		c.names = append(c.names, "node1")
		c.nodes["node1"] = &node{cluster: c, name: "node1"}
		c.nodes["node0"].start("")
		time.Sleep(3 * time.Second)
		got := c.nodes["node0"].members.View()["node1"]
		if got.State != Unknown || !got.Since.IsZero() {
			t.Errorf("never seen, but %+v", got)
		}
	})
}

func TestStrangersAreRefused(t *testing.T) {
	book, err := newAddressBook([]string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	d := newDelegate(Config{Self: "a", Nodes: []string{"a", "b"}}, book, newFeed())
	for _, tc := range []struct {
		name string
		node memberlist.Node
		ok   bool
	}{
		{"configured", memberlist.Node{Name: "b", Addr: book.ips["b"], Port: gossipPort}, true},
		{"unknown name", memberlist.Node{Name: "c", Addr: syntheticIP("c"), Port: gossipPort}, false},
		{"other address", memberlist.Node{Name: "b", Addr: net.IPv4(10, 0, 0, 1), Port: gossipPort}, false},
		{"other port", memberlist.Node{Name: "b", Addr: book.ips["b"], Port: 1}, false},
	} {
		if err := d.NotifyAlive(&tc.node); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestSlowReaderSeesTheNewestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed()
		go f.run(t.Context())
		for i := range 1000 {
			f.put(Event{Node: "a", State: Dead, Meta: []byte{byte(i)}})
			f.put(Event{Node: "b", State: Dead, Meta: []byte{byte(i)}})
		}
		f.put(Event{Node: "a", State: Alive, Meta: []byte("last")})
		synctest.Wait()
		newest := map[string]Event{}
		for range 2 {
			e := <-f.out
			newest[e.Node] = e
		}
		if newest["a"].State != Alive || string(newest["a"].Meta) != "last" || newest["b"].State != Dead {
			t.Errorf("got %v", newest)
		}
		synctest.Wait()
		select {
		case e := <-f.out:
			t.Errorf("and then %v", e)
		default:
		}
	})
}

func TestStartRefuses(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no link":       {Self: "a", Nodes: []string{"a"}, DetectionTime: time.Second},
		"not a member":  {Self: "x", Nodes: []string{"a"}, DetectionTime: time.Second, Link: deadLink{}},
		"no time":       {Self: "a", Nodes: []string{"a"}, Link: deadLink{}},
		"long meta":     {Self: "a", Nodes: []string{"a"}, DetectionTime: time.Second, Link: deadLink{}, Meta: make([]byte, MaxMeta+1)},
		"slash in name": {Self: "a/b", Nodes: []string{"a/b"}, DetectionTime: time.Second, Link: deadLink{}},
		"named twice":   {Self: "a", Nodes: []string{"a", "b", "b"}, DetectionTime: time.Second, Link: deadLink{}},
	} {
		if _, err := Start(cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// deadLink is never used.
type deadLink struct{ Link }

func TestTimingFollowsTheTable(t *testing.T) {
	for _, tc := range []struct {
		nodes    int
		interval time.Duration
		mult     int
		gossip   int
	}{
		{2, 200 * time.Millisecond, 14, 1},
		{3, 200 * time.Millisecond, 14, 2},
		{5, 100 * time.Millisecond, 29, 4},
		{9, 75 * time.Millisecond, 39, 4},
		{32, 75 * time.Millisecond, 26, 4},
	} {
		got := DeriveTiming(3*time.Second, tc.nodes)
		if got.SuspicionMult != tc.mult || got.GossipNodes != tc.gossip || got.RetransmitMult != 16 {
			t.Errorf("%d nodes: %+v", tc.nodes, got)
		}
		if got.ProbeInterval != tc.interval || got.PushPullInterval != 12*time.Second || got.StreamTimeout != 750*time.Millisecond {
			t.Errorf("%d nodes: %+v", tc.nodes, got)
		}
	}
}
