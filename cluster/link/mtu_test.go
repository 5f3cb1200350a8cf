package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespace is a network of its own, which ends with the test.
type namespace struct {
	t      *testing.T
	ns     netns.NsHandle
	handle *netlink.Handle
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces and must run as root")
	}
	n := &namespace{t: t}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.ns, err = netns.Get()
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatal("network namespace: ", err)
	}
	t.Cleanup(func() { n.ns.Close() })
	var err error
	if n.handle, err = netlink.NewHandleAt(n.ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.handle.Close)
	return n
}

func (n *namespace) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *namespace) named(name string) netlink.Link {
	n.t.Helper()
	l, err := n.handle.LinkByName(name)
	n.must(err)
	return l
}

// do runs f on a thread that is in the namespace: the sockets that it makes stay there.
func (n *namespace) do(f func()) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := netns.Set(n.ns)
		if err == nil {
			f()
		}
		done <- err
	}()
	n.must(<-done)
}

// wireFrames makes an interface send one segment in a frame, as on a wire: a bridge lets the
// kernel's larger ones through, whatever its MTU (linux/ethtool.h, ETHTOOL_STSO, ETHTOOL_SGSO).
func (n *namespace) wireFrames(nic string) {
	n.t.Helper()
	n.do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			n.t.Error(err)
			return
		}
		defer unix.Close(fd)
		for _, command := range []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO} {
			value := [2]uint32{command, 0}
			request := struct {
				name [unix.IFNAMSIZ]byte
				data unsafe.Pointer
				_    [16]byte
			}{data: unsafe.Pointer(&value)}
			copy(request.name[:], nic)
			if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); e != 0 {
				n.t.Errorf("one segment a frame on %s: %v", nic, e)
			}
		}
	})
}

// cable is one Ethernet between two hosts: two switches, joined by a trunk that may have a
// smaller MTU than the hosts know of. What does not fit is dropped there without a word.
type cable struct {
	middle *namespace
	trunk  [2]string
}

// limit sets the MTU of the trunk.
func (c cable) limit(mtu int) {
	c.middle.t.Helper()
	for _, end := range c.trunk {
		c.middle.must(c.middle.handle.LinkSetMTU(c.middle.named(end), mtu))
	}
}

// newCable joins two hosts by one more link; its addresses are 10.77.link.1 and .2.
func newCable(t *testing.T, middle *namespace, hosts [2]*namespace, number int) cable {
	t.Helper()
	m := middle.handle
	c := cable{middle: middle, trunk: [2]string{fmt.Sprintf("t%d-0", number), fmt.Sprintf("t%d-1", number)}}
	middle.must(m.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: c.trunk[0]}, PeerName: c.trunk[1]}))
	for i, h := range hosts {
		bridge, port, nic := fmt.Sprintf("br%d-%d", number, i), fmt.Sprintf("p%d-%d", number, i), fmt.Sprintf("eth%d", number)
		middle.must(m.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}))
		middle.must(m.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port}, PeerName: nic, PeerNamespace: netlink.NsFd(h.ns)}))
		for _, name := range []string{port, c.trunk[i]} {
			middle.must(m.LinkSetMaster(middle.named(name), middle.named(bridge)))
			middle.must(m.LinkSetUp(middle.named(name)))
		}
		middle.must(m.LinkSetUp(middle.named(bridge)))
		h.wireFrames(nic)
		address, err := netlink.ParseAddr(fmt.Sprintf("10.77.%d.%d/24", number, i+1))
		h.must(err)
		h.must(h.handle.AddrAdd(h.named(nic), address))
		h.must(h.handle.LinkSetUp(h.named(nic)))
	}
	return c
}

// inNamespace is the real network of one namespace.
type inNamespace struct {
	*namespace
	plain bool // with the kernel's own segment sizes
}

func (n inNamespace) ListenPacket(address string) (c net.PacketConn, err error) {
	n.do(func() { c, err = realNetwork{}.ListenPacket(address) })
	return c, err
}

func (n inNamespace) Listen(address string) (l net.Listener, err error) {
	n.do(func() {
		if n.plain {
			l, err = net.Listen("tcp", address)
			return
		}
		l, err = realNetwork{}.Listen(address)
	})
	return l, err
}

