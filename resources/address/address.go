// Package address is the resource kind of one IPv4 or IPv6 service address.
//
// What is on which interface is asked from the kernel by rtnetlink each time; nothing is remembered between
// two calls, and no process is started. Before the address is taken the network is asked whether another host
// answers for it (RFC 5227, RFC 4862); a host that does is named and nothing is taken. Afterwards the neighbours
// are told at once, and again for a while, so that their tables follow the address and not the other way round.
//
// A background keeper exists from Start to Stop. It repeats the announcements, answers a host that claims the
// address later, and notices when the kernel takes the address, the link or its carrier away.
//
// Requests to the kernel may hang (the lock of its network configuration is held by a driver). They run beside
// the caller, who is let go when its context ends.
package address

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// What on_link_down may be.
const (
	linkDownFails  = "fail"
	linkDownIgnore = "ignore"
)

// Defaults of the keys, and the bounds within which they make sense.
const (
	defaultDuplicateTimeout = 100 * time.Millisecond
	defaultAnnounce         = 5 * time.Second
	minDuplicateTimeout     = 10 * time.Millisecond
	maxDuplicateTimeout     = 10 * time.Second
	maxAnnounce             = 10 * time.Minute
)

// Kind is the registry's entry.
func Kind() resources.Kind {
	return resources.Kind{
		Name: "address",
		Doc:  "an IPv4 or IPv6 service address on a network interface",
		Options: func() resources.Options {
			return &Options{DuplicateTimeout: defaultDuplicateTimeout, Announce: defaultAnnounce, OnLinkDown: linkDownFails}
		},
		Example: `[[group.resource]]
name = "ip"
kind = "address"
address = "10.0.0.100/24"
`,
	}
}

// Options are the keys of an address in hamgr.toml.
type Options struct {
	Address          string        `toml:"address" doc:"the address with the prefix length of its network, as in 10.0.0.100/24 or fd00::100/64"`
	Interface        string        `toml:"interface" doc:"network interface that gets it; default: the one that has another address in a network around it"`
	DuplicateTimeout time.Duration `toml:"duplicate_timeout" doc:"how long other hosts are given to answer for the address before it is taken, 10ms to 10s; default 100ms"`
	Announce         time.Duration `toml:"announce" doc:"how long the new place is told to the neighbours, once a second, after the first time; 0s to 10m; default 5s"`
	OnLinkDown       string        `toml:"on_link_down" doc:"fail: the address has failed while its link has no carrier; ignore: carrier does not matter; default fail"`
}

// Validate implements resources.Options.
func (o *Options) Validate() error {
	var errs []error
	wrong := func(key, cure, format string, args ...any) {
		errs = append(errs, &resources.KeyError{Key: key, Msg: fmt.Sprintf(format, args...), Cure: cure})
	}
	if msg, cure := wrongAddress(o.Address); msg != "" {
		wrong("address", cure, "%s", msg)
	} else if p := netip.MustParsePrefix(o.Address); p.Addr().IsLinkLocalUnicast() && o.Interface == "" {
		wrong("interface", `write the interface, as in interface = "eth0"`, "%s is link-local and fits every interface", p.Addr())
	}
	if len(o.Interface) >= unix.IFNAMSIZ || o.Interface == "." || o.Interface == ".." || !isName(o.Interface) {
		wrong("interface", "", "%q is no name of an interface", o.Interface)
	}
	if o.DuplicateTimeout < minDuplicateTimeout || o.DuplicateTimeout > maxDuplicateTimeout {
		wrong("duplicate_timeout", fmt.Sprintf("write %s to %s", minDuplicateTimeout, maxDuplicateTimeout), "%s is out of range", o.DuplicateTimeout)
	}
	if o.Announce < 0 || o.Announce > maxAnnounce {
		wrong("announce", fmt.Sprintf("write 0s to %s", maxAnnounce), "%s is out of range", o.Announce)
	}
	if o.OnLinkDown != linkDownFails && o.OnLinkDown != linkDownIgnore {
		wrong("on_link_down", `write "fail" or "ignore"`, "%q is not known", o.OnLinkDown)
	}
	return errors.Join(errs...)
}

