package link

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
)

const (
	acceptQueue     = 64 // conns that wait for one protocol's Accept
	nodeHandshakes  = 32 // handshakes at once from one configured address
	otherHandshakes = 16 // handshakes at once from all other addresses together
)

// gate bounds the handshakes that run at once. Configured addresses have a share of
// their own each, so that strangers cannot use up what the nodes need.
type gate struct {
	mu     sync.Mutex
	nodes  map[netip.Addr]int // configured addresses, with their running handshakes
	others int
}

func newGate(known []netip.Addr) *gate {
	g := &gate{nodes: make(map[netip.Addr]int)}
	for _, a := range known {
		g.nodes[a.WithZone("")] = 0
	}
	return g
}

// enter takes a place for a conn from remote; leave gives it back.
func (g *gate) enter(remote net.Addr) (leave func(), ok bool) {
	var from netip.Addr
	if ap, err := netip.ParseAddrPort(remote.String()); err == nil {
		from = ap.Addr().Unmap().WithZone("")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if n, node := g.nodes[from]; node {
		if n >= nodeHandshakes {
			return nil, false
		}
		g.nodes[from]++
		return func() { g.mu.Lock(); g.nodes[from]--; g.mu.Unlock() }, true
	}
	if g.others >= otherHandshakes {
		return nil, false
	}
	g.others++
	return func() { g.mu.Lock(); g.others--; g.mu.Unlock() }, true
}

// accept takes conns from one listener until it is closed. Each handshake has its own
// goroutine: a peer that says nothing holds up nobody.
func (l *Link) accept(e *endpoint, streams net.Listener) {
	for {
		raw, err := streams.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || !l.pause(hiccup) {
				return
			}
			l.log.Warn("accept failed", "address", e.address, "err", err)
			continue
		}
		leave, ok := l.gate.enter(raw.RemoteAddr())
		if !ok {
			raw.Close()
			l.refuse(dropConnTooMany, raw)
			continue
		}
		if !l.spawn(func() { defer leave(); l.welcome(e, raw) }) {
			leave()
			raw.Close()
		}
	}
}

func (l *Link) refuse(why drop, c net.Conn) {
	l.tally.lost(why)
	l.report(why, c.RemoteAddr())
}

// welcome does the handshake of an accepted conn and hands it to its protocol.
func (l *Link) welcome(e *endpoint, accepted net.Conn) {
	ctx, cancel := context.WithTimeout(l.ctx, l.patience)
	defer cancel()
	raw := &rawConn{Conn: accepted}
	var r reception
	secure := tls.Server(raw, l.serverConfig(&r))
	if err := secure.HandshakeContext(ctx); err != nil {
		raw.Close()
		if l.ctx.Err() == nil {
			l.refuse(r.drop(err), raw)
			l.log.Debug("handshake failed", "address", raw.RemoteAddr().String(), "err", err)
		}
		return
	}
	state := secure.ConnectionState()
	name := state.PeerCertificates[0].DNSNames[0] // checked by judge
	c := &conn{Conn: secure, raw: raw, link: l, key: r.key.id, name: name}
	if p := l.peers[name]; p != nil {
		c.peer, c.via = p, p.pathOf(e, raw.RemoteAddr())
	} else if !l.admitStranger(c) {
		raw.Close()
		l.refuse(dropConnStrangers, raw)
		return
	}
	if !l.keep(c) {
		return
	}
	if c.peer != nil {
		c.peer.usesKey(c.key)
	}
	if why := l.deliver(Protocol(state.NegotiatedProtocol), c); why != dropNone {
		l.refuse(why, c)
		c.Close()
		return
	}
	if c.peer == nil {
		l.tally.strangers.Add(1)
		return
	}
	l.tally.accepted.Add(1)
}

// drop sorts a failed handshake.
func (r *reception) drop(err error) drop {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errKey):
		return dropConnKey
	case errors.Is(err, errOwnName):
		return dropConnOwnName
	case errors.Is(err, errStranger):
		return dropConnUnknownNode
	case errors.As(err, &certificate), errors.Is(err, errName):
		return dropConnCertificate
	case r.unserved, errors.Is(err, errProtocol):
		return dropConnProtocol
	default:
		return dropConnHandshake
	}
}

// deliver hands a conn to the listener of its protocol.
func (l *Link) deliver(p Protocol, c *conn) drop {
	l.mu.Lock()
	to := l.listeners[p]
	l.mu.Unlock()
	if to == nil {
		return dropConnProtocol // closed since the handshake began
	}
	return to.put(c)
}

// served lists the protocols that someone listens for.
func (l *Link) served() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := make([]string, 0, len(l.listeners))
	for p := range l.listeners {
		open = append(open, string(p))
	}
	return open
}

// Listener opens the listener of one protocol; until then its conns are refused. While
// it is open, further calls return the same one; after its Close a call opens a new
// one. Accepted conns have the method Peer() string, the proven name of the
// node that dialed. After Stop, Accept returns net.ErrClosed.
func (l *Link) Listener(p Protocol) net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	if open := l.listeners[p]; open != nil {
		return open
	}
	n := &listener{
		link:     l,
		protocol: p,
		queue:    make(chan *conn, acceptQueue),
		done:     make(chan struct{}),
	}
	if l.stopped {
		close(n.done)
		n.closed = true
		return n
	}
	l.listeners[p] = n
	return n
}

// listener is the share of one protocol in all accepted conns.
type listener struct {
	link     *Link
	protocol Protocol
	queue    chan *conn
	done     chan struct{}

	mu     sync.Mutex
	closed bool
}

// put queues a conn for Accept.
func (n *listener) put(c *conn) drop {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return dropConnProtocol
	}
	select {
	case n.queue <- c:
		return dropNone
	default:
		return dropConnQueue
	}
}

// Accept waits for the next conn, or for Close.
func (n *listener) Accept() (net.Conn, error) {
	select {
	case <-n.done: // first, so that a closed listener hands out nothing
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-n.queue:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

// Close makes Accept return, and closes the conns that nobody accepted.
func (n *listener) Close() error {
	n.link.mu.Lock()
	if n.link.listeners[n.protocol] == n {
		delete(n.link.listeners, n.protocol)
	}
	n.link.mu.Unlock()
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	close(n.done)
	n.mu.Unlock()
	for {
		select {
		case c := <-n.queue:
			c.abort() // a farewell to each could take long
		default:
			return nil
		}
	}
}

// Addr is the first own address.
func (n *listener) Addr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(n.link.endpoints[0].address))
}
