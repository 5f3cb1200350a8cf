package address

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// Another host has the address: nothing is taken, and the error names it.
func TestForeignOwner(t *testing.T) {
	t.Parallel()
	for _, cidr := range serviceAddresses {
		t.Run(cidr, func(t *testing.T) {
			n := newNetwork(t)
			a, b, client := n.join("a", 1), n.join("b", 2), n.join("client", 9)
			b.give("eth0", cidr)
			service := a.resource(Options{Address: cidr, Announce: time.Second})
			heard := client.hear(service, a)
			if err := wantError(service.Start(deadline(t, time.Second)), resources.ErrElsewhere, b.mac()); err != nil {
				t.Error(err)
			}
			if a.has(service.ip) != nil || heard() != 0 {
				t.Errorf("on %v, and %d frames claimed it", a.has(service.ip), heard())
			}
			wantState(t, service, resources.Inactive, "")
			b.take("eth0", cidr)
			mustStart(t, service)
			// It came back while we have it: a start that finds the address here asks too.
			b.give("eth0", cidr)
			if err := wantError(service.Start(deadline(t, time.Second)), resources.ErrElsewhere, b.mac()); err != nil {
				t.Error(err)
			}
			mustStop(t, service)
		})
	}
}

// Two hosts that take the address at the same time never both get it.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	for _, cidr := range serviceAddresses {
		t.Run(cidr, func(t *testing.T) {
			n := newNetwork(t)
			a, b := n.join("a", 1), n.join("b", 2)
			for range 5 {
				x, y := a.resource(Options{Address: cidr}), b.resource(Options{Address: cidr})
				failed := make(chan error, 1)
				go func() { failed <- y.Start(t.Context()) }()
				mine, theirs := x.Start(deadline(t, time.Second)), <-failed
				if mine == nil && theirs == nil {
					t.Fatal("two owners")
				}
				for _, err := range []error{mine, theirs} {
					if err != nil && !errors.Is(err, resources.ErrElsewhere) {
						t.Errorf("error %v", err)
					}
				}
				mustStop(t, x)
				mustStop(t, y)
			}
		})
	}
}

// What this host itself says is no other host's word, and is told apart.
func TestThisHostAnswers(t *testing.T) {
	t.Parallel()
	for _, cidr := range serviceAddresses {
		t.Run(cidr, func(t *testing.T) {
			n := newNetwork(t)
			a := n.join("a", 1)
			a.plug(n, "eth1")
			service := a.resource(Options{Address: cidr, Interface: "eth0"})

			a.give("eth1", cidr)
			wantState(t, service, resources.Failed, "on eth1 of this host, not on eth0")
			if err := wantError(service.Start(deadline(t, time.Second)), nil, "on eth1 of this host"); err != nil {
				t.Error(err)
			}
			if err := wantError(service.Check(t.Context()), resources.ErrSetup, "on eth1 of this host"); err != nil {
				t.Error(err)
			}
			mustStop(t, service)
			if a.has(service.ip) != nil {
				t.Error("stopped, and still on", a.has(service.ip))
			}

			// Only the network tells: something answers through eth1.
			stop := a.claimFrom("eth1", service)
			if err := wantError(service.Start(deadline(t, time.Second)), nil, "eth1 ("); err != nil {
				t.Error(err)
			}
			stop()

			// With the address here, both interfaces answer for it (arp_ignore is 0): no fault.
			mustStart(t, service)
			stop = a.claimFrom("eth1", service)
			mustStart(t, service)
			stop()
			wantState(t, service, resources.Active, "on eth0")
			if _, detail, _ := service.Probe(t.Context()); strings.Contains(detail, "CONFLICT") {
				t.Error("this host is in conflict with itself: ", detail)
			}
		})
	}
}

// claimFrom claims the address from an interface every few milliseconds.
func (h *host) claimFrom(name string, of *address) (stop func()) {
	h.t.Helper()
	l, err := of.kernel.linkNamed(name)
	h.must(err)
	w, err := of.makeWire(l)
	h.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause(ctx, 5*time.Millisecond) == nil {
			if err := w.send(of.discovery.announcement(l, of.ip)...); err != nil {
				panic(err)
			}
		}
	}()
	return func() { cancel(); <-done; w.Close() }
}

