package link

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	bindRetry = time.Second           // pause between attempts to bind a missing address
	hiccup    = 50 * time.Millisecond // pause after a failed accept or read, against spinning
	sendQueue = 256                   // packets that wait for one socket
)

// endpoint is one own address: a TCP listener and a UDP socket of the same number.
type endpoint struct {
	index   int
	address string
	// out decouples the sockets: a send that blocks (a full buffer behind a
	// neighbour that does not answer) must not hold up the other links.
	out chan outgoing

	mu      sync.Mutex
	closed  bool
	streams net.Listener   // nil while unbound
	packets net.PacketConn // nil while unbound
}

// outgoing is one sealed packet for one path.
type outgoing struct {
	peer *peer
	path *path
	data []byte
}

func newEndpoint(index int, address string) *endpoint {
	return &endpoint{index: index, address: address, out: make(chan outgoing, sendQueue)}
}

// host is the IP address alone.
func (e *endpoint) host() string { return hostOf(e.address) }

// bound tells whether the sockets exist.
func (e *endpoint) bound() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.packets != nil
}

// socket is the packet socket; nil while unbound.
func (e *endpoint) socket() net.PacketConn {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.packets
}

// close closes the sockets for good.
func (e *endpoint) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.packets != nil {
		e.streams.Close()
		e.packets.Close()
	}
}

// bindAll binds what is there and goes on trying for what is not.
func (l *Link) bindAll() error {
	var missing []*endpoint
	var errs []error
	for _, e := range l.endpoints {
		switch err := l.bind(e); {
		case err == nil:
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			missing = append(missing, e)
			errs = append(errs, err)
		default:
			return err // in use, or not permitted: waiting would only hide it
		}
	}
	if len(missing) == len(l.endpoints) {
		return errors.Join(errs...)
	}
	for i, e := range missing {
		l.log.Warn("link address missing", "address", e.address, "err", errs[i])
		l.spawn(func() { l.keepBinding(e) })
	}
	return nil
}

// keepBinding tries until the address appears or the link stops.
func (l *Link) keepBinding(e *endpoint) {
	for l.pause(bindRetry) {
		err := l.bind(e)
		if err == nil {
			l.log.Info("link address bound", "address", e.address)
			return
		}
		l.log.Debug("link address still missing", "address", e.address, "err", err)
	}
}

// pause waits; false when the link stopped meanwhile.
func (l *Link) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// bind opens both sockets or none, and starts what serves them.
func (l *Link) bind(e *endpoint) error {
	streams, err := l.network.Listen(e.address)
	if err != nil {
		return bindError(l.cfg.Self, e.address, err)
	}
	packets, err := l.network.ListenPacket(e.address)
	if err != nil {
		streams.Close()
		return bindError(l.cfg.Self, e.address, err)
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		streams.Close()
		packets.Close()
		return ErrStopped
	}
	e.streams, e.packets = streams, packets
	e.mu.Unlock()
	l.spawn(func() { l.accept(e, streams) })
	l.spawn(func() { l.receive(packets) })
	l.spawn(func() { l.transmit(e, packets) })
	return nil
}
