package linktest

import (
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// streamWindow is how many bytes a stream holds that nobody has read; then writes wait.
const streamWindow = 256 << 10

// half is one direction of a stream.
type half struct {
	network  *Network
	from, to nic
	boots    [2]int // of from and to when the stream was made
	back     *half  // the other direction

	queue  []segment // sent, not arrived; none overtakes another
	queued int       // bytes in queue
	armed  bool      // a timer will pump

	arrived []byte
	ended   bool // the sender closed
	reset   bool // the far host does not know the stream
	written bool // nothing will be written any more
	unread  bool // nothing will be read any more
	changed waiters
}

// segment is one piece under way.
type segment struct {
	at   time.Time // not before
	kind segmentKind
	data []byte
}

type segmentKind int

const (
	bytesSegment segmentKind = iota
	endSegment
	resetSegment
)

// push sends a segment; the caller holds the lock.
func (h *half) push(kind segmentKind, data []byte) {
	h.queue = append(h.queue, segment{time.Now().Add(h.network.latency()), kind, data})
	h.queued += len(data)
	h.pump()
}

// pump lets arrive what is due and not blocked.
func (h *half) pump() {
	n := h.network
	for len(h.queue) > 0 && !n.blocked(h.from, h.to) {
		s := h.queue[0]
		if wait := time.Until(s.at); wait > 0 {
			if !h.armed {
				h.armed = true
				n.after(wait, func() { h.armed = false; h.pump() })
			}
			return
		}
		h.queue = h.queue[1:]
		h.queued -= len(s.data)
		h.arrive(s)
		h.changed.wake()
	}
}

// arrive does what a segment means at the far host.
func (h *half) arrive(s segment) {
	alive := h.to.host.boots == h.boots[1]
	switch {
	case s.kind == resetSegment:
		h.reset, h.arrived = true, nil
		h.back.changed.wake() // its writer must learn of it
	case h.from.host.boots != h.boots[0]: // sent by who is dead
	case !alive, h.unread && s.kind == bytesSegment:
		h.back.push(resetSegment, nil)
	case s.kind == endSegment:
		h.ended = true
	default:
		h.arrived = append(h.arrived, s.data...)
	}
}

// over tells whether nothing can happen to this half any more.
func (h *half) over() bool {
	written := h.written || h.from.host.boots != h.boots[0]
	unread := h.unread || h.to.host.boots != h.boots[1]
	return written && unread && len(h.queue) == 0
}

// sweep forgets the streams that are over.
func (n *Network) sweep() {
	kept := n.halves[:0]
	for _, h := range n.halves {
		if !h.over() || !h.back.over() {
			kept = append(kept, h)
		}
	}
	clear(n.halves[len(kept):])
	n.halves = kept
	n.halfMark = 2*len(kept) + 64
}

// conn is one end of a stream.
type conn struct {
	network       *Network
	local, remote netip.AddrPort
	in, out       *half
	closed        bool
	read, write   deadline
}

var _ net.Conn = (*conn)(nil)

// pair makes a stream between two addresses; the caller holds the lock.
func (n *Network) pair(from, to nic, local, remote netip.AddrPort) (dialed, accepted *conn) {
	there := &half{network: n, from: from, to: to, boots: [2]int{from.host.boots, to.host.boots}}
	back := &half{network: n, from: to, to: from, boots: [2]int{to.host.boots, from.host.boots}, back: there}
	there.back = back
	if len(n.halves) >= n.halfMark {
		n.sweep()
	}
	n.halves = append(n.halves, there, back)
	return &conn{network: n, local: local, remote: remote, in: back, out: there},
		&conn{network: n, local: remote, remote: local, in: there, out: back}
}

// Read waits for bytes, the end, a reset, the deadline or Close.
func (c *conn) Read(b []byte) (int, error) {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.read.passed():
			return 0, c.fail("read", os.ErrDeadlineExceeded)
		case c.in.reset:
			return 0, c.fail("read", syscall.ECONNRESET)
		case len(c.in.arrived) > 0:
			k := copy(b, c.in.arrived)
			c.in.arrived = c.in.arrived[k:]
			c.in.changed.wake()
			return k, nil
		case c.in.ended:
			return 0, io.EOF
		case len(b) == 0:
			return 0, nil
		}
		n.waitFor(&c.in.changed)
	}
}

// Write sends; it waits only while the window is full.
func (c *conn) Write(b []byte) (int, error) {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	done := 0
	for {
		room := streamWindow - c.out.queued - len(c.out.arrived)
		switch {
		case done > 0 && done == len(b): // whatever happened since
			return done, nil
		case c.closed:
			return done, net.ErrClosed
		case c.write.passed():
			return done, c.fail("write", os.ErrDeadlineExceeded)
		case c.in.reset:
			return done, c.fail("write", syscall.ECONNRESET)
		case c.out.from.host.boots != c.out.boots[0]: // a dead host's: goes nowhere
			return len(b), nil
		case len(b) == 0:
			return 0, nil
		case room > 0:
			k := min(room, len(b)-done)
			c.out.push(bytesSegment, append([]byte(nil), b[done:done+k]...))
			done += k
			continue
		}
		n.waitFor(&c.out.changed)
	}
}

// Close sends the end after what was written, and frees who waits here.
func (c *conn) Close() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.in.unread, c.in.arrived = true, nil
	c.out.written = true
	if !c.in.reset && c.out.from.host.boots == c.out.boots[0] {
		c.out.push(endSegment, nil)
	}
	c.in.changed.wake()
	c.out.changed.wake()
	return nil
}

func (c *conn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// LocalAddr is this end's address.
func (c *conn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.local) }

// RemoteAddr is the other end's address.
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

// SetDeadline bounds reads and writes.
func (c *conn) SetDeadline(t time.Time) error {
	return c.set(func() {
		c.read.set(c.network, t, &c.in.changed)
		c.write.set(c.network, t, &c.out.changed)
	})
}

// SetReadDeadline bounds present and later reads.
func (c *conn) SetReadDeadline(t time.Time) error {
	return c.set(func() { c.read.set(c.network, t, &c.in.changed) })
}

// SetWriteDeadline bounds present and later writes.
func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.set(func() { c.write.set(c.network, t, &c.out.changed) })
}

func (c *conn) set(f func()) error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	f()
	return nil
}
