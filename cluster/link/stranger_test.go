package link

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// eventually waits for something that another goroutine is about to do.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// refused dials with the given TLS configuration and checks that the far end closes the
// conn without a byte, and counts why.
func refused(t *testing.T, l *Link, cfg *tls.Config, count func(ConnDrops) uint64) {
	t.Helper()
	before := count(l.Counters().Conns)
	c, err := net.Dial("tcp", l.endpoints[0].address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	secure := tls.Client(c, cfg)
	c.SetDeadline(time.Now().Add(10 * time.Second))
	// In TLS 1.3 the refusal may show at the first Read only.
	if err := secure.Handshake(); err == nil {
		if n, err := secure.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("read %d bytes, %v; want a refusal", n, err)
		}
	}
	eventually(t, "the refusal is counted", func() bool { return count(l.Counters().Conns) == before+1 })
	if got := l.Counters().ConnsAccepted; got != 0 {
		t.Errorf("%d conns accepted", got)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	nodes := loopback(t, 1, "alpha", "beta")
	beta := start(t, nodes, "beta")
	beta.Listener(Raft)
	handshake := func(d ConnDrops) uint64 { return d.Handshake }
	certificate := func(d ConnDrops) uint64 { return d.Certificate }

	// client is what a node of that name with that key would use to dial beta.
	client := func(key Key, cluster, name string, protos ...string) *tls.Config {
		t.Helper()
		_, cfg, err := identity(key, cluster, name)
		if err != nil {
			t.Fatal(err)
		}
		cfg.ServerName, cfg.NextProtos = "beta", append(protos, keyProtocol+testKey(1).Fingerprint())
		cfg.InsecureSkipVerify = true // the refusal must come from beta
		return cfg
	}
	raft := string(Raft)
	for _, c := range []struct {
		name  string
		cfg   *tls.Config
		count func(ConnDrops) uint64
	}{
		{"another key under the name of the right one", client(testKey(2), "test", "alpha", raft), certificate},
		{"another cluster with the same key", client(testKey(1), "other", "alpha", raft), certificate},
		{"a node that is not configured", client(testKey(1), "test", "delta", raft), func(d ConnDrops) uint64 { return d.UnknownNode }},
		{"a name in other case", client(testKey(1), "test", "Alpha", raft), func(d ConnDrops) uint64 { return d.UnknownNode }},
		{"its own name", client(testKey(1), "test", "beta", raft), func(d ConnDrops) uint64 { return d.OwnName }},
		{"a protocol that nobody serves", client(testKey(1), "test", "alpha", "hamgr-raft/2"), func(d ConnDrops) uint64 { return d.Protocol }},
		{"no protocol", client(testKey(1), "test", "alpha"), func(d ConnDrops) uint64 { return d.Protocol }},
	} {
		t.Run(c.name, func(t *testing.T) { refused(t, beta, c.cfg, c.count) })
	}
	for name, protos := range map[string][]string{"another key": {raft, keyProtocol + testKey(2).Fingerprint()}, "no key named": {raft}, "half a key named": {raft, keyProtocol + "ab"}} {
		t.Run(name, func(t *testing.T) {
			cfg := client(testKey(2), "test", "alpha")
			cfg.NextProtos = protos
			refused(t, beta, cfg, func(d ConnDrops) uint64 { return d.UnknownKey })
		})
	}
	t.Run("no certificate", func(t *testing.T) {
		cfg := client(testKey(1), "test", "alpha", raft)
		cfg.Certificates = nil
		refused(t, beta, cfg, handshake)
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		cfg := client(testKey(1), "test", "alpha", raft)
		cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		refused(t, beta, cfg, handshake)
	})
	t.Run("the authority itself as a node", func(t *testing.T) {
		// What a node could do with the key beyond its certificate: sign two names.
		ca, signer, err := authority(testKey(1), "test")
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := certificate2(ca, signer, "alpha", "delta")
		if err != nil {
			t.Fatal(err)
		}
		cfg := client(testKey(1), "test", "alpha", raft)
		cfg.Certificates = []tls.Certificate{leaf}
		refused(t, beta, cfg, certificate)
	})
	for name, talk := range map[string]string{"plain text": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "garbage": strings.Repeat("\x16\x03\x01\xff\xff\x00", 50)} {
		t.Run(name, func(t *testing.T) {
			before := beta.Counters().Conns.Handshake
			c, err := net.Dial("tcp", beta.endpoints[0].address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, talk)
			c.SetReadDeadline(time.Now().Add(10 * time.Second))
			io.Copy(io.Discard, c) // until beta closes
			eventually(t, "counted", func() bool { return beta.Counters().Conns.Handshake == before+1 })
		})
	}
	if got := beta.Counters().ConnsAccepted; got != 0 {
		t.Errorf("%d strangers were accepted", got)
	}
	if _, ok := beta.Contact("alpha"); ok {
		t.Error("a stranger counts as contact")
	}

	// And after all that, a node is welcome.
	alpha := start(t, nodes, "alpha")
	echo(t, beta.Listener(Raft))
	c, err := alpha.Dial(within(t), "beta", Raft)
	if err != nil {
		t.Fatal(err)
	}
	ping(t, c)
	c.Close()
}

// TestStrangersCannotExhaustTheListener: strangers that connect and say nothing take up
// only their own share of handshakes.
func TestStrangersCannotExhaustTheListener(t *testing.T) {
	nodes := loopback(t, 1, "alpha", "beta")
	beta := start(t, nodes, "beta", func(c *Config) { c.DetectionTime = maxPatience })
	echo(t, beta.Listener(Raft))
	for range 4 * otherHandshakes {
		c, err := net.Dial("tcp", beta.endpoints[0].address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	eventually(t, "strangers beyond the limit are closed", func() bool {
		return beta.Counters().Conns.TooMany == 3*otherHandshakes
	})
	alpha := start(t, nodes, "alpha")
	c, err := alpha.Dial(within(t), "beta", Raft)
	if err != nil {
		t.Fatalf("a node is kept out by strangers: %v", err)
	}
	ping(t, c)
	c.Close()
}

func TestSilentStrangerIsClosed(t *testing.T) {
	nodes := loopback(t, 1, "alpha", "beta")
	beta := start(t, nodes, "beta", func(c *Config) { c.DetectionTime = minPatience })
	c, err := net.Dial("tcp", beta.endpoints[0].address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) || isTimeout(err) {
		t.Errorf("read: %v; want closed by the far end", err)
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// TestDialerChecksWhomItReached: the address of beta is answered by gamma, a node of the
// same cluster with a good certificate.
func TestDialerChecksWhomItReached(t *testing.T) {
	nodes := loopback(t, 1, "alpha", "beta", "gamma")
	swapped := []Node{nodes[0], {"beta", nodes[2].Addresses}, {"gamma", nodes[1].Addresses}}
	alpha := start(t, nodes, "alpha")
	gamma := start(t, swapped, "gamma") // listens where alpha expects beta
	gamma.Listener(Raft)
	c, err := alpha.Dial(within(t), "beta", Raft)
	if err == nil {
		c.Close()
		t.Fatal("gamma was taken for beta")
	}
	if !strings.Contains(err.Error(), "gamma") || !strings.Contains(err.Error(), nodes[1].Addresses[0]) {
		t.Errorf("the error names neither who answered nor where: %v", err)
	}
	if _, ok := alpha.Contact("beta"); ok {
		t.Error("gamma's answer counts as contact with beta")
	}
	if h := alpha.Health()[0]; h.Node != "beta" || h.Links[0].LastError == "" || h.Links[0].LastErrorAgeMS == Never {
		t.Errorf("health does not show it: %+v", h)
	}
}

// TestNamesAreExact: names in certificates are DNS names, which are compared without case;
// nodes' names are not.
func TestNamesAreExact(t *testing.T) {
	nodes := loopback(t, 1, "alpha", "beta")
	alpha := start(t, nodes, "alpha")
	other := start(t, []Node{nodes[0], {"Beta", nodes[1].Addresses}}, "Beta")
	other.Listener(Raft)
	if c, err := alpha.Dial(within(t), "beta", Raft); !errors.Is(err, errWrong) {
		if err == nil {
			c.Close()
		}
		t.Errorf("Beta was taken for beta: %v", err)
	}
}

// TestDialerRefusesAnotherKey: the dialer, too, judges the far end.
func TestDialerRefusesAnotherKey(t *testing.T) {
	nodes := loopback(t, 1, "alpha", "beta")
	alpha := start(t, nodes, "alpha")
	beta := start(t, nodes, "beta", func(c *Config) { c.Keys = KeyRing{testKey(2)} })
	beta.Listener(Raft)
	c, err := alpha.Dial(within(t), "beta", Raft)
	if err == nil {
		c.Close()
		t.Fatal("a node with another key was believed")
	}
	if err := alpha.Send("beta", []byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the packet is dropped", func() bool { return beta.Counters().Packets.UnknownKey > 0 })
	if n := beta.Counters().PacketsReceived; n != 0 {
		t.Errorf("%d packets of another key received", n)
	}
}

func TestUnservedProtocol(t *testing.T) {
	nodes := loopback(t, 1, "alpha", "beta")
	alpha, beta := start(t, nodes, "alpha"), start(t, nodes, "beta")
	raft := beta.Listener(Raft)
	if c, err := alpha.Dial(within(t), "beta", API); err == nil {
		c.Close()
		t.Error("dialed a protocol that nobody serves")
	}
	echo(t, beta.Listener(API))
	c, err := alpha.Dial(within(t), "beta", API)
	if err != nil {
		t.Fatal(err)
	}
	ping(t, c)
	c.Close()
	raft.Close()
	if c, err := alpha.Dial(within(t), "beta", Raft); err == nil {
		c.Close()
		t.Error("dialed a protocol whose listener is closed")
	}
	echo(t, beta.Listener(Raft)) // opens anew
	if c, err = alpha.Dial(within(t), "beta", Raft); err != nil {
		t.Fatal(err)
	}
	ping(t, c)
	c.Close()
}

func TestAcceptQueueFull(t *testing.T) {
	nodes := loopback(t, 1, "alpha", "beta")
	alpha, beta := start(t, nodes, "alpha"), start(t, nodes, "beta")
	n := beta.Listener(Raft)
	for range acceptQueue + 1 {
		c, err := alpha.Dial(within(t), "beta", Raft)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	eventually(t, "the last one is dropped", func() bool { return beta.Counters().Conns.QueueFull == 1 })
	n.Close()
	if _, err := n.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
	beta.mu.Lock()
	defer beta.mu.Unlock()
	if len(beta.conns) != 0 {
		t.Errorf("%d conns that nobody accepted are still open", len(beta.conns))
	}
}