func (n inNamespace) Dial(ctx context.Context, from, address string) (c net.Conn, err error) {
	n.do(func() {
		if n.plain {
			c, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
			return
		}
		c, err = realNetwork{}.Dial(ctx, from, address)
	})
	return c, err
}

// wired is two nodes in namespaces, joined by cables.
type wired struct {
	alpha, beta *Link
	cables      []cable
}

// wireUp starts two nodes; the MTU on the way is set before.
func wireUp(t *testing.T, links, mtu int, plain bool) wired {
	t.Helper()
	middle := newNamespace(t)
	middle.do(func() { // where the kernel has it: it would fragment, as a router does
		err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("0"), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	hosts := [2]*namespace{newNamespace(t), newNamespace(t)}
	nodes := []Node{{Name: "alpha"}, {Name: "beta"}}
	var w wired
	for i := range links {
		c := newCable(t, middle, hosts, i)
		c.limit(mtu)
		w.cables = append(w.cables, c)
		for j := range nodes {
			nodes[j].Addresses = append(nodes[j].Addresses, fmt.Sprintf("10.77.%d.%d:7846", i, j+1))
		}
	}
	network := func(i int) func(*Config) {
		return func(c *Config) { c.Network = inNamespace{hosts[i], plain} }
	}
	w.alpha, w.beta = start(t, nodes, "alpha", network(0)), start(t, nodes, "beta", network(1))
	swallow(t, w.beta.Listener(Raft))
	return w
}

const megabyte = 1 << 20

// swallow answers each megabyte with one byte.
func swallow(t *testing.T, n net.Listener) {
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
				for {
					if _, err := io.CopyN(io.Discard, c, megabyte); err != nil {
						return
					}
					if _, err := c.Write([]byte{1}); err != nil {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { n.Close(); <-done })
}

// carry sends a megabyte and waits for its answer.
func carry(c net.Conn, limit time.Duration) error {
	c.SetDeadline(time.Now().Add(limit))
	if _, err := c.Write(make([]byte, megabyte)); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// TestWrongMTU: the hosts believe in 1500 bytes, the switch drops what is larger than 1300
// without a word. Large streams and packets come through nevertheless.
func TestWrongMTU(t *testing.T) {
	w := wireUp(t, 1, 1300, false)
	c, err := w.alpha.Dial(within(t), "beta", Raft)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := carry(c, 30*time.Second); err != nil {
		t.Errorf("a megabyte: %v", err)
	}
	exchange(t, w.alpha, w.beta, strings.Repeat("x", MaxPayload))
	exchange(t, w.beta, w.alpha, strings.Repeat("x", MaxPayload))
}

// TestWrongMTUMatters: with the kernel's own segment sizes, a stream over the same path
// stands still. Else the test above would prove nothing.
func TestWrongMTUMatters(t *testing.T) {
	w := wireUp(t, 1, 1300, true)
	w.cables[0].limit(1500) // for the handshake
	c, err := w.alpha.Dial(within(t), "beta", Raft)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w.cables[0].limit(1300)
	if err := carry(c, time.Second); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a megabyte in large segments: %v; want it to stand still", err)
	}
}

// TestStreamLeavesAPathThatSwallowsIt: one of two links begins to lose all but small packets.
// The stream on it ends soon, and the next one takes the other link.
func TestStreamLeavesAPathThatSwallowsIt(t *testing.T) {
	w := wireUp(t, 2, 1500, false)
	eventually(t, "both links work", func() bool {
		p := w.alpha.peers["beta"]
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.paths[0].trouble(p, time.Now()) == 0 && p.paths[1].trouble(p, time.Now()) == 0
	})
	c, err := w.alpha.Dial(within(t), "beta", Raft)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := carry(c, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	on := int(c.(*conn).via.index)
	w.cables[on].limit(600)
	began := time.Now()
	err = carry(c, time.Minute)
	took := time.Since(began)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a megabyte over a path of 600 bytes: %v", err)
	}
	t.Logf("given up after %s", took)
	if took > 5*w.alpha.patience { // half of it on an idle machine
		t.Errorf("the stream stood still for %s", took)
	}
	for range 2 {
		again, err := w.alpha.Dial(within(t), "beta", Raft)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		if via := int(again.(*conn).via.index); via == on {
			t.Error("the next stream takes the same link")
		}
		if err := carry(again, 30*time.Second); err != nil {
			t.Errorf("over the other link: %v", err)
		}
	}
}
