package netns

import (
	"bytes"
	"compress/lzw"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/link"
)

// The message types of memberlist v0.7.0 (its net.go).
const (
	gossipSuspect    = 3
	gossipDead       = 5
	gossipCompressed = 9
)

// gossip makes a message as memberlist does: its type, then a map in MessagePack (github.com/msgpack/msgpack, spec.md).
func gossip(kind byte, fields ...any) []byte {
	b := []byte{kind, 0x80 | byte(len(fields)/2)}
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			b = append(append(b, 0xa0|byte(len(f))), f...)
		case uint32:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), f)
		case []byte:
			b = append(binary.BigEndian.AppendUint32(append(b, 0xc6), uint32(len(f))), f...)
		}
	}
	return b
}

// slander says something of a node, under a number. The node refutes it by a higher one.
func slander(kind byte, node string, number uint32) []byte {
	return gossip(kind, "Incarnation", number, "Node", node, "From", forger)
}

// irrefutable has none above it.
const irrefutable = math.MaxUint32

// forger is the node in whose name the test speaks. It is configured, and its host has no power.
const forger = "n4"

// forgery makes a cluster of three members and a witness, and a place from which the test speaks to them as a fourth member.
// So those that a slander makes believe that one is dead are a majority of the five, which may shoot.
func forgery(t *testing.T) *lab {
	t.Helper()
	l := newLab(t, shape{members: 4, witness: true, prefer: map[string][]string{theGroup: {"n1"}}})
	l.powerOn(l.others(forger)...)
	l.settled("the cluster forms", l.others(forger)...)
	return l
}

// speaks starts to be the forger, with these keys.
func (l *lab) speaks(keys link.KeyRing, network forgerNetwork) *link.Link {
	l.t.Helper()
	network.space = l.hosts[forger].space
	c := link.Config{Cluster: "netns", Self: forger, Keys: keys, DetectionTime: detection, Network: network}
	for _, name := range l.conf.names {
		n := link.Node{Name: name}
		for i := range links {
			n.Addresses = append(n.Addresses, net.JoinHostPort(address(i, l.hosts[name].number), "7846"))
		}
		c.Nodes = append(c.Nodes, n)
	}
	f, err := link.Start(c)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(f.Stop)
	go func() {
		for range f.Packets() { // what the others answer
		}
	}()
	return f
}

// member is the forger with the key of the cluster, once all others believe its packets.
func (l *lab) member() *link.Link {
	l.t.Helper()
	ring, err := link.ReadKeyRing(l.file("cluster.key"))
	if err != nil {
		l.t.Fatal(err)
	}
	f := l.speaks(ring, forgerNetwork{})
	l.until(patience, "the forger is heard", func(ctx context.Context) error {
		for _, name := range l.others(forger) {
			s, err := l.status(ctx, name)
			if err != nil {
				return err
			}
			if age := nodeOf(s, forger).ContactAgeMS; age == nil || *age > detection.Milliseconds() {
				return fmt.Errorf("not by %s", name)
			}
			if _, heard := f.Contact(name); !heard {
				return fmt.Errorf("%s is not heard", name)
			}
		}
		return nil
	})
	return f
}

// forgerNetwork is that of the forger's host.
type forgerNetwork struct {
	space *space
	spoil func([]byte) // what becomes of a packet before it goes out
}

func (n forgerNetwork) ListenPacket(address string) (c net.PacketConn, err error) {
	err = n.space.do(func() error {
		c, err = net.ListenPacket("udp", address)
		return err
	})
	if err == nil && n.spoil != nil {
		c = spoiled{c, n.spoil}
	}
	return c, err
}

func (n forgerNetwork) Listen(address string) (c net.Listener, err error) {
	err = n.space.do(func() error {
		c, err = net.Listen("tcp", address)
		return err
	})
	return c, err
}

func (n forgerNetwork) Dial(ctx context.Context, from, address string) (c net.Conn, err error) {
	err = n.space.do(func() error {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}} // of an IP address: no other thread dials
		c, err = d.DialContext(ctx, "tcp", address)
		return err
	})
	return c, err
}

type spoiled struct {
	net.PacketConn
	spoil func([]byte)
}

func (s spoiled) WriteTo(b []byte, to net.Addr) (int, error) {
	s.spoil(b)
	return s.PacketConn.WriteTo(b, to)
}

// tell sends a packet to each of the daemons.
func (l *lab) tell(f *link.Link, packet []byte) {
	l.t.Helper()
	for _, name := range l.others(forger) {
		if err := f.Send(name, packet); err != nil {
			l.t.Error(err)
		}
	}
}

const disagrees = "gossip disagrees with contact"

