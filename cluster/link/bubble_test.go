package link_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/link"
	"github.com/hamgr/hamgr/cluster/link/linktest"
)

// cluster is a few nodes on one in-memory network.
type cluster struct {
	t       testing.TB
	network *linktest.Network
	nodes   []link.Node
	links   []*link.Link
}

// newCluster must be called inside the bubble, and so is its cleanup.
func newCluster(t testing.TB, names ...string) *cluster {
	t.Helper()
	return newClusterOf(t, 2, names...)
}

func newClusterOf(t testing.TB, links int, names ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, network: linktest.New(1)}
	for i, name := range names {
		n := link.Node{Name: name}
		for j := range links {
			n.Addresses = append(n.Addresses, fmt.Sprintf("10.%d.0.%d:7846", j, i+1))
		}
		c.nodes = append(c.nodes, n)
	}
	for _, n := range c.nodes {
		l := c.start(n.Name)
		c.links = append(c.links, l)
	}
	return c
}

func testKey(n byte) (k link.Key) {
	copy(k[:], "a key for tests")
	k[31] = n
	return k
}

func (c *cluster) start(name string, changes ...func(*link.Config)) *link.Link {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.Name != name {
			continue
		}
		cfg := link.Config{
			Cluster: "test",
			Self:    name,
			Nodes:   c.nodes,
			Keys:    link.KeyRing{testKey(0)},
			Network: c.network.Host(name, n.Addresses...),
			Log:     slog.New(slog.NewTextHandler(c.t.Output(), nil)),
		}
		for _, change := range changes {
			change(&cfg)
		}
		l, err := link.Start(cfg)
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(l.Stop)
		return l
	}
	c.t.Fatalf("no node %s", name)
	return nil
}

// serve echoes on the Raft protocol until the link stops.
func serve(l *link.Link) {
	n := l.Listener(link.Raft)
	go func() {
		for {
			conn, err := n.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(conn, conn); conn.Close() }()
		}
	}()
}

// drain empties the packets and tells how many came.
func drain(l *link.Link) int {
	for n := 0; ; n++ {
		select {
		case <-l.Packets():
		default:
			return n
		}
	}
}

func echoOver(c net.Conn, word string) error {
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	b := make([]byte, len(word))
	_, err := io.ReadFull(c, b)
	if err == nil && string(b) != word {
		err = fmt.Errorf("read %q", b)
	}
	return err
}

func contactAge(l *link.Link, node string) time.Duration {
	at, ok := l.Contact(node)
	if !ok {
		return -1
	}
	return time.Since(at)
}

func TestBubbleAllPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta", "gamma")
		c.network.Delay(time.Millisecond, 5*time.Millisecond)
		for _, l := range c.links {
			serve(l)
		}
		time.Sleep(time.Second) // the greetings
		for _, from := range c.links {
			for _, to := range c.nodes {
				if to.Name == from.Self() {
					continue
				}
				conn, err := from.Dial(t.Context(), to.Name, link.Raft)
				if err != nil {
					t.Fatal(err)
				}
				if err := echoOver(conn, "over "+to.Name); err != nil {
					t.Fatal(err)
				}
				conn.Close()
				if err := from.Send(to.Name, []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Second)
		for _, l := range c.links {
			if got := drain(l); got != 2 {
				t.Errorf("%s got %d packets, want 2, once each: %+v", l.Self(), got, l.Counters())
			}
		}
	})
}

func TestBubbleCutAndHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta")
		alpha, beta := c.links[0], c.links[1]
		serve(beta)
		conn, err := alpha.Dial(t.Context(), "beta", link.Raft)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		drain(beta)

		c.network.Cut("alpha", "beta")
		alpha.Send("beta", []byte("lost"))
		done := make(chan error, 1)
		go func() { done <- echoOver(conn, "held") }()
		time.Sleep(5 * time.Second)
		if n := drain(beta); n != 0 {
			t.Errorf("%d packets passed the cut", n)
		}
		if age := contactAge(beta, "alpha"); age < 5*time.Second {
			t.Errorf("contact through the cut %s ago", age)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		began := time.Now()
		_, err = alpha.Dial(ctx, "beta", link.Raft)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 200*time.Millisecond {
			t.Errorf("dial into the cut: %v after %s", err, took)
		}
		cancel()
		select {
		case err := <-done:
			t.Fatalf("the stream passed the cut: %v", err)
		default:
		}

		c.network.Heal("alpha", "beta")
		if err := <-done; err != nil {
			t.Errorf("the stream did not outlive the cut: %v", err)
		}
		if age := contactAge(beta, "alpha"); age != 0 {
			t.Errorf("contact after the heal %s ago", age)
		}
		alpha.Send("beta", []byte("new"))
		synctest.Wait()
		if n := drain(beta); n != 1 {
			t.Errorf("%d packets after the heal, want 1", n)
		}
		conn.Close()
	})
}

func TestBubbleOneLinkBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta")
		alpha, beta := c.links[0], c.links[1]
		serve(beta)
		time.Sleep(time.Second)
		c.network.CutLink(0, "alpha", "beta")
		c.network.CutLink(0, "beta", "alpha")

		for i, limit := range []time.Duration{30 * time.Millisecond, 0} { // then the good one is known
			began := time.Now()
			conn, err := alpha.Dial(t.Context(), "beta", link.Raft)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > limit {
				t.Errorf("dial %d took %s, want %s", i, took, limit)
			}
			if err := echoOver(conn, "by the other link"); err != nil {
				t.Error(err)
			}
			conn.Close()
		}
		alpha.Send("beta", []byte("x"))
		synctest.Wait()
		if n := drain(beta); n != 1 {
			t.Errorf("%d packets, want 1", n)
		}
		time.Sleep(7 * time.Second)
		alpha.Send("beta", []byte("x"))
		synctest.Wait()
		h := beta.Health()[0]
		if h.ContactAgeMS != 0 || h.Links[1].InAgeMS != 0 || h.Links[0].InAgeMS < 7000 {
			t.Errorf("health does not show the broken link: %+v", h)
		}
	})
}

// TestBubbleRestart: the peers of a restarted node believe its new run at once, and never
// the old one again.
func TestBubbleRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta")
		beta := c.links[1]
		time.Sleep(time.Second)
		for round := range 5 {
			c.links[0].Stop()
			c.links[0] = c.start("alpha")
			time.Sleep(time.Second)
			drain(beta)
			c.links[0].Send("beta", []byte("x"))
			beta.Send("alpha", []byte("y"))
			synctest.Wait()
			if n, m := drain(beta), drain(c.links[0]); n != 1 || m != 1 {
				t.Fatalf("round %d: %d and %d packets, want 1 and 1", round, n, m)
			}
		}
		if err := c.links[0].Send("alpha", nil); !errors.Is(err, link.ErrUnknownNode) {
			t.Errorf("sent to itself: %v", err)
		}
	})
}

// TestBubbleGreetingLost: even if every greeting of the start is lost, the first
// exchange of data makes up for it.
func TestBubbleGreetingLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta")
		c.links[0].Stop()
		c.network.Isolate("alpha")
		c.links[0] = c.start("alpha")
		time.Sleep(time.Second)
		c.network.Rejoin("alpha")
		c.links[0].Send("beta", []byte("may be lost, but is answered"))
		time.Sleep(time.Millisecond)
		drain(c.links[1])
		c.links[0].Send("beta", []byte("x"))
		synctest.Wait()
		if n := drain(c.links[1]); n != 1 {
			t.Errorf("%d packets, want 1: %+v", n, c.links[1].Counters())
		}
	})
}

// TestBubbleSteadyTraffic sends 40 packets a second between each pair for a virtual
// minute: none is lost, and the log says what that costs in real time.
func TestBubbleSteadyTraffic(t *testing.T) {
	const rounds = 60 * 40
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta", "gamma")
		c.network.Delay(100*time.Microsecond, 300*time.Microsecond)
		time.Sleep(time.Second)
		payload := make([]byte, 200)
		got := 0
		for range rounds {
			for _, from := range c.links {
				for _, to := range c.nodes {
					if to.Name != from.Self() {
						from.Send(to.Name, payload)
					}
				}
			}
			time.Sleep(25 * time.Millisecond)
			for _, l := range c.links {
				got += drain(l)
			}
		}
		if want := rounds * 6; got != want {
			t.Errorf("%d of %d packets arrived", got, want)
		}
	})
	t.Logf("one virtual minute took %s", time.Since(began))
}
