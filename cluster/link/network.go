package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
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
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		return nil, err
	}
	return newUDPSocket(conn.(*net.UDPConn))
}

func (realNetwork) Listen(address string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	return lc.Listen(context.Background(), "tcp", address)
}

func (realNetwork) Dial(ctx context.Context, from, address string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: keepAlive}
	if from != "" {
		ip, err := netip.ParseAddr(from)
		if err != nil {
			return nil, fmt.Errorf("dial from %q: %w", from, err)
		}
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 0))
	}
	return d.DialContext(ctx, "tcp", address)
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
