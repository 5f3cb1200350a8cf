package link

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStopClosesEverything(t *testing.T) {
	nodes := loopback(t, 2, "alpha", "beta")
	alpha, beta := start(t, nodes, "alpha"), start(t, nodes, "beta")
	listener := beta.Listener(Raft)
	dialed, err := alpha.Dial(within(t), "beta", Raft)
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 3)
	go func() { _, err := listener.Accept(); ended <- err }()
	go func() { _, err := accepted.Read(make([]byte, 1)); ended <- err }()
	go func() {
		for range beta.Packets() {
		}
		ended <- io.EOF
	}()
	again := make(chan struct{})
	go func() { beta.Stop(); close(again) }()
	beta.Stop()
	<-again
	for range 3 {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("a call succeeded after Stop")
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a call outlives Stop")
		}
	}
	dialed.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := dialed.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("the far end does not see the end: %v", err)
	}
	if _, err := beta.Dial(within(t), "alpha", Raft); !errors.Is(err, ErrStopped) {
		t.Errorf("dial after Stop: %v", err)
	}
	if _, err := beta.Listener(API).Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after Stop: %v", err)
	}
	again2 := start(t, nodes, "beta") // the addresses are free
	exchange(t, alpha, again2, "to the new run")
}

func TestStopEndsADial(t *testing.T) {
	nodes := loopback(t, 1, "alpha", "beta")
	mute, err := net.Listen("tcp", nodes[1].Addresses[0]) // accepts, but never shakes hands
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	alpha := start(t, nodes, "alpha", func(c *Config) { c.DetectionTime = maxPatience })
	ended := make(chan error, 1)
	go func() { _, err := alpha.Dial(context.Background(), "beta", Raft); ended <- err }()
	c, err := mute.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	alpha.Stop()
	if err := <-ended; !errors.Is(err, ErrStopped) {
		t.Errorf("dial during Stop: %v", err)
	}
}

