package address

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
)

func watched(t *testing.T, a *address) <-chan error {
	died := make(chan error, 1)
	go func() { died <- a.Died(t.Context()) }()
	return died
}

// Without a link, or without its carrier, the address is not healthy (B28), and this is noticed without a monitor.
func TestLinkDown(t *testing.T) {
	t.Parallel()
	for _, cidr := range serviceAddresses {
		for _, test := range []struct {
			what, words string
			down, up    func(n *network, h *host)
		}{
			{"cable", "eth0 has no carrier", func(n *network, h *host) { n.cable(h, false) }, func(n *network, h *host) { n.cable(h, true) }},
			{"interface", "eth0 is down", func(_ *network, h *host) { h.down("eth0") }, func(_ *network, h *host) { h.up("eth0") }},
		} {
			t.Run(cidr+" "+test.what, func(t *testing.T) {
				n := newNetwork(t)
				a := n.join("a", 1)
				n.join("b", 2)
				service := a.resource(Options{Address: cidr, Interface: "eth0"})
				mustStart(t, service)
				died := watched(t, service)
				test.down(n, a)
				if service.ip.Is6() && test.what == "interface" {
					// The kernel takes IPv6 addresses away with the interface.
					wantDeath(t, died, errAny, "")
					wantState(t, service, resources.Inactive, "")
				} else {
					wantDeath(t, died, resources.ErrNode, test.words)
					wantState(t, service, resources.Failed, test.words)
				}
				if err := wantError(service.Start(deadline(t, time.Second)), resources.ErrNode, test.words); err != nil {
					t.Error(err)
				}
				if err := wantError(service.Check(t.Context()), resources.ErrNode, test.words); err != nil {
					t.Error(err)
				}
				mustStop(t, service)
				if err := wantError(service.Start(deadline(t, time.Second)), resources.ErrNode, test.words); err != nil {
					t.Error(err)
				}
				wantState(t, service, resources.Inactive, "")
				test.up(n, a)
				mustStart(t, service)
			})
		}
	}
}

// Where the carrier does not matter the address stays, and is announced when the carrier is back.
func TestLinkDownIgnored(t *testing.T) {
	for _, cidr := range serviceAddresses {
		t.Run(cidr, func(t *testing.T) {
			n := newNetwork(t)
			a, client := n.join("a", 1), n.join("client", 9)
			service := a.resource(Options{Address: cidr, OnLinkDown: linkDownIgnore, Announce: time.Millisecond})
			heard := client.hear(service, a)
			n.cable(a, false)
			mustStart(t, service)
			died := watched(t, service)
			perTime := len(service.discovery.announcement(link{mac: make([]byte, 6)}, service.ip))
			for range 2 {
				before := heard()
				n.cable(a, true)
				eventually(t, 3*time.Second, "announced with the carrier", func() bool { return heard() >= before+perTime })
				n.cable(a, false)
				eventually(t, 3*time.Second, "the kernel tells that the carrier is away", func() bool {
					l, err := service.kernel.linkNamed("eth0")
					return err == nil && !l.carrier()
				})
				wantState(t, service, resources.Active, "on eth0")
			}
			select {
			case err := <-died:
				t.Error("died: ", err)
			default:
			}
			a.down("eth0")
			if err := <-died; err == nil {
				t.Error("no reason")
			}
		})
	}
}

// The carrier went and came so fast that only its counter shows it.
func TestShortLossOfCarrier(t *testing.T) {
	n := newNetwork(t)
	a, client := n.join("a", 1), n.join("client", 9)
	service := a.resource(Options{Address: "10.0.0.100/24", Announce: time.Millisecond})
	heard := client.hear(service, a)
	mustStart(t, service)
	eventually(t, time.Second, "announced", func() bool { return heard() == 2 })
	n.cable(a, false)
	n.cable(a, true)
	eventually(t, 3*time.Second, "announced again, or dead", func() bool {
		select {
		case <-service.keeper.ended: // the kernel told it in between
			return true
		default:
			return heard() >= 4
		}
	})
}

