package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Network is what the package needs of the world; tests put an in-memory one in
// its place. Addresses are "IP:port".
type Network interface {
	ListenPacket(address string) (net.PacketConn, error)
	Listen(address string) (net.Listener, error)
	// Dial connects from a local IP address; "" is any. It obeys ctx at once.
	Dial(ctx context.Context, from, address string) (net.Conn, error)
}

// realNetwork is TCP and UDP of this host.
type realNetwork struct{}

// keepAlive finds conns whose far end died without a word within half a minute, so that
// they and their readers do not pile up. Who needs to know sooner sets deadlines.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

func (realNetwork) ListenPacket(address string) (net.PacketConn, error) {
	lc := net.ListenConfig{Control: allowFragments}
	conn, err := lc.ListenPacket(context.Background(), "udp", address)
	if err != nil {
		return nil, err
	}
	return newUDPSocket(conn.(*net.UDPConn))
}

func (realNetwork) Listen(address string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive, Control: smallSegments} // accepted conns inherit it
	return lc.Listen(context.Background(), "tcp", address)
}

func (realNetwork) Dial(ctx context.Context, from, address string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: keepAlive, Control: smallSegments}
	if from != "" {
		ip, err := netip.ParseAddr(from)
		if err != nil {
			return nil, fmt.Errorf("dial from %q: %w", from, err)
		}
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 0))
	}
	return d.DialContext(ctx, "tcp", address)
}

// maxSegment makes each TCP segment fit 1280 bytes, with the headers of IPv6 and TCP: what
// every path carries (RFC 8200, section 5; the option RFC 9293, section 3.7.1). A path that
// silently drops larger ones would otherwise let a stream connect and then stand still.
const maxSegment = 1280 - 40 - 20

// smallSegments prepares a TCP socket, before it connects or listens.
func smallSegments(network, address string, raw syscall.RawConn) error {
	return errors.Join(setOption(raw, unix.IPPROTO_TCP, unix.TCP_MAXSEG, maxSegment), allowFragments(network, address, raw))
}

// allowFragments lets routers fragment what is still too large for a path of IPv4 below 1280
// bytes, and ignores what strangers claim about the path in ICMP. IPv6 has no such paths.
func allowFragments(network, _ string, raw syscall.RawConn) error {
	if strings.HasSuffix(network, "6") {
		return nil
	}
	return setOption(raw, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
}

func setOption(raw syscall.RawConn, level, option, value int) error {
	var failed error
	err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, value) })
	return errors.Join(err, os.NewSyscallError("setsockopt", failed))
}

// cannotBind tells whether a dial failed because of its local address: the address
// is gone, or cannot reach the other one.
func cannotBind(err error) bool {
	var mismatch *net.AddrError
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EINVAL) || errors.As(err, &mismatch)
}

// bindError explains a failed bind with its cure.
func bindError(node, address string, err error) error {
	cure := ""
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		cure = "this host does not have the address; bring its interface up, or correct the addresses of node " + node
	case errors.Is(err, syscall.EADDRINUSE):
		cure = "another process uses the port; stop it (another hamgr?), or change the cluster's port on all nodes"
	case errors.Is(err, syscall.EACCES):
		cure = "not permitted; use a port above 1023, or run as root"
	default:
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	return fmt.Errorf("listen on %s: %s: %w", address, cure, err)
}