// TestDialGivesUp: a node that is there but says nothing costs one detection time, and a
// cancelled context no time at all.
func TestDialGivesUp(t *testing.T) {
	nodes := loopback(t, 1, "alpha", "beta")
	mute, err := net.Listen("tcp", nodes[1].Addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	alpha := start(t, nodes, "alpha", func(c *Config) { c.DetectionTime = minPatience })
	if _, err := alpha.Dial(within(t), "beta", Raft); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial of a mute node: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("changed my mind")
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	began := time.Now()
	if _, err := alpha.Dial(ctx, "beta", Raft); !errors.Is(err, why) || time.Since(began) > minPatience/2 {
		t.Errorf("cancelled dial: %v after %s", err, time.Since(began))
	}
}

// TestLoserIsClosed: an attempt that succeeds when the race is over closes its conn.
func TestLoserIsClosed(t *testing.T) {
	nodes := loopback(t, 1, "alpha", "beta")
	alpha, beta := start(t, nodes, "alpha"), start(t, nodes, "beta")
	beta.Listener(Raft)
	ctx, over := context.WithCancel(t.Context())
	p := alpha.peers["beta"]
	done := make(chan struct{})
	go func() { alpha.try(ctx, p, p.paths[0], Raft, make(chan attempt)); close(done) }()
	conns := func() int {
		alpha.mu.Lock()
		defer alpha.mu.Unlock()
		return len(alpha.conns)
	}
	eventually(t, "the attempt succeeds", func() bool { return conns() == 1 })
	over()
	<-done
	if conns() != 0 {
		t.Error("the loser is still open")
	}
}

// TestOneLinkBroken: beta listens on its second address alone.
func TestOneLinkBroken(t *testing.T) {
	nodes := loopback(t, 2, "alpha", "beta")
	alpha := start(t, nodes, "alpha")
	half := []Node{nodes[0], {"beta", nodes[1].Addresses[1:]}}
	beta := start(t, half, "beta")
	echo(t, beta.Listener(Raft))
	for range 2 {
		c, err := alpha.Dial(within(t), "beta", Raft)
		if err != nil {
			t.Fatal(err)
		}
		ping(t, c)
		if from, _, _ := net.SplitHostPort(c.LocalAddr().String()); from != hostOf(nodes[0].Addresses[1]) {
			t.Errorf("the second link was dialed from %s, not from its own address", from)
		}
		c.Close()
	}
	if h := alpha.Health()[0]; h.Links[0].LastError == "" || h.Links[1].StreamAgeMS == Never {
		t.Errorf("health does not show which link works: %+v", h)
	}
}

// TestFewerAddresses: a node with one address (as a witness) and one with two hear each
// other by both pairs.
func TestFewerAddresses(t *testing.T) {
	nodes := loopback(t, 2, "alpha", "quorum")
	nodes[1].Addresses = nodes[1].Addresses[:1]
	alpha, quorum := start(t, nodes, "alpha"), start(t, nodes, "quorum")
	for _, pair := range [][2]*Link{{alpha, quorum}, {quorum, alpha}} {
		echo(t, pair[1].Listener(Raft))
		exchange(t, pair[0], pair[1], "x")
		c, err := pair[0].Dial(within(t), pair[1].Self(), Raft)
		if err != nil {
			t.Fatal(err)
		}
		ping(t, c)
		c.Close()
		eventually(t, "both links are heard", func() bool {
			h := pair[1].Health()[0]
			return len(h.Links) == 2 && h.Links[0].InAgeMS != Never && h.Links[1].InAgeMS != Never
		})
	}
}

func TestStartRefuses(t *testing.T) {
	nodes := loopback(t, 1, "alpha", "beta")
	taken, err := net.Listen("tcp", nodes[0].Addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	with := func(change func(*Config)) Config {
		c := Config{Cluster: "test", Self: "alpha", Nodes: slices.Clone(nodes), Keys: KeyRing{testKey(1)}}
		change(&c)
		return c
	}
	second := func(n Node) func(*Config) { return func(c *Config) { c.Nodes[1] = n } }
	for name, c := range map[string]struct {
		cfg  Config
		says string
	}{
		"port in use":      {with(func(c *Config) {}), "another process"},
		"foreign address":  {with(func(c *Config) { c.Nodes[0].Addresses = []string{"192.0.2.222:27846"} }), "does not have the address"},
		"no cluster":       {with(func(c *Config) { c.Cluster = "" }), "no name"},
		"no key":           {with(func(c *Config) { c.Keys = nil }), "no cluster key"},
		"empty key":        {with(func(c *Config) { c.Keys = KeyRing{{}} }), "key is empty"},
		"not a node":       {with(func(c *Config) { c.Self = "gamma" }), "gamma"},
		"host name":        {with(second(Node{"beta", []string{"beta.example:1"}})), "DNS"},
		"no port":          {with(second(Node{"beta", []string{"10.0.0.1"}})), "IP:port"},
		"port zero":        {with(second(Node{"beta", []string{"10.0.0.1:0"}})), "IP:port"},
		"any address":      {with(second(Node{"beta", []string{"0.0.0.0:1"}})), "IP:port"},
		"no address":       {with(second(Node{"beta", nil})), "0 addresses"},
		"too many links":   {with(second(Node{"beta", slices.Repeat([]string{"10.0.0.1:1"}, maxLinks+1)})), "addresses"},
		"shared address":   {with(second(Node{"beta", nodes[0].Addresses})), "alpha's already"},
		"same name":        {with(second(Node{"alpha", []string{"10.0.0.1:1"}})), "twice"},
		"empty name":       {with(second(Node{"", []string{"10.0.0.1:1"}})), "1 to 63"},
		"long name":        {with(second(Node{strings.Repeat("n", 64), []string{"10.0.0.1:1"}})), "1 to 63"},
		"address as name":  {with(second(Node{"10.0.0.1", []string{"10.0.0.1:1"}})), "IP address"},
		"wildcard":         {with(second(Node{"*", []string{"10.0.0.1:1"}})), "must not hold"},
		"zero byte":        {with(second(Node{"be\x00ta", []string{"10.0.0.1:1"}})), "must not hold"},
		"dot at the end":   {with(second(Node{"beta.", []string{"10.0.0.1:1"}})), "labels"},
		"dash at the edge": {with(second(Node{"-beta", []string{"10.0.0.1:1"}})), "labels"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := Start(c.cfg)
			if err == nil {
				l.Stop()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want it to say %q", err, c.says)
			}
			if name == "port in use" && (!errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), nodes[0].Addresses[0])) {
				t.Errorf("%v; want EADDRINUSE and the address", err)
			}
		})
	}
}