// Whatever takes the address away is noticed at once, and found by a monitor.
func TestTakenAway(t *testing.T) {
	t.Parallel()
	for _, cidr := range serviceAddresses {
		n := newNetwork(t)
		for name, test := range map[string]struct {
			act   func(h *host)
			words string
			state resources.State
		}{
			"removed":          {func(h *host) { h.take("eth0", cidr) }, "taken away", resources.Inactive},
			"moved":            {func(h *host) { h.take("eth0", cidr); h.give("lo", cidr) }, "", resources.Failed},
			"doubled":          {func(h *host) { h.give("lo", cidr) }, "on lo of this host, not on eth0", resources.Failed},
			"interface gone":   {func(h *host) { h.must(h.handle.LinkDel(h.link("eth0"))) }, "", resources.Inactive},
			"renamed and down": {func(h *host) { h.down("eth0"); h.must(h.handle.LinkSetName(h.link("eth0"), "old0")) }, "", resources.Unknown},
		} {
			t.Run(cidr+" "+name, func(t *testing.T) {
				a := n.join(name[:3], 1)
				n.cable(a, true)
				service := a.resource(Options{Address: cidr, Interface: "eth0"})
				mustStart(t, service)
				died := watched(t, service)
				start := time.Now()
				test.act(a)
				wantDeath(t, died, errAny, test.words)
				if took := time.Since(start); took > soon {
					t.Errorf("noticed after %s", took)
				}
				if test.state != resources.Unknown {
					wantState(t, service, test.state, "")
				}
				mustStop(t, service)
				if a.has(service.ip) != nil {
					t.Error("stopped, and still on", a.has(service.ip))
				}
				if err := a.handle.LinkSetDown(a.link("lo")); err != nil {
					t.Error(err)
				}
				if l, err := n.handle.LinkByName(port(a, "eth0")); err == nil {
					n.must(n.handle.LinkDel(l))
				}
			})
		}
	}
}

// A new daemon finds the address, and starts it without moving it.
func TestDaemonRestart(t *testing.T) {
	for _, cidr := range serviceAddresses {
		t.Run(cidr, func(t *testing.T) {
			n := newNetwork(t)
			a, client := n.join("a", 1), n.join("client", 9)
			first := a.resource(Options{Address: cidr})
			a.echo(first.ip)
			mustStart(t, first)
			p := client.ping(first.ip)
			eventually(t, time.Second, "the first answer", func() bool { return p.last().from == "a" })
			events, err := first.kernel.events()
			a.must(err)
			defer events.Close()
			first.endKeeper(errors.New("the daemon ends")) // what the end of a process does to it

			second := a.resource(Options{Address: cidr})
			wantState(t, second, resources.Active, "on eth0")
			died := watched(t, second)
			mustStart(t, second)
			mustStart(t, second)
			// Not for an instant was it away.
			a.must(events.SetReadDeadline(time.Now().Add(20 * time.Millisecond)))
			if b, err := io.ReadAll(events); concerns(b, second.ip, -1) || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the kernel changed the address: %x %v", b, err)
			}
			eventually(t, soon, "an answer after the restart", func() bool { return time.Since(p.last().at) < 4*pingPause })
			if err := second.Died(deadline(t, 20*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("died: %v", err)
			}
			mustStop(t, second)
			wantDeath(t, died, nil, "")
		})
	}
}

// What was there before us is found, told, and handled like ours once it is.
func TestFound(t *testing.T) {
	t.Parallel()
	for _, cidr := range serviceAddresses {
		n := newNetwork(t)
		a := n.join("a", 1)
		service := a.resource(Options{Address: cidr})
		a.give("eth0", cidr)
		wantState(t, service, resources.Active, "not put there by hamgr")
		if err := wantError(service.Check(t.Context()), resources.ErrSetup, "ip addr del "+cidr+" dev eth0"); err != nil {
			t.Error(err)
		}
		mustStart(t, service)
		mustStop(t, service)

		narrow := cidr[:len(cidr)-2] + "30"
		a.give("eth0", narrow)
		wantState(t, service, resources.Failed, "prefix length 30")
		if err := wantError(service.Start(deadline(t, time.Second)), nil, "prefix length 30"); err != nil {
			t.Error(err)
		}
		mustStop(t, service)
	}
}

// Only the newest state of the link counts for one who was busy meanwhile.
func TestNewestLink(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	a := n.join("a", 1)
	service := a.resource(Options{Address: "10.0.0.100/24", OnLinkDown: linkDownIgnore})
	a.give("eth0", "10.0.0.100/24")
	events, err := service.kernel.events()
	a.must(err)
	at, err := service.kernel.linkNamed("eth0")
	a.must(err)
	changed, done := make(chan link, 1), make(chan error, 1)
	go func() { done <- service.watch(t.Context(), events, at, changed) }()
	n.cable(a, false)
	eventually(t, 3*time.Second, "told that the carrier is away", func() bool { return len(changed) == 1 })
	n.cable(a, true)
	time.Sleep(1500 * time.Millisecond) // the kernel tells at most once a second; nobody reads meanwhile
	if got := <-changed; !got.carrier() {
		t.Error("the link of before is told")
	}
	events.Close()
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("watch: %v", err)
	}
}