// unmoved: nobody was shot or missed, and the same process writes.
func (l *lab) unmoved(pid int, token uint64) {
	l.t.Helper()
	if e := l.writes(theGroup); e.PID != pid || e.Token != token {
		l.t.Errorf("process %d with token %d wrote, then %v", pid, token, e)
	}
	if missed := l.events(func(e event) bool { return e.Msg == "node dead" && e.Node != forger }); len(missed) > 0 {
		l.t.Errorf("%v", missed)
	}
	l.noShot()
	l.judge()
}

// TestB15Slander: messages with the cluster's key that declare a healthy node dead. What it cannot refute is not believed.
// What it refutes, and what is said again at once, gossip believes, and all are told that it is wrong; nothing else comes
// of it.
func TestB15Slander(t *testing.T) {
	for _, role := range []string{"coordinator", "holder", "witness"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			l := forgery(t)
			f := l.member()
			victim := l.withRole(role)
			before := l.writes(theGroup)
			told := func() []event {
				return l.events(func(e event) bool { return e.Msg == disagrees && e.Node == victim })
			}
			l.tell(f, slander(gossipDead, victim, irrefutable))
			l.tell(f, slander(gossipSuspect, victim, irrefutable))
			l.let(detection * 3 / 2)
			l.settled("it is not believed", l.others(forger)...)
			if e := told(); len(e) > 0 {
				t.Errorf("it was believed: %v", e)
			}

			ctx, enough := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				l.slanders(ctx, f, func(n uint32) []byte { return slander(gossipDead, victim, n) })
			}()
			for _, ask := range l.others(forger, victim) {
				l.says(ask, "gossip says that node "+victim+" is dead, but it is heard")
			}
			enough()
			<-ended
			began := time.Now()
			l.settledWithin(whole*slowness, "it is refuted", l.others(forger)...)
			t.Logf("%s, the %s, was no longer dead to gossip after %v", victim, role, time.Since(began).Round(time.Millisecond))
			if len(told()) == 0 {
				t.Error("no log tells of it")
			}
			l.let(detection)
			l.settled("and does not come again", l.others(forger)...)
			l.unmoved(before.PID, before.Token)
		})
	}
}

// slanders tells all others a hundred things a second, under numbers that grow.
func (l *lab) slanders(ctx context.Context, f *link.Link, next func(n uint32) []byte) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := uint32(1 << 20); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.tell(f, next(n))
		}
	}
}

// withRole gives the coordinator, which holds the group too, if it is a member; another holder of the group; or the witness.
func (l *lab) withRole(role string) (node string) {
	l.t.Helper()
	s := l.settled("steady", l.others(forger)...)
	switch role {
	case "coordinator":
		node = s.Coordinator
	case "holder":
		node = l.others(forger, witness, s.Coordinator)[0]
	case "witness":
		node = witness
	}
	if node != witness && node != groupOf(s, theGroup).Node {
		if out, status := l.hamgr("n1", "group", "move", theGroup, node, "--wait"); status != 0 {
			l.t.Fatalf("group move ended with status %d: %s", status, out)
		}
		l.settled("moved", l.others(forger)...)
	}
	return node
}

// TestB15Flood: a thousand of them, of all nodes.
func TestB15Flood(t *testing.T) {
	t.Parallel()
	l := forgery(t)
	f := l.member()
	before := l.writes(theGroup)
	victims := l.others(forger)
	ctx, enough := context.WithCancel(t.Context())
	said := 0
	l.slanders(ctx, f, func(n uint32) []byte {
		if said++; said == 1000 {
			enough()
		}
		kind, number := []byte{gossipDead, gossipSuspect}[said%2], []uint32{n, irrefutable - 1, irrefutable}[said%3]
		return slander(kind, victims[said/6%len(victims)], number)
	})
	if len(l.said(disagrees)) == 0 {
		t.Error("nobody believed it: this proves nothing")
	}
	began := time.Now()
	l.settledWithin(whole*slowness, "it is refuted", victims...)
	t.Logf("whole %v after the last one", time.Since(began).Round(time.Millisecond))
	l.unmoved(before.PID, before.Token)
}

