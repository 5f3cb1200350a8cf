package link

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testKey is a fixed key; the tests' clusters differ by their addresses.
func testKey(seed byte) Key {
	var k Key
	for i := range k {
		k[i] = seed + byte(i)
	}
	return k
}

var clusters atomic.Uint32

// loopback gives every test its own addresses in 127.0.0.0/8: one network for each test
// process and cluster, so that fixed ports never collide.
func loopback(t *testing.T, links int, names ...string) []Node {
	t.Helper()
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(os.Getpid())*64+clusters.Add(1))
	var nodes []Node
	for i, name := range names {
		n := Node{Name: name}
		for j := range links {
			n.Addresses = append(n.Addresses, fmt.Sprintf("127.%d.%d.%d:27846", b[2], b[3], 1+10*j+i))
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// start starts one node and stops it with the test.
func start(t *testing.T, nodes []Node, self string, changes ...func(*Config)) *Link {
	t.Helper()
	cfg := Config{
		Cluster:       "test",
		Self:          self,
		Nodes:         nodes,
		Keys:          KeyRing{testKey(1)},
		DetectionTime: 3 * time.Second,
		Log:           slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, change := range changes {
		change(&cfg)
	}
	l, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	return l
}

// within is a context for what should take no time at all.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// echo serves a protocol by sending back what comes, until its listener closes.
func echo(t *testing.T, n net.Listener) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := n.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 1024)
				for {
					k, err := c.Read(b)
					if err != nil {
						return
					}
					if _, err := c.Write(b[:k]); err != nil {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { n.Close(); <-done })
}

// ping proves that a conn carries bytes both ways.
func ping(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Fatalf("write: %v", err)
	}
	b := make([]byte, 4)
	if _, err := c.Read(b); err != nil || string(b) != "ping" {
		t.Fatalf("read %q, %v; want ping", b, err)
	}
}

// exchange sends from one node until the other has got it.
func exchange(t *testing.T, from, to *Link, payload string) Packet {
	t.Helper()
	deadline := time.After(10 * time.Second)
	again := time.NewTicker(20 * time.Millisecond) // the first may be lost to the greeting
	defer again.Stop()
	for {
		if err := from.Send(to.Self(), []byte(payload)); err != nil {
			t.Fatal(err)
		}
		for {
			select {
			case p := <-to.Packets():
				if string(p.Data) == payload {
					return p
				}
				continue
			case <-again.C:
			case <-deadline:
				t.Fatalf("no packet %q from %s to %s: %+v", payload, from.Self(), to.Self(), to.Counters())
			}
			break
		}
	}
}

func TestStreamsAndPackets(t *testing.T) {
	nodes := loopback(t, 2, "alpha", "beta", "gamma")
	links := make(map[string]*Link)
	for _, n := range nodes {
		links[n.Name] = start(t, nodes, n.Name)
		echo(t, links[n.Name].Listener(Raft))
	}
	for _, from := range links {
		for _, to := range links {
			if from == to {
				continue
			}
			c, err := from.Dial(within(t), to.Self(), Raft)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.(interface{ Peer() string }).Peer(); got != to.Self() {
				t.Errorf("dialed %s, peer says %s", to.Self(), got)
			}
			ping(t, c)
			c.Close()
			if p := exchange(t, from, to, "hello from "+from.Self()); p.From != from.Self() {
				t.Errorf("packet of %s is said to be from %s", from.Self(), p.From)
			}
			if at, ok := to.Contact(from.Self()); !ok || time.Since(at) > 10*time.Second {
				t.Errorf("%s has no contact with %s", to.Self(), from.Self())
			}
		}
	}
}
