package address

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// The tests need networks of their own: the test binary runs itself again in a network namespace, and each host of a
// test is one more. They end with the process.
const namespaceVariable = "ADDRESS_TEST_NAMESPACE"

func TestMain(m *testing.M) {
	if os.Getenv(namespaceVariable) != "" {
		goleak.VerifyTestMain(m)
		return
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests make network namespaces and must run as root")
		os.Exit(1)
	}
	runtime.LockOSThread() // Pdeathsig is about this thread
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), namespaceVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "run in a namespace:", err)
		os.Exit(1)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// Each network has the addresses 10.0.0.0/24 and fd00::/64; host N of it is .N and ::N.
var serviceAddresses = []string{"10.0.0.100/24", "fd00::100/64"}

// network is a switch (a bridge in a namespace of its own) and the hosts at it.
type network struct {
	t    *testing.T
	name string
	*host
}

// host is a network namespace with the interface eth0 at the switch.
type host struct {
	t      *testing.T
	name   string
	using  sync.RWMutex // what is asked of the kernel may outlive the one who asked, and so the test
	ns     netns.NsHandle
	handle *netlink.Handle
	number int
	log    *log
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{t: t, name: "switch", host: newHost(t, "switch")}
	n.must(n.handle.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "sw"}}))
	n.up("sw")
	return n
}

func newHost(t *testing.T, name string) *host {
	t.Helper()
	h := &host{t: t, name: name, log: &log{}}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		done <- func() error {
			err := unix.Unshare(unix.CLONE_NEWNET)
			if err != nil {
				return err
			}
			for file, value := range map[string]string{"accept_dad": "0", "accept_ra": "0"} {
				if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/"+file, []byte(value), 0); err != nil {
					return err
				}
			}
			h.ns, err = netns.Get()
			return err
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal("network namespace: ", err)
	}
	t.Cleanup(func() {
		h.using.Lock()
		defer h.using.Unlock()
		h.ns.Close()
	})
	var err error
	if h.handle, err = netlink.NewHandleAt(h.ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.handle.Close)
	h.up("lo")
	return h
}

// join gives the network a host. Without a number it has no address.
func (n *network) join(name string, number int) *host {
	n.t.Helper()
	h := newHost(n.t, name)
	h.number = number
	h.plug(n, "eth0")
	if number > 0 {
		h.give("eth0", fmt.Sprintf("10.0.0.%d/24", number))
		h.give("eth0", fmt.Sprintf("fd00::%d/64", number))
	}
	return h
}

// plug joins one more interface of the host to the network.
func (h *host) plug(n *network, name string) {
	h.t.Helper()
	port := port(h, name)
	n.must(n.handle.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port}, PeerName: name, PeerNamespace: netlink.NsFd(h.ns)}))
	l, err := n.handle.LinkByName(port)
	n.must(err)
	sw, err := n.handle.LinkByName("sw")
	n.must(err)
	n.must(n.handle.LinkSetMaster(l, sw))
	n.up(port)
	h.up(name)
}

func port(h *host, name string) string { return h.name + "-" + name }

// cable pulls the cable of a host out of the switch, or puts it back.
func (n *network) cable(h *host, in bool) {
	n.t.Helper()
	if in {
		n.up(port(h, "eth0"))
	} else {
		n.down(port(h, "eth0"))
	}
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("%s: %v", h.name, err)
	}
}

func (h *host) link(name string) netlink.Link {
	h.t.Helper()
	l, err := h.handle.LinkByName(name)
	h.must(err)
	return l
}

func (h *host) up(name string)   { h.t.Helper(); h.must(h.handle.LinkSetUp(h.link(name))) }
func (h *host) down(name string) { h.t.Helper(); h.must(h.handle.LinkSetDown(h.link(name))) }
func (h *host) mac() string      { h.t.Helper(); return h.link("eth0").Attrs().HardwareAddr.String() }

