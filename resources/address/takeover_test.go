package address

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// echo answers at the service address of a host with the host's name, as soon as the host has it.
func (h *host) echo(ip netip.Addr) {
	h.t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		_ = c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) })
		return err
	}}
	var conn net.PacketConn
	var err error
	h.in(func() {
		conn, err = lc.ListenPacket(context.Background(), "udp", netip.AddrPortFrom(ip, 7777).String())
	})
	h.must(err)
	var running sync.WaitGroup
	running.Go(func() {
		b := make([]byte, 64)
		for {
			_, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo([]byte(h.name), from)
		}
	})
	h.t.Cleanup(func() { conn.Close(); running.Wait() })
}

// pinger asks the service address every few milliseconds and notes who answered when.
type pinger struct {
	mu      sync.Mutex
	answers []answer
}

type answer struct {
	at   time.Time
	from string
}

const pingPause = 5 * time.Millisecond

func (h *host) ping(ip netip.Addr) *pinger {
	h.t.Helper()
	var conn *net.UDPConn
	var err error
	h.in(func() { conn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, 7777))) })
	h.must(err)
	p := &pinger{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for pause(ctx, pingPause) == nil {
			_, _ = conn.Write([]byte("?")) // errors tell of earlier ones
		}
	})
	running.Go(func() {
		b := make([]byte, 64)
		for {
			n, err := conn.Read(b)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				p.mu.Lock()
				p.answers = append(p.answers, answer{time.Now(), string(b[:n])})
				p.mu.Unlock()
			}
		}
	})
	h.t.Cleanup(func() { cancel(); conn.Close(); running.Wait() })
	return p
}

// last gives the last answer.
func (p *pinger) last() answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.answers) == 0 {
		return answer{}
	}
	return p.answers[len(p.answers)-1]
}

// gap gives the time from the last answer of one host to the first one of another, after it.
func (p *pinger) gap(from, to string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var left time.Time
	for _, a := range p.answers {
		if a.from == from {
			left = a.at
		}
	}
	for _, a := range p.answers {
		if a.from == to && a.at.After(left) {
			return a.at.Sub(left)
		}
	}
	return time.Hour
}

const (
	mostGap = 200 * time.Millisecond
	// soon leaves room for a busy machine. A client that nobody told takes more than five seconds to ask anew.
	soon = 2 * time.Second
)

// A client that asks all the time, and whose neighbour table names the old host, misses the address for less than 200 ms.
func TestTakeover(t *testing.T) {
	for _, cidr := range serviceAddresses {
		t.Run(cidr, func(t *testing.T) {
			n := newNetwork(t)
			hosts, client := []*host{n.join("a", 1), n.join("b", 2)}, n.join("client", 9)
			var service []*address
			for _, h := range hosts {
				service = append(service, h.resource(Options{Address: cidr}))
				h.echo(service[0].ip)
			}
			ip := service[0].ip
			mustStart(t, service[0])
			p := client.ping(ip)
			eventually(t, 5*time.Second, "the first answer", func() bool { return p.last().from == "a" })
			var gaps []time.Duration
			for round := range 6 {
				from, to := round%2, 1-round%2
				if got := client.neighbour(ip); got != hosts[from].mac() {
					t.Fatalf("the client's table names %q before round %d, want %s", got, round, hosts[from].mac())
				}
				begin := time.Now()
				if err := service[from].Stop(deadline(t, time.Second)); err != nil {
					t.Fatal(err)
				}
				stopped := time.Since(begin)
				if err := service[to].Start(deadline(t, 10*time.Second)); err != nil {
					t.Fatal(err)
				}
				t.Logf("stop %s, start %s", stopped, time.Since(begin)-stopped)
				eventually(t, soon, "the client's table names the new host", func() bool { return client.neighbour(ip) == hosts[to].mac() })
				eventually(t, 5*time.Second, "an answer of the new host", func() bool { return p.last().from == hosts[to].name })
				gap := p.gap(hosts[from].name, hosts[to].name)
				t.Logf("round %d: no answer for %s", round, gap.Round(time.Millisecond))
				gaps = append(gaps, gap)
				wantState(t, service[from], resources.Inactive, "")
				wantState(t, service[to], resources.Active, "on eth0")
			}
			slices.Sort(gaps)
			if median := gaps[len(gaps)/2]; median > mostGap {
				t.Errorf("the client saw no answer for %s: %s", median, gaps)
			}
		})
	}
}

