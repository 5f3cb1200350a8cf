package linktest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// backlog is how many conns wait for Accept; further dials hang, as SYNs are dropped.
const backlog = 128

// listener is one listening TCP port.
type listener struct {
	network *Network
	at      nic
	address netip.AddrPort
	waiting []*conn
	closed  bool
	changed waiters
}

var _ net.Listener = (*listener)(nil)

// Listen opens a TCP port.
func (h *host) Listen(address string) (net.Listener, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	ap, at, err := h.own(address)
	if err != nil {
		return nil, err
	}
	if h.listeners[ap] != nil {
		return nil, fmt.Errorf("%s: %w", address, syscall.EADDRINUSE)
	}
	l := &listener{network: n, at: at, address: ap}
	h.listeners[ap] = l
	n.topology.wake()
	return l, nil
}

// Accept waits for the next conn, or for Close.
func (l *listener) Accept() (net.Conn, error) {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case l.closed:
			return nil, net.ErrClosed
		case len(l.waiting) > 0:
			c := l.waiting[0]
			l.waiting = l.waiting[1:]
			n.topology.wake() // a place is free
			return c, nil
		}
		n.waitFor(&l.changed)
	}
}

// Close closes the port and the conns that nobody accepted.
func (l *listener) Close() error {
	l.network.mu.Lock()
	if l.closed {
		l.network.mu.Unlock()
		return net.ErrClosed
	}
	l.closed = true
	if l.at.host.listeners[l.address] == l {
		delete(l.at.host.listeners, l.address)
	}
	waiting := l.waiting
	l.waiting = nil
	l.changed.wake()
	l.network.mu.Unlock()
	for _, c := range waiting {
		c.Close()
	}
	return nil
}

// Addr is the bound address.
func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.address) }

// Dial connects to an address. Where nothing answers (cut, frozen, down, no such
// address) it hangs until that changes or ctx ends; a host that is up without a
// listener refuses at once.
func (h *host) Dial(ctx context.Context, from, address string) (net.Conn, error) {
	c, err := h.dial(ctx, from, address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return c, nil
}

func (h *host) dial(ctx context.Context, from, address string) (net.Conn, error) {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	src, err := h.source(from, target)
	if err != nil {
		return nil, err
	}
	boot := h.boots
	travelled := false // the handshake's round trip
	for ctx.Err() == nil {
		dst, known := n.owners[target.Addr()]
		if !known || boot != h.boots || n.blocked(src, dst) || n.blocked(dst, src) {
			waitOr(ctx, n, n.topology.wait())
			continue
		}
		if trip := n.latency() + n.latency(); trip > 0 && !travelled {
			timer := time.NewTimer(trip)
			waitOr(ctx, n, timer.C)
			timer.Stop()
			travelled = true
			continue
		}
		l := dst.host.listeners[target]
		if l == nil {
			return nil, syscall.ECONNREFUSED
		}
		if len(l.waiting) >= backlog {
			waitOr(ctx, n, n.topology.wait())
			continue
		}
		n.port = max(n.port+1, 32768) // wraps
		dialed, accepted := n.pair(src, dst, netip.AddrPortFrom(h.addresses[src.index], n.port), target)
		l.waiting = append(l.waiting, accepted)
		l.changed.wake()
		return dialed, nil
	}
	return nil, ctx.Err()
}

// source is the own address that a dial leaves from.
func (h *host) source(from string, target netip.AddrPort) (nic, error) {
	if from == "" {
		if len(h.addresses) == 0 {
			return nic{}, syscall.ENETUNREACH
		}
		// As a host with one network per link would route.
		return nic{h, min(h.network.owners[target.Addr()].index, len(h.addresses)-1)}, nil
	}
	ip, err := netip.ParseAddr(from)
	if err != nil {
		return nic{}, err
	}
	at, ok := h.network.owners[ip]
	if !ok || at.host != h {
		return nic{}, fmt.Errorf("from %s: %w", from, syscall.EADDRNOTAVAIL)
	}
	return at, nil
}

// waitOr gives up the lock until ch or ctx is done.
func waitOr[T any](ctx context.Context, n *Network, ch <-chan T) {
	n.mu.Unlock()
	defer n.mu.Lock()
	select {
	case <-ch:
	case <-ctx.Done():
	}
}