// A link that was away while the network was asked proves nothing by its silence.
func TestLinkAwayWhileAsked(t *testing.T) {
	n := newNetwork(t)
	a, b := n.join("a", 1), n.join("b", 2)
	b.give("eth0", "10.0.0.100/24")
	service := a.resource(Options{Address: "10.0.0.100/24", DuplicateTimeout: 500 * time.Millisecond})
	n.cable(b, false)
	flap := time.AfterFunc(100*time.Millisecond, func() { n.cable(a, false); n.cable(a, true) })
	defer flap.Stop()
	if err := wantError(service.Start(deadline(t, 2*time.Second)), resources.ErrNode, "while other hosts were asked"); err != nil {
		t.Error(err)
	}
	wantState(t, service, resources.Inactive, "")
}

// Something else added the address, and the kernel's own duplicate detection runs, or has failed.
func TestDuplicateDetectionOfTheKernel(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	a, b := n.join("a", 1), n.join("b", 2)
	a.sysctl("ipv6/conf/eth0/accept_dad", "1")
	tentative := func() {
		addr, err := netlink.ParseAddr("fd00::100/64")
		a.must(err)
		a.must(a.handle.AddrAdd(a.link("eth0"), addr))
	}
	service := a.resource(Options{Address: "fd00::100/64"})
	tentative()
	wantState(t, service, resources.Failed, "duplicate address detection is under way")
	if err := service.Start(deadline(t, 300*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start: %v", err)
	}
	if err := service.Start(deadline(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	wantState(t, service, resources.Active, "not put there by hamgr")
	mustStop(t, service)

	b.give("eth0", "fd00::100/64")
	tentative()
	eventually(t, 5*time.Second, "the kernel finds the duplicate", func() bool {
		found, err := service.kernel.entries(unix.AF_INET6, func(e entry) bool { return e.ip == service.ip })
		return err == nil && len(found) == 1 && found[0].flags&unix.IFA_F_DADFAILED != 0
	})
	wantState(t, service, resources.Failed, "another host on the network of eth0 has it")
	if err := wantError(service.Start(deadline(t, time.Second)), resources.ErrElsewhere, b.mac()); err != nil {
		t.Error(err)
	}
	if _, err := service.verify(deadline(t, time.Second), link{name: "eth0"}); err != nil {
		if err := wantError(err, resources.ErrElsewhere, "the kernel's duplicate address detection"); err != nil {
			t.Error(err)
		}
	} else {
		t.Error("an address that failed its duplicate detection was taken for good")
	}
	if a.has(service.ip) != nil {
		t.Error("an address that failed its duplicate detection was left there")
	}
}

// Which interface gets it.
func TestPlace(t *testing.T) {
	t.Parallel()
	n, other := newNetwork(t), newNetwork(t)
	a := n.join("a", 1)
	a.plug(other, "eth1")
	a.give("eth1", "10.2.0.1/16")
	a.give("eth1", "10.9.9.9/32")
	for _, test := range []struct {
		o        Options
		sentinel error
		words    string // of the error; else the interface
	}{
		{Options{Address: "10.0.0.100/24"}, nil, "eth0"},
		{Options{Address: "10.0.0.100/32"}, nil, "eth0"},
		{Options{Address: "10.2.3.4/24"}, nil, "eth1"},
		{Options{Address: "10.2.3.4/24", Interface: "eth0"}, nil, "eth0"},
		{Options{Address: "192.168.7.7/24", Interface: "eth1"}, nil, "eth1"},
		{Options{Address: "fd00::100/64"}, nil, "eth0"},
		{Options{Address: "fd01::100/64", Interface: "eth1"}, nil, "eth1"},
		{Options{Address: "fe80::100/64", Interface: "eth1"}, nil, "eth1"},
		{Options{Address: "192.0.2.1/32", Interface: "lo"}, nil, "lo"},
		{Options{Address: "192.168.7.7/24"}, resources.ErrNode, "no interface has an address in a network around 192.168.7.7"},
		{Options{Address: "10.9.9.10/31"}, resources.ErrNode, "no interface has an address"},
		{Options{Address: "10.0.0.100/24", Interface: "eth7"}, resources.ErrNode, "interface eth7"},
	} {
		t.Run(fmt.Sprint(test.o.Address, test.o.Interface), func(t *testing.T) {
			service := a.resource(test.o)
			if strings.Contains(test.words, " ") {
				for _, err := range []error{service.Check(t.Context()), service.Start(deadline(t, time.Second))} {
					if err := wantError(err, test.sentinel, test.words); err != nil {
						t.Error(err)
					}
				}
				wantState(t, service, resources.Inactive, "")
				return
			}
			if err := service.Check(t.Context()); err != nil {
				t.Error(err)
			}
			if err := service.Start(deadline(t, time.Second)); err != nil {
				t.Fatal(err)
			}
			wantState(t, service, resources.Active, "on "+test.words)
			if got := a.has(service.ip); len(got) != 1 || got[0] != test.words {
				t.Errorf("on %v, want %s", got, test.words)
			}
			if err := service.Check(t.Context()); err != nil {
				t.Error("check of what runs: ", err)
			}
			mustStop(t, service)
		})
	}
	// An address that moves does not make an interface fit.
	far := a.resource(Options{Address: "192.168.7.7/24", Interface: "eth1"})
	if err := far.Start(deadline(t, time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := wantError(a.resource(Options{Address: "192.168.7.8/24"}).Check(t.Context()), resources.ErrNode, "no interface"); err != nil {
		t.Error(err)
	}
	a.give("eth1", "10.0.0.200/24")
	if err := wantError(a.resource(Options{Address: "10.0.0.100/24"}).Start(deadline(t, time.Second)), resources.ErrSetup, "eth0 and eth1 have addresses"); err != nil {
		t.Error(err)
	}
}

// An interface that lost the address by which it was chosen still has ours, which goes on.
func TestPlaceIsKept(t *testing.T) {
	t.Parallel()
	a := newNetwork(t).join("a", 1)
	service := a.resource(Options{Address: "fd00::100/64"})
	mustStart(t, service)
	a.take("eth0", "fd00::1/64")
	wantState(t, service, resources.Active, "on eth0")
	select {
	case <-service.keeper.ended:
		t.Error("died: ", service.keeper.reason)
	default:
	}
	mustStop(t, service)
}

// An IPv6 address is not what the host speaks from of itself, and is usable at once.
func TestNotPreferred(t *testing.T) {
	t.Parallel()
	a := newNetwork(t).join("a", 1)
	a.sysctl("ipv6/conf/eth0/accept_dad", "1")
	service := a.resource(Options{Address: "fd00::100/64"})
	start := time.Now()
	mustStart(t, service)
	if took := time.Since(start); took > 900*time.Millisecond { // the kernel's own detection takes a second or two
		t.Errorf("usable after %s", took)
	}
	all, err := a.handle.AddrList(a.link("eth0"), netlink.FAMILY_V6)
	a.must(err)
	for _, x := range all {
		if x.IP.String() == "fd00::100" && (x.Flags&unix.IFA_F_DEPRECATED == 0 || x.Flags&unix.IFA_F_TENTATIVE != 0 || x.ValidLft != lifetimeForever) {
			t.Errorf("flags %#x, valid for %d s", x.Flags, x.ValidLft)
		}
	}
	var conn net.Conn
	a.in(func() { conn, err = net.Dial("udp", "[fd00::9]:9") })
	a.must(err)
	defer conn.Close()
	if from := conn.LocalAddr().(*net.UDPAddr).IP.String(); from != "fd00::1" {
		t.Errorf("the host speaks from %s", from)
	}
}

// Switches that know who listens to which group must learn of us before we ask: another host that asks for the
// address at the same time does it in that group.
func TestListensToTheGroup(t *testing.T) {
	t.Parallel()
	a := newNetwork(t).join("a", 1)
	service := a.resource(Options{Address: "fd00::100/64"})
	listens := func() bool {
		var groups []byte
		var err error
		a.in(func() { groups, err = os.ReadFile("/proc/thread-self/net/igmp6") })
		a.must(err)
		return strings.Contains(string(groups), "ff0200000000000000000001ff000100")
	}
	l, err := service.kernel.linkNamed("eth0")
	a.must(err)
	w, err := service.makeWire(l)
	a.must(err)
	if !listens() {
		t.Error("the host does not listen to the group of the address")
	}
	w.Close()
	eventually(t, soon, "the host has left the group of the address", func() bool { return !listens() })
}

// A process that was held up while the answer came does not take it for silence.
func TestAnswerWhileHeldUp(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	a, b := n.join("a", 1), n.join("b", 2)
	for _, cidr := range serviceAddresses {
		ours, theirs := a.resource(Options{Address: cidr}), b.resource(Options{Address: cidr})
		l, err := ours.kernel.linkNamed("eth0")
		a.must(err)
		w, err := ours.makeWire(l)
		a.must(err)
		defer w.Close()
		stop := b.claimFrom("eth0", theirs)
		buffer := make([]byte, frameLength)
		eventually(t, time.Second, "the answer is read after the time for it", func() bool {
			got, err := w.receive(t.Context(), buffer, time.Unix(1, 0))
			c, ok := ours.discovery.read(got, ours.ip)
			return err == nil && ok && c.mac.String() == b.mac()
		})
		stop()
		for err == nil {
			_, err = w.receive(t.Context(), buffer, time.Unix(1, 0))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("silence: %v", err)
		}
	}
}