// give adds an address by other hands than ours, ready to be used.
func (h *host) give(name, cidr string) {
	h.t.Helper()
	addr, err := netlink.ParseAddr(cidr)
	h.must(err)
	if addr.IP.To4() == nil {
		addr.Flags = unix.IFA_F_NODAD
	}
	l := h.link(name)
	h.must(h.handle.AddrAdd(l, addr))
	if l.Attrs().OperState == netlink.OperUp {
		eventually(h.t, 5*time.Second, "the kernel answers for "+cidr, func() bool {
			ip, _ := netip.AddrFromSlice(addr.IP)
			ok, err := kernel{socket: h.socket}.delivers(l.Attrs().Index, ip.Unmap())
			return ok && err == nil
		})
	}
}

func (h *host) take(name, cidr string) {
	h.t.Helper()
	addr, err := netlink.ParseAddr(cidr)
	h.must(err)
	h.must(h.handle.AddrDel(h.link(name), addr))
}

// has lists the interfaces that have an address.
func (h *host) has(ip netip.Addr) (names []string) {
	h.t.Helper()
	all, err := h.handle.AddrList(nil, netlink.FAMILY_ALL)
	h.must(err)
	for _, a := range all {
		if a.IP.Equal(net.IP(ip.AsSlice())) {
			l, err := h.handle.LinkByIndex(a.LinkIndex)
			h.must(err)
			names = append(names, l.Attrs().Name)
		}
	}
	return names
}

// neighbour gives the MAC that the host knows of an address; empty if none.
func (h *host) neighbour(ip netip.Addr) string {
	h.t.Helper()
	all, err := h.handle.NeighList(h.link("eth0").Attrs().Index, netlink.FAMILY_ALL)
	h.must(err)
	for _, n := range all {
		if n.IP.Equal(net.IP(ip.AsSlice())) {
			return n.HardwareAddr.String()
		}
	}
	return ""
}

// in runs a function in the host's namespace.
func (h *host) in(f func()) {
	runtime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		panic(err)
	}
	defer own.Close()
	if err := netns.Set(h.ns); err != nil {
		panic(err)
	}
	defer func() {
		if err := netns.Set(own); err != nil {
			panic(err)
		}
		runtime.UnlockOSThread()
	}()
	f()
}

func (h *host) socket(domain, typ, proto int) (fd int, err error) {
	h.using.RLock()
	defer h.using.RUnlock()
	if !h.ns.IsOpen() {
		return -1, fmt.Errorf("host %s: %w", h.name, os.ErrClosed)
	}
	h.in(func() { fd, err = unix.Socket(domain, typ, proto) })
	return fd, err
}

// sysctl sets a value of the host, such as ipv6/conf/eth0/accept_dad.
func (h *host) sysctl(name, value string) {
	h.t.Helper()
	h.in(func() { h.must(os.WriteFile("/proc/sys/net/"+name, []byte(value), 0)) })
}

// resource makes the address for a host, and removes it in the end.
func (h *host) resource(o Options) *address {
	h.t.Helper()
	def := Kind().Options().(*Options)
	if o.DuplicateTimeout == 0 {
		o.DuplicateTimeout = def.DuplicateTimeout
	}
	if o.OnLinkDown == "" {
		o.OnLinkDown = def.OnLinkDown
	}
	if o.Announce == 0 {
		o.Announce = def.Announce
	}
	h.must(o.Validate())
	r, err := o.New(resources.Env{Group: "db", Resource: "ip", Node: h.name, Token: 7, Log: slog.New(slog.NewTextHandler(h.log, nil))})
	h.must(err)
	a := r.(*address)
	a.kernel.socket = h.socket
	h.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := a.Stop(ctx); err != nil {
			h.t.Errorf("clean up: %v", err)
		}
	})
	return a
}

func mustStart(t *testing.T, a *address) {
	t.Helper()
	if err := a.Start(deadline(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	wantState(t, a, resources.Active, "on eth0")
}

func mustStop(t *testing.T, a *address) {
	t.Helper()
	k := a.keeper
	if err := a.Stop(deadline(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if a.keeper != nil || k != nil && k.reason == nil {
		t.Error("the keeper outlived the stop")
	}
	wantState(t, a, resources.Inactive, "")
}

func wantState(t *testing.T, a *address, want resources.State, words string) {
	t.Helper()
	got, detail, err := a.Probe(deadline(t, 5*time.Second))
	if err != nil || got != want || !strings.Contains(detail, words) {
		t.Errorf("probe of %s: %v %q %v, want %v with %q", a, got, detail, err, want, words)
	}
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls a condition.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}
