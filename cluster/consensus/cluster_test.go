package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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
	key       link.Key
	names     []string
	nodes     map[string]*node
}

// node is one machine: its link, its stores that outlive the log, and what it applied.
type node struct {
	cluster *cluster
	name    string
	link    *link.Link
	stores  *Stores
	dir     string
	log     *Log
	fsm     *history

	mu    sync.Mutex
	fatal error
}

var testKey = func() link.Key {
	k, err := link.GenerateKey()
	if err != nil {
		panic(err)
	}
	return k
}()

func newCluster(t *testing.T, detection time.Duration, n int) *cluster {
	c := &cluster{t: t, detection: detection, network: linktest.New(uint64(n)), key: testKey, nodes: make(map[string]*node)}
	c.network.Delay(100*time.Microsecond, 500*time.Microsecond)
	for i := range n {
		name := string(rune('a'+i)) + "lpha"
		c.names = append(c.names, name)
		c.nodes[name] = &node{cluster: c, name: name, stores: MemoryStores(), fsm: &history{}}
	}
	t.Cleanup(func() {
		c.network.HealAll()
		for _, n := range c.nodes {
			n.stop()
		}
	})
	return c
}

func (c *cluster) linkNodes() []link.Node {
	var nodes []link.Node
	for i, name := range c.names {
		nodes = append(nodes, link.Node{Name: name, Addresses: []string{fmt.Sprintf("10.0.0.%d:7846", i+1)}})
	}
	return nodes
}

func (n *node) start(change ...func(*Config)) {
	n.cluster.t.Helper()
	if err := n.try(change...); err != nil {
		n.cluster.t.Fatal(err)
	}
}

// try starts the node; what Start refuses is the error.
func (n *node) try(change ...func(*Config)) error {
	n.cluster.t.Helper()
	i := slices.Index(n.cluster.names, n.name)
	l, err := link.Start(link.Config{
		Cluster: "test", Self: n.name, Nodes: n.cluster.linkNodes(), Keys: link.KeyRing{n.cluster.key}, DetectionTime: n.cluster.detection,
		Network: n.cluster.network.Host(n.name, fmt.Sprintf("10.0.0.%d", i+1)),
	})
	if err != nil {
		n.cluster.t.Fatal(err)
	}
	n.link = l
	n.fsm = &history{}
	cfg := Config{
		Self: n.name, Voters: n.cluster.names, Link: l, FSM: n.fsm, DetectionTime: n.cluster.detection, Stores: n.stores, Dir: n.dir,
		Fatal: func(err error) {
			n.mu.Lock()
			n.fatal = err
			n.mu.Unlock()
			if errors.Is(err, ErrStoreHung) {
				n.link.Stop()
			}
		},
	}
	if testing.Verbose() {
		cfg.Log = slog.New(slog.NewTextHandler(testWriter{n.cluster.t}, &slog.HandlerOptions{Level: slog.LevelInfo})).With("at", n.name)
	}
	for _, f := range change {
		f(&cfg)
	}
	log, err := Start(context.Background(), cfg)
	if err != nil {
		n.link.Stop()
		return err
	}
	n.log = log
	return nil
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(string(b[:len(b)-1]))
	return len(b), nil
}

func (n *node) stop() {
	if n.log == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.log.Stop(ctx); err != nil {
		n.cluster.t.Error(err)
	}
	n.link.Stop()
	n.log = nil
}

// wipe gives the stopped node empty stores.
func (n *node) wipe() { n.stores = MemoryStores() }

func (n *node) failedWith() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fatal
}

func (c *cluster) startAll() {
	c.t.Helper()
	for _, name := range c.names {
		c.nodes[name].start()
	}
}

