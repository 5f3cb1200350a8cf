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
	key  keyID // of the cluster key that proved both ends
	name string
	peer *peer // nil: a stranger, see strangers.go
	via  *path

	left     func() // gives back a stranger's place; nil for a node
	standing int    // beats for which nothing that was sent got an answer; keepPulse's
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

// keep registers a conn whose handshake is done, so that Stop and SetKeys close it;
// false, and the conn is closed, when already stopped or when its key is gone.
func (l *Link) keep(c *conn) bool {
	l.mu.Lock()
	welcome := !l.stopped && l.keys.Load().held[c.key] != nil
	if welcome {
		l.conns[c] = struct{}{}
	}
	l.mu.Unlock()
	if !welcome {
		c.abort()
		return false
	}
	c.heard() // the handshake was fresh and authentic
	return true
}

// heard notes that authentic bytes came. What a stranger says is no contact.
func (c *conn) heard() {
	if c.peer != nil {
		c.peer.heardStream(c.via)
	}
}

// Peer is the name of the node at the far end, as its certificate proves. It may be no
// node of the configuration if the protocol is Join.
func (c *conn) Peer() string { return c.name }

// Read reads, and counts what came as contact.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard()
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
	if c.left != nil {
		c.left()
	}
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	delete(c.link.conns, c)
}
