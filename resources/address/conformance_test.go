package address

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/resourcetest"
)

// TestConformance: a host at a switch, whose kernel is asked by other code than the resource's.
func TestConformance(t *testing.T) {
	for _, cidr := range serviceAddresses {
		t.Run(cidr, func(t *testing.T) {
			resourcetest.Run(t, resourcetest.Subject{Kind: Kind(), Host: func(tb testing.TB) *resourcetest.Host {
				return conformanceHost(tb.(*testing.T), cidr)
			}})
		})
	}
}

// gate stands before the host's kernel, which gives no sockets while it is closed or broken.
type gate struct {
	mu     sync.Mutex
	closed chan struct{}
	fails  func(domain, proto int) error
}

func (g *gate) pass(domain, proto int) error {
	g.mu.Lock()
	closed, fails := g.closed, g.fails
	g.mu.Unlock()
	if closed != nil {
		<-closed
	}
	if fails != nil {
		return fails(domain, proto)
	}
	return nil
}

func (g *gate) hangs() resourcetest.Fault {
	return resourcetest.Fault{
		Begin: func() { g.mu.Lock(); defer g.mu.Unlock(); g.closed = make(chan struct{}) },
		End:   func() { g.mu.Lock(); defer g.mu.Unlock(); close(g.closed); g.closed = nil },
	}
}

func (g *gate) refuses(fails func(domain, proto int) error) resourcetest.Fault {
	set := func(fails func(domain, proto int) error) func() {
		return func() { g.mu.Lock(); defer g.mu.Unlock(); g.fails = fails }
	}
	return resourcetest.Fault{Begin: set(fails), End: set(nil)}
}

// always gives the same error.
func always(err error) func(int, int) error { return func(int, int) error { return err } }

// routeless is a kernel that tells nothing of links and addresses.
func routeless(domain, proto int) error {
	if domain == unix.AF_NETLINK && proto == unix.NETLINK_ROUTE {
		return unix.EPERM
	}
	return nil
}

func conformanceHost(t *testing.T, cidr string) *resourcetest.Host {
	n := newNetwork(t)
	a, other := n.join("a", 1), n.join("other", 2)
	prefix := netip.MustParsePrefix(cidr)
	var g gate
	var made []*address
	t.Cleanup(func() { // what the end of a process does to the keepers of all its daemons
		for _, r := range made {
			r.endKeeper(errors.New("the daemon ends"))
		}
	})
	cable := func(in bool) func() {
		return func() {
			n.cable(a, in)
			eventually(t, 5*time.Second, "the carrier follows the cable", func() bool {
				return (a.link("eth0").Attrs().OperState == netlink.OperUp) == in
			})
		}
	}
	return &resourcetest.Host{
		New: func(env resources.Env) (resources.Resource, error) {
			o := Kind().Options().(*Options)
			o.Address, o.DuplicateTimeout = cidr, minDuplicateTimeout
			r, err := o.New(env)
			if err == nil {
				made = append(made, r.(*address))
				r.(*address).kernel.socket = func(domain, typ, proto int) (int, error) {
					if err := g.pass(domain, proto); err != nil {
						return -1, err
					}
					return a.socket(domain, typ, proto)
				}
			}
			return r, err
		},
		Active: func() []string { return a.holds(prefix.Addr()) },
		Picture: func() string {
			addresses, err := a.handle.AddrList(nil, netlink.FAMILY_ALL)
			a.must(err)
			routes, err := a.handle.RouteList(nil, netlink.FAMILY_ALL)
			a.must(err)
			return fmt.Sprint(addresses, len(routes), other.neighbour(prefix.Addr()))
		},
		Kill: func() { a.take("eth0", cidr) },
		Troubles: map[string]resourcetest.Trouble{
			"no carrier": {Fault: resourcetest.Fault{Begin: cable(false), End: cable(true)}, Is: resources.ErrNode},
			"another host has it": {Fault: resourcetest.Fault{
				Begin: func() { other.give("eth0", cidr) }, End: func() { other.take("eth0", cidr) },
			}, Is: resources.ErrElsewhere, Late: true},
		},
		Hangs: map[string]resourcetest.Hang{"kernel": {Fault: g.hangs()}},
		Blind: map[string]resourcetest.Fault{
			"no memory": g.refuses(always(unix.ENOBUFS)), "nonsense": g.refuses(always(errors.New("nonsense"))), "addresses are not told": g.refuses(routeless),
		},
		Stuck:    map[string]resourcetest.Fault{"no permission": g.refuses(always(unix.EPERM)), "addresses are not told": g.refuses(routeless)},
		Patience: 10 * time.Second, Operations: 40,
	}
}

// holds names the address on each interface, with the time at which it was put there: struct ifa_cacheinfo of
// linux/if_addr.h, in hundredths of a second.
func (h *host) holds(ip netip.Addr) (names []string) {
	h.t.Helper()
	var answers [][]byte
	var err error
	h.in(func() {
		ask := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
		ask.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		answers, err = ask.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
	})
	h.must(err)
	for _, b := range answers {
		m := nl.DeserializeIfAddrmsg(b)
		attributes, err := nl.ParseRouteAttr(b[m.Len():])
		h.must(err)
		is, created := false, uint32(0)
		for _, at := range attributes {
			switch at.Attr.Type {
			case unix.IFA_ADDRESS, unix.IFA_LOCAL:
				is = is || bytes.Equal(at.Value, ip.AsSlice())
			case unix.IFA_CACHEINFO:
				created = binary.NativeEndian.Uint32(at.Value[8:])
			}
		}
		if is {
			names = append(names, fmt.Sprintf("%s/%d on interface %d since %d", ip, m.Prefixlen, m.Index, created))
		}
	}
	return names
}