// TestB15WithoutKey: who has not the cluster's key is not listened to, whether he names his own key or the cluster's.
func TestB15WithoutKey(t *testing.T) {
	t.Parallel()
	l := forgery(t)
	before := l.writes(theGroup)
	ring, err := link.ReadKeyRing(l.file("cluster.key"))
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := link.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	own, theirs := fingerprint(t, foreign), fingerprint(t, ring[0])
	for _, c := range []struct {
		reason string
		spoil  func([]byte)
	}{
		{"packets_unknown_key", nil},
		{"packets_unopened", func(b []byte) {
			if at := bytes.Index(b, own); at >= 0 {
				copy(b[at:], theirs)
			}
		}},
	} {
		f := l.speaks(link.KeyRing{foreign}, forgerNetwork{spoil: c.spoil})
		const messages = 100
		for i := range messages {
			l.tell(f, slander(gossipDead, l.others(forger)[i%4], uint32(i)))
			l.let(time.Millisecond)
		}
		f.Stop()
		for _, ask := range l.others(forger) {
			l.until(patience, "they are dropped, and counted as "+c.reason, func(ctx context.Context) error {
				s, err := l.status(ctx, ask)
				if n := s.Dropped[c.reason]; err == nil && n < links*messages {
					err = fmt.Errorf("%d were", n)
				}
				return err
			})
			l.says(ask, c.reason)
		}
	}
	l.let(detection)
	l.settled("nothing has come of it", l.others(forger)...)
	if e := l.said(disagrees); len(e) > 0 {
		t.Errorf("%v", e)
	}
	l.unmoved(before.PID, before.Token)
}

func fingerprint(t *testing.T, k link.Key) (b []byte) {
	t.Helper()
	if _, err := fmt.Sscanf(k.Fingerprint(), "%x", &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// bomb is what unpacks to so many bytes of gossip that says nothing.
func bomb(t *testing.T, size int64) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := lzw.NewWriter(&packed, lzw.LSB, 8)
	if _, err := io.CopyN(w, zeros{}, size); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return gossip(gossipCompressed, "Algo", uint32(0), "Buf", packed.Bytes())
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestB16Bomb: small messages with the cluster's key that unpack to 256 MiB each by a stream, and to as much together by
// packets, are refused as they are: no daemon's memory grows.
func TestB16Bomb(t *testing.T) {
	t.Parallel()
	const unpacked, together, mostGrowth = 256 << 20, 8, 64 << 20
	large, small := bomb(t, unpacked), bomb(t, 200<<10)
	t.Logf("%d bytes in a stream, %d in a packet", len(large), len(small))
	if len(large) > 1<<20 || len(small) > link.MaxPayload {
		t.Fatal("they are not small")
	}
	l := forgery(t)
	f := l.member()
	before := l.writes(theGroup)
	pids := map[string]int{}
	for _, name := range l.others(forger) {
		pid, err := l.hosts[name].pid()
		if err != nil {
			t.Fatal(err)
		}
		// proc_pid_clear_refs(5): the peak begins anew.
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
			t.Fatal(err)
		}
		pids[name] = pid
	}
	peaks := map[string]int64{}
	for name, pid := range pids {
		peaks[name] = peak(t, pid)
	}
	for range unpacked / (200 << 10) {
		l.tell(f, small)
		l.let(time.Millisecond)
	}
	for _, name := range l.others(forger) {
		l.bombs(f, name, large, together)
	}
	for name, pid := range pids {
		grown := peak(t, pid) - peaks[name]
		t.Logf("the memory of the daemon on %s grew by %d KiB to %d KiB", name, grown>>10, peak(t, pid)>>10)
		if grown > mostGrowth {
			t.Errorf("the memory of the daemon on %s grew by %d MiB", name, grown>>20)
		}
		if now, err := l.hosts[name].pid(); err != nil || now != pid {
			t.Errorf("process %d was the daemon on %s, now %d is: %v", pid, name, now, err)
		}
	}
	l.settled("nothing has come of it", l.others(forger)...)
	l.unmoved(before.PID, before.Token)
}

// bombs sends a daemon so many of them at the same time, by streams, each until it is refused.
func (l *lab) bombs(f *link.Link, to string, message []byte, n int) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	ended := make(chan error)
	for range n {
		go func() { ended <- deliver(ctx, f, to, message) }()
	}
	for range n {
		if err := <-ended; err != nil {
			l.t.Errorf("a bomb for %s: %v", to, err)
		}
	}
}

func deliver(ctx context.Context, f *link.Link, to string, message []byte) error {
	conn, err := f.Dial(ctx, to, link.Gossip)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	conn.Write(message) // it may be refused before it is there
	if _, err = io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("not refused: %w", err)
	}
	return nil
}

// peak is the most memory that a process had at once (proc_pid_status(5)), in bytes.
func peak(t *testing.T, pid int) (bytes int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if size, found := strings.CutPrefix(line, "VmHWM:"); found {
			if _, err := fmt.Sscanf(size, "%d kB", &bytes); err != nil {
				t.Fatal(err)
			}
			return bytes << 10
		}
	}
	t.Fatalf("no VmHWM in %s", text)
	return 0
}