// within waits until f is true, and returns how long it took.
func (c *cluster) within(limit time.Duration, what string, f func() bool) time.Duration {
	c.t.Helper()
	start := time.Now()
	for !f() {
		if time.Since(start) > limit {
			c.dump()
			c.t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(c.detection / 500)
	}
	return time.Since(start)
}

func (c *cluster) dump() {
	for _, name := range c.names {
		if l := c.nodes[name].log; l != nil {
			c.t.Logf("%s: %+v", name, l.Status())
		}
	}
}

// coordinators lists who believes to coordinate.
func (c *cluster) coordinators() []*node {
	var all []*node
	for _, name := range c.names {
		if n := c.nodes[name]; n.log != nil && n.log.IsCoordinator() {
			all = append(all, n)
		}
	}
	return all
}

func (c *cluster) coordinator(limit time.Duration) *node {
	c.t.Helper()
	c.within(limit, "a coordinator", func() bool { return len(c.coordinators()) == 1 })
	return c.coordinators()[0]
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

// allVote waits until every configured voter votes under the identity that it has now.
func (c *cluster) allVote(limit time.Duration) time.Duration {
	c.t.Helper()
	return c.within(limit, "all are voters", func() bool {
		for _, n := range c.nodes {
			voters := 0
			for _, v := range n.log.Status().Voters {
				if v.Votes && v.ID == c.nodes[v.Node].log.Status().ID {
					voters++
				}
			}
			if voters != len(c.names) {
				return false
			}
		}
		return true
	})
}

func (n *node) propose(command string) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*n.cluster.detection)
	defer cancel()
	_, index, err := n.log.Propose(ctx, []byte(command))
	return index, err
}

func (n *node) mustPropose(command string) uint64 {
	n.cluster.t.Helper()
	index, err := n.propose(command)
	if err != nil {
		n.cluster.t.Fatalf("propose %q at %s: %v", command, n.name, err)
	}
	return index
}

// mustAgree checks that what every node applied is a prefix of what the others did.
func (c *cluster) mustAgree() {
	c.t.Helper()
	var longest []entry
	for _, n := range c.nodes {
		if h := n.fsm.entries(); len(h) > len(longest) {
			longest = h
		}
	}
	for _, n := range c.nodes {
		h := n.fsm.entries()
		if !slices.Equal(h, longest[:len(h)]) {
			c.t.Fatalf("%s applied %v, another one %v", n.name, h, longest)
		}
	}
}

type entry struct {
	index   uint64
	command string
}

// history is an FSM that remembers every command.
type history struct {
	mu  sync.Mutex
	all []entry
}

func (h *history) Apply(index uint64, command []byte) any {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.all) > 0 && index <= h.all[len(h.all)-1].index {
		panic(fmt.Sprintf("index %d after %d", index, h.all[len(h.all)-1].index))
	}
	h.all = append(h.all, entry{index, string(command)})
	return len(h.all)
}

func (h *history) Snapshot() ([]byte, error) {
	var b []byte
	for _, e := range h.entries() {
		b = fmt.Appendf(b, "%d %s\n", e.index, e.command)
	}
	return b, nil
}

func (h *history) Restore(b []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = nil
	for len(b) > 0 {
		var e entry
		line := b[:slices.Index(b, '\n')]
		if _, err := fmt.Sscanf(string(line), "%d %s", &e.index, &e.command); err != nil {
			return err
		}
		h.all, b = append(h.all, e), b[len(line)+1:]
	}
	return nil
}

func (h *history) entries() []entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

func (h *history) has(command string) bool {
	return slices.ContainsFunc(h.entries(), func(e entry) bool { return e.command == command })
}

func TestFormsWhenAllStartAtOnce(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, time.Second, n)
				c.startAll()
				took := c.within(1500*time.Millisecond, "a coordinator", func() bool { return len(c.coordinators()) == 1 })
				t.Logf("formed in %s", took)
				leader := c.coordinator(0)
				index := leader.mustPropose("hello")
				for _, n := range c.nodes {
					if err := n.log.WaitApplied(t.Context(), index); err != nil {
						t.Fatal(err)
					}
					if !n.fsm.has("hello") {
						t.Errorf("%s did not apply", n.name)
					}
					if s := n.log.Status(); !s.Formed || s.Cluster == "" {
						t.Errorf("%s: %+v", n.name, s)
					}
					if who, ok := n.log.Coordinator(); !ok || who != leader.name {
						t.Errorf("%s follows %q, %v", n.name, who, ok)
					}
				}
				for _, follower := range c.others(leader) {
					if _, err := follower.propose("no"); !errors.Is(err, ErrNotCoordinator) {
						t.Errorf("%s took a command: %v", follower.name, err)
					}
				}
				c.allVote(time.Second)
			})
		})
	}
}