// Exclusive implements resources.Options: one host answers for an address. A link-local one is another one on each link.
func (o *Options) Exclusive() (key, what string) {
	p, err := netip.ParsePrefix(o.Address)
	if err != nil {
		return "address", ""
	}
	ip := p.Addr()
	if ip.IsLinkLocalUnicast() {
		ip = ip.WithZone(o.Interface)
	}
	return "address", ip.String()
}

// wrongAddress says what is wrong with the key address, and what to write.
func wrongAddress(s string) (msg, cure string) {
	if s == "" {
		return "no address", `write it with its prefix length, as in "10.0.0.100/24"`
	}
	if before, zone, ok := strings.Cut(s, "%"); ok {
		zone, bits, _ := strings.Cut(zone, "/")
		return fmt.Sprintf("%q names an interface", s), fmt.Sprintf("write \"%s/%s\" here, and interface = %q", before, cmp.Or(bits, "64"), zone)
	}
	if ip, err := netip.ParseAddr(s); err == nil {
		bits, alone := 24, 32
		if ip.Is6() {
			bits, alone = 64, 128
		}
		return fmt.Sprintf("%q has no prefix length", s),
			fmt.Sprintf("write that of its network, as in \"%s/%d\", or \"%s/%d\" if it has none", ip, bits, ip, alone)
	}
	p, err := netip.ParsePrefix(s)
	ip := p.Addr()
	switch {
	case err != nil:
		return fmt.Sprintf("%q is no address with a prefix length", s), `write it as in "10.0.0.100/24" or "fd00::100/64"`
	case ip.Is4In6():
		return fmt.Sprintf("%q is an IPv4 address in IPv6 clothes", s), fmt.Sprintf("write %q", ip.Unmap())
	case ip.IsUnspecified() || ip.IsMulticast() || ip.IsLoopback() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Sprintf("%s cannot belong to one host", ip), ""
	case p.Bits() == 0:
		return "the prefix length 0 means every address there is", "write that of its network"
	case ip.Is4() && p.Bits() < 31 && ip == p.Masked().Addr():
		return fmt.Sprintf("%s is the network %s itself", ip, p), "write the address of a host in it"
	case ip.Is4() && p.Bits() < 31 && ip == broadcastOf(p):
		return fmt.Sprintf("%s is the broadcast address of %s", ip, p.Masked()), "write the address of a host in it"
	}
	return "", ""
}

// isName reports whether the kernel could know an interface by it (dev_valid_name of net/core/dev.c).
func isName(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c == '/' || c == ':' || c == 0x7f {
			return false
		}
	}
	return true
}

// broadcastOf gives the last address of an IPv4 network.
func broadcastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

// New implements resources.Options.
func (o *Options) New(env resources.Env) (resources.Resource, error) {
	p, err := netip.ParsePrefix(o.Address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", o.Address, err)
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	a := &address{opts: *o, ip: p.Addr(), bits: p.Bits(), env: env, kernel: kernel{socket: unix.Socket}, changing: make(chan struct{}, 1)}
	a.discovery = arp{}
	if a.ip.Is6() {
		a.discovery = neighbours{}
	}
	return a, nil
}

var (
	_ resources.Resource = (*address)(nil)
	_ resources.Watcher  = (*address)(nil)
	_ resources.Checker  = (*address)(nil)
)

type address struct {
	opts      Options
	ip        netip.Addr
	bits      int
	env       resources.Env
	kernel    kernel
	discovery discovery
	// changing holds one entry while a request that changes the kernel's addresses is under way, even if
	// nobody waits for it any more.
	changing chan struct{}
	conflict atomic.Pointer[conflict] // the last one seen since the start; nil if there was none

	mu     sync.Mutex
	keeper *keeper // from Start to Stop
}

func (a *address) String() string { return fmt.Sprintf("%s/%d", a.ip, a.bits) }

func (a *address) family() uint8 {
	if a.ip.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}