// The owner vanished without a word (B22), or comes back and speaks once more: the client finds the new one at once.
func TestOldOwnerComesBack(t *testing.T) {
	for _, cidr := range serviceAddresses {
		t.Run(cidr, func(t *testing.T) {
			n := newNetwork(t)
			a, b, client := n.join("a", 1), n.join("b", 2), n.join("client", 9)
			old, now := a.resource(Options{Address: cidr, Announce: time.Millisecond, OnLinkDown: linkDownIgnore}), b.resource(Options{Address: cidr, Announce: time.Millisecond})
			ip := old.ip
			a.echo(ip)
			b.echo(ip)
			mustStart(t, old)
			p := client.ping(ip)
			eventually(t, 5*time.Second, "the first answer", func() bool { return p.last().from == "a" })
			n.cable(a, false)
			mustStart(t, now)
			eventually(t, soon, "an answer of the new host", func() bool { return p.last().from == "b" })

			died := make(chan error, 1)
			go func() { died <- old.Died(t.Context()) }()
			n.cable(a, true)
			// It asks before it speaks, and so learns that it is not the owner any more.
			wantDeath(t, died, resources.ErrElsewhere, b.mac())
			if p.last().from != "b" {
				t.Error("the old owner was answering again")
			}
			// Its kernel still has the address, and speaks of it in spite of all: a frame of its own.
			l, err := old.kernel.linkNamed("eth0")
			a.must(err)
			w, err := old.makeWire(l)
			a.must(err)
			defer w.Close()
			a.must(w.send(old.discovery.announcement(l, ip)...))
			eventually(t, soon, "the client's table names the owner again", func() bool { return client.neighbour(ip) == b.mac() })
			wantState(t, now, resources.Active, "CONFLICT: the host with MAC "+a.mac())
			if !strings.Contains(b.log.String(), a.mac()) {
				t.Errorf("the log does not name the other host: %s", b.log)
			}
			mustStop(t, old)
			eventually(t, soon, "an answer of the owner", func() bool { return time.Since(p.last().at) < 4*pingPause && p.last().from == "b" })
		})
	}
}

func TestAnnouncementsAreRepeated(t *testing.T) {
	t.Parallel()
	for _, cidr := range serviceAddresses {
		t.Run(cidr, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			a, client := n.join("a", 1), n.join("client", 9)
			service := a.resource(Options{Address: cidr, Announce: announcePause + announcePause/2})
			heard := client.hear(service, a)
			mustStart(t, service)
			perTime := len(service.discovery.announcement(link{mac: make(net.HardwareAddr, 6)}, service.ip))
			eventually(t, 5*time.Second, "announcements at once and after one second", func() bool { return heard() == 2*perTime })
			time.Sleep(announcePause + announcePause/2) // there is nothing to wait for
			if heard() != 2*perTime {
				t.Errorf("announced %d times", heard()/perTime)
			}
		})
	}
}

// hear counts the claims of an address by one host that come to another.
func (h *host) hear(of *address, by *host) (count func() int) {
	h.t.Helper()
	listener := &address{opts: of.opts, ip: of.ip, bits: of.bits, discovery: of.discovery, kernel: kernel{socket: h.socket}}
	l, err := listener.kernel.linkNamed("eth0")
	h.must(err)
	w, err := listener.makeWire(l)
	h.must(err)
	mac := by.mac()
	var mu sync.Mutex
	var heard int
	var running sync.WaitGroup
	running.Go(func() {
		b := make([]byte, frameLength)
		for {
			got, err := w.receive(context.Background(), b, time.Time{})
			if err != nil {
				return
			}
			if c, ok := of.discovery.read(got, of.ip); ok && !c.asking && c.mac.String() == mac {
				mu.Lock()
				heard++
				mu.Unlock()
			}
		}
	})
	h.t.Cleanup(func() { w.Close(); running.Wait() })
	return func() int { mu.Lock(); defer mu.Unlock(); return heard }
}

func wantDeath(t *testing.T, died <-chan error, sentinel error, words string) {
	t.Helper()
	select {
	case err := <-died:
		if err := wantError(err, sentinel, words); err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("its death was not noticed")
	}
}
