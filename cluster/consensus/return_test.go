package consensus

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// TestCatchesUpAtOnce: however long a follower was away, cut off or off, it has what it missed within a second of its
// return, and is told who coordinates.
func TestCatchesUpAtOnce(t *testing.T) {
	t.Parallel()
	away := map[string]struct{ leave, come func(*cluster, *node) }{
		"cut off": {func(c *cluster, n *node) { c.network.Isolate(n.name) }, func(c *cluster, n *node) { c.network.Rejoin(n.name) }},
		"stopped": {func(c *cluster, n *node) { n.stop() }, func(c *cluster, n *node) { n.start() }},
		"lost power": {
			func(c *cluster, n *node) { c.network.Down(n.name); n.stop() },
			func(c *cluster, n *node) { c.network.Up(n.name); n.start() },
		},
	}
	for how, way := range away {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3*time.Second, 3)
				c.startAll()
				leader := c.coordinator(10 * time.Second)
				follower := c.others(leader)[0]
				for _, long := range []time.Duration{time.Second, 5 * time.Second, 12 * time.Second, time.Minute, 10 * time.Minute} {
					way.leave(c, follower)
					time.Sleep(long / 2)
					leader.mustPropose("away " + long.String()) // what it misses
					time.Sleep(long / 2)
					way.come(c, follower)
					took := c.within(time.Second, "caught up after "+long.String(), func() bool {
						at, ok := follower.log.Coordinator()
						return ok && at == leader.name && follower.fsm.has("away "+long.String())
					})
					t.Logf("%s for %s: caught up in %s", how, long, took)
					time.Sleep(10 * time.Second)
				}
				c.mustAgree()
			})
		})
	}
}

// TestHeldRequestsEnd: nothing is sent on, or waits, for a follower that is away, once its leader lost the office, removed
// it, or stopped.
func TestHeldRequestsEnd(t *testing.T) {
	held := func() int { // always; others come and go
		least := 1000
		for range 20 {
			time.Sleep(time.Millisecond)
			stacks := make([]byte, 4<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			least = min(least, strings.Count(string(stacks), "(*transport).AppendEntries("))
		}
		return least
	}
	for how, end := range map[string]func(*cluster, *node, *node){
		"hands over": func(c *cluster, leader, away *node) {
			if err := leader.log.Transfer(context.Background()); err != nil {
				c.t.Fatal(err)
			}
			next := c.others(leader)
			c.within(2*time.Second, "the next one leads", func() bool {
				return !leader.log.IsCoordinator() && (next[0].log.IsCoordinator() || next[1].log.IsCoordinator())
			})
			for _, n := range next { // that one holds requests too
				if n != away {
					n.stop()
				}
			}
		},
		"is cut off": func(c *cluster, leader, _ *node) {
			c.network.Isolate(leader.name)
			c.within(2*time.Second, "it steps down", func() bool { return leader.log.raft.State() != raft.Leader })
		},
		"removes it": func(c *cluster, leader, away *node) {
			if err := leader.log.raft.RemoveServer(raft.ServerID(away.log.id.String()), 0, time.Second).Error(); err != nil {
				c.t.Fatal(err)
			}
		},
		"stops": func(c *cluster, leader, _ *node) {
			began := time.Now()
			leader.stop()
			if took := time.Since(began); took > time.Second {
				c.t.Errorf("stopped in %s", took)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, time.Second, 3)
				c.startAll()
				leader := c.coordinator(2 * time.Second)
				away := c.others(leader)[1]
				c.network.Isolate(away.name)
				leader.mustPropose("missed")
				time.Sleep(10 * time.Second)
				if n := held(); n < 2 {
					t.Fatalf("%d requests are held", n)
				}
				end(c, leader, away)
				time.Sleep(3 * DeriveTiming(c.detection).RPC)
				if others := c.coordinators(); len(others) > 0 && others[0] != leader {
					t.Fatalf("%s leads", others[0].name)
				}
				if n := held(); n > 0 {
					t.Errorf("%d requests are held still", n)
				}
			})
		})
	}
}
