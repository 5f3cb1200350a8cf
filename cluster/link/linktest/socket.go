package linktest

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// socketQueue is how many packets one socket holds for its reader; more are lost.
const socketQueue = 1024

// socket is one UDP socket.
type socket struct {
	network *Network
	at      nic
	boot    int
	address netip.AddrPort
	queue   []datagram
	closed  bool
	read    deadline
	changed waiters
}

type datagram struct {
	from netip.AddrPort
	data []byte
}

var _ net.PacketConn = (*socket)(nil)

// own checks that an address can be bound on this host now.
func (h *host) own(address string) (netip.AddrPort, nic, error) {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return ap, nic{}, err
	}
	at, ok := h.network.owners[ap.Addr()]
	switch {
	case h.down:
		return ap, nic{}, fmt.Errorf("%s: %w", address, syscall.ENETDOWN)
	case !ok || at.host != h:
		return ap, nic{}, fmt.Errorf("%s: %w", address, syscall.EADDRNOTAVAIL)
	}
	return ap, at, nil
}

// ListenPacket opens a UDP socket.
func (h *host) ListenPacket(address string) (net.PacketConn, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	ap, at, err := h.own(address)
	if err != nil {
		return nil, err
	}
	if h.sockets[ap] != nil {
		return nil, fmt.Errorf("%s: %w", address, syscall.EADDRINUSE)
	}
	s := &socket{network: n, at: at, boot: h.boots, address: ap}
	h.sockets[ap] = s
	return s, nil
}

// WriteTo sends one packet; that it gets lost is no error.
func (s *socket) WriteTo(b []byte, to net.Addr) (int, error) {
	n := s.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.closed {
		return 0, net.ErrClosed
	}
	target, err := netip.ParseAddrPort(to.String())
	if err != nil {
		return 0, err
	}
	dst, ok := n.owners[target.Addr()]
	if !ok || s.boot != s.at.host.boots || n.chance(n.loss) {
		return len(b), nil
	}
	d := datagram{s.address, bytes.Clone(b)}
	n.send(s, dst, target, d)
	if n.chance(n.copies) {
		n.send(s, dst, target, d)
	}
	return len(b), nil
}

// send puts one packet on its way.
func (n *Network) send(s *socket, dst nic, target netip.AddrPort, d datagram) {
	src := s.at
	if src.host.hold(func() { n.send(s, dst, target, d) }) || n.cut(src, dst) || n.tooLarge(src, dst, len(d.data)) {
		return
	}
	n.after(n.latency(), func() { n.arrive(s, dst, target, d) })
}

// arrive hands a packet to the socket that it was sent to.
func (n *Network) arrive(s *socket, dst nic, target netip.AddrPort, d datagram) {
	if s.boot != s.at.host.boots || dst.host.down || n.cut(s.at, dst) {
		return
	}
	if dst.host.hold(func() { n.arrive(s, dst, target, d) }) {
		return
	}
	to := dst.host.sockets[target]
	if to == nil || len(to.queue) >= socketQueue {
		return
	}
	to.queue = append(to.queue, datagram{d.from, bytes.Clone(d.data)})
	to.changed.wake()
}

// hold keeps a packet for the thaw of a frozen host.
func (h *host) hold(deliver func()) bool {
	if !h.frozen {
		return false
	}
	if len(h.held) < maxHeld {
		h.held = append(h.held, deliver)
	}
	return true
}

// ReadFrom waits for the next packet.
func (s *socket) ReadFrom(b []byte) (int, net.Addr, error) {
	n := s.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, nil, net.ErrClosed
		case s.read.passed():
			return 0, nil, os.ErrDeadlineExceeded
		case len(s.queue) > 0:
			d := s.queue[0]
			s.queue = s.queue[1:]
			return copy(b, d.data), net.UDPAddrFromAddrPort(d.from), nil
		}
		n.waitFor(&s.changed)
	}
}

// waitFor gives up the lock until w is told of a change.
func (n *Network) waitFor(w *waiters) {
	changed := w.wait()
	n.mu.Unlock()
	<-changed
	n.mu.Lock()
}

// Close closes the socket; a read that waits returns.
func (s *socket) Close() error {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.closed = true
	if s.at.host.sockets[s.address] == s {
		delete(s.at.host.sockets, s.address)
	}
	s.changed.wake()
	return nil
}

// LocalAddr is the bound address.
func (s *socket) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(s.address) }

// SetDeadline is SetReadDeadline: writes never wait.
func (s *socket) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

// SetReadDeadline bounds present and later reads.
func (s *socket) SetReadDeadline(t time.Time) error {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.read.set(s.network, t, &s.changed)
	return nil
}

// SetWriteDeadline does nothing: writes never wait.
func (s *socket) SetWriteDeadline(time.Time) error { return nil }

// deadline is a point in time after which an operation fails; zero is none.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

// set moves the deadline and lets those who wait look again, now and when it passes.
func (d *deadline) set(n *Network, t time.Time, w *waiters) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = t
	w.wake()
	if wait := time.Until(t); !t.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			w.wake()
		})
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }
