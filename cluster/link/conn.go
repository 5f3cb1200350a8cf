package link

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"
)

// goodbye bounds how long Close waits to tell the peer, when the peer takes nothing.
const goodbye = 200 * time.Millisecond

// conn is one TLS stream to a proven node.
type conn struct {
	*tls.Conn
	raw  *rawConn
	link *Link
	peer *peer
	via  *path
}

// rawConn is the stream below TLS. When it is being closed, no deadline is later than
// goodbye: crypto/tls alone would wait 5 s for a stuck peer to take the last alert.
type rawConn struct {
	net.Conn
	closing atomic.Bool
}

func (r *rawConn) SetWriteDeadline(t time.Time) error {
	if r.closing.Load() {
		if limit := time.Now().Add(goodbye); t.IsZero() || t.After(limit) {
			t = limit
		}
	}
	return r.Conn.SetWriteDeadline(t)
}

// keep registers a conn whose handshake is done, so that Stop closes it; false,
// and the conn is closed, when already stopped.
func (l *Link) keep(c *conn) bool {
	l.mu.Lock()
	stopped := l.stopped
	if !stopped {
		l.conns[c] = struct{}{}
	}
	l.mu.Unlock()
	if stopped {
		c.raw.Close()
		return false
	}
	c.peer.heardStream(c.via) // the handshake was fresh and authentic
	return true
}

// Peer is the name of the node at the far end, as its certificate proves.
func (c *conn) Peer() string { return c.peer.name }

// Read reads, and counts what came as contact.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.peer.heardStream(c.via)
	}
	return n, err
}

// Close tells the peer and closes.
func (c *conn) Close() error {
	c.forget()
	c.raw.closing.Store(true)
	return c.Conn.Close()
}

// abort closes without a word, at once.
func (c *conn) abort() {
	c.forget()
	c.raw.Close()
}

func (c *conn) forget() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	delete(c.link.conns, c)
}
