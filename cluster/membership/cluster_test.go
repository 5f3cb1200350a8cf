package membership

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/cluster/link"
	"github.com/hamgr/hamgr/cluster/link/linktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a set of nodes on one network in one bubble.
type cluster struct {
	t         *testing.T
	detection time.Duration
	network   *linktest.Network
	names     []string
	nodes     map[string]*node
}

type node struct {
	cluster *cluster
	name    string
	link    *link.Link
	members *Membership

	mu     sync.Mutex
	events []seen
	done   chan struct{}
}

// seen is an event and when it came.
type seen struct {
	Event
	at time.Time
}

var testKey = func() link.Key {
	k, err := link.GenerateKey()
	if err != nil {
		panic(err)
	}
	return k
}()

func newCluster(t *testing.T, detection time.Duration, n int, seed uint64) *cluster {
	t.Helper()
	c := &cluster{t: t, detection: detection, network: linktest.New(seed), nodes: make(map[string]*node)}
	c.network.Delay(100*time.Microsecond, 500*time.Microsecond)
	for i := range n {
		name := fmt.Sprintf("node%d", i)
		c.names = append(c.names, name)
		c.nodes[name] = &node{cluster: c, name: name}
	}
	t.Cleanup(func() {
		c.network.HealAll()
		for _, n := range c.nodes {
			n.stop()
		}
		time.Sleep(time.Minute) // memberlist's timers and probes outlive its Shutdown
	})
	for _, name := range c.names {
		c.nodes[name].start("boot 1 of " + name)
	}
	c.within(2*max(detection, time.Second), "all see all", c.whole)
	return c
}

func (n *node) start(meta string) {
	n.cluster.t.Helper()
	var nodes []link.Node
	for i, name := range n.cluster.names {
		nodes = append(nodes, link.Node{Name: name, Addresses: []string{fmt.Sprintf("10.0.0.%d:7846", i+1)}})
	}
	i := slices.Index(n.cluster.names, n.name)
	l, err := link.Start(link.Config{
		Cluster: "test", Self: n.name, Nodes: nodes, Keys: link.KeyRing{testKey}, DetectionTime: n.cluster.detection,
		Network: n.cluster.network.Host(n.name, fmt.Sprintf("10.0.0.%d", i+1)),
	})
	if err != nil {
		n.cluster.t.Fatal(err)
	}
	n.link = l
	n.members, err = Start(Config{
		Self: n.name, Nodes: n.cluster.names, Link: l, DetectionTime: n.cluster.detection, Meta: []byte(meta),
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		n.cluster.t.Fatal(err)
	}
	n.done = make(chan struct{})
	go n.collect(n.members.Events())
}

func (n *node) collect(events <-chan Event) {
	defer close(n.done)
	for e := range events {
		n.mu.Lock()
		n.events = append(n.events, seen{e, time.Now()})
		n.mu.Unlock()
	}
}

// since returns the events from a moment on.
func (n *node) since(t time.Time) []seen {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.events, func(s seen) bool { return !s.at.Before(t) })
	if i < 0 {
		return nil
	}
	return slices.Clone(n.events[i:])
}

func (n *node) stop() {
	if n.members == nil {
		return
	}
	n.members.Stop()
	<-n.done
	n.link.Stop()
	n.members = nil
}

// die cuts the power: nothing is said to anybody.
func (n *node) die() {
	n.cluster.network.Down(n.name)
	n.stop()
}

func (c *cluster) within(limit time.Duration, what string, f func() bool) time.Duration {
	c.t.Helper()
	start := time.Now()
	for !f() {
		if time.Since(start) > limit {
			for _, n := range c.nodes {
				if n.members != nil {
					c.t.Logf("%s: %v", n.name, n.members.View())
				}
			}
			c.t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(c.detection / 500)
	}
	return time.Since(start)
}

// whole tells whether every running node sees every other one alive.
func (c *cluster) whole() bool {
	for _, n := range c.nodes {
		if n.members == nil {
			continue
		}
		for name, m := range n.members.View() {
			if c.nodes[name].members != nil && m.State != Alive {
				return false
			}
		}
	}
	return true
}

// deaths lists who was called dead by whom from a moment on.
func (c *cluster) deaths(t time.Time) []string {
	var all []string
	for _, n := range c.nodes {
		for _, e := range n.since(t) {
			if e.State == Dead {
				all = append(all, fmt.Sprintf("%s by %s after %s", e.Node, n.name, e.at.Sub(t)))
			}
		}
	}
	return all
}

func (c *cluster) others(than *node) []*node {
	var all []*node
	for _, name := range c.names {
		if n := c.nodes[name]; n != than {
			all = append(all, n)
		}
	}
	return all
}

func leave(t *testing.T, n *node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*n.cluster.detection)
	defer cancel()
	if err := n.members.Leave(ctx); err != nil {
		t.Fatal(err)
	}
}
