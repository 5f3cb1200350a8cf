package link

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// peer is what is known of one other node.
type peer struct {
	name  string
	paths []*path       // one per link, fixed
	seq   atomic.Uint64 // of the last packet sent

	mu        sync.Mutex
	contact   time.Time // last authenticated receipt; zero: never
	key       keyID     // of its last packet or handshake
	foreign   keyID     // in the last packet in its name that has no key of this node's
	foreignAt time.Time // when that came; zero: never
	incoming  session   // the packets that come from it
	began     time.Time // when that run was first believed
	word      time.Time // when its newest report came; zero: never
	greeted   time.Time // begin of the present helloPeriod
	greetings int       // hellos sent in it
	last      int       // path of the last good dial
}

// path is one link to one peer: an own address and one of the peer's.
type path struct {
	index   byte
	local   *endpoint
	address string
	to      net.Addr
	beat    time.Duration // pace of the pulses

	// Guarded by the peer's mu.
	seen    window    // of the packets of this link alone
	packet  time.Time // last packet that came by this link
	spell   time.Time // since when packets come without a long pause
	large   time.Time // last large packet that came by this link
	stream  time.Time // last bytes of a conn over this link
	stalled time.Time // when a conn over this link was given up
	said    linkWord  // the peer's own word on it
	err     string    // last failure to send or dial
	errTime time.Time
}

// newPeer lays the paths to a node: link i joins the i-th addresses, and the side with
// fewer addresses uses its last one.
func newPeer(n Node, own []*endpoint, beat time.Duration) *peer {
	p := &peer{name: n.Name}
	for i := range max(len(own), len(n.Addresses)) {
		address := n.Addresses[min(i, len(n.Addresses)-1)]
		p.paths = append(p.paths, &path{
			index:   byte(i),
			local:   own[min(i, len(own)-1)],
			address: address,
			to:      net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)), // validated
			beat:    beat,
			said:    linkWord{age: unheard},
		})
	}
	return p
}

// session is the peer's, as far as it is known.
func (p *peer) session() sessionID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.incoming.run.session
}

// forget ends the belief in the peer's run if its key is gone. Which runs were superseded
// is forgotten in any case: with this node's new session, nothing recorded is believed.
func (p *peer) forget(keys *keyset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.incoming.retired = nil
	if keys.held[p.incoming.run.key] == nil {
		p.incoming = session{}
	}
}

// heardStream notes authenticated bytes from a conn.
func (p *peer) heardStream(via *path) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.contact = now
	via.stream = now
}

// usesKey notes with which key the peer dialed.
func (p *peer) usesKey(id keyID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = id
}

// namedForeignKey notes a packet in the peer's name with a key that is not accepted here.
func (p *peer) namedForeignKey(id keyID, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.foreign, p.foreignAt = id, at
}

// failed notes why a path did not work.
func (p *peer) failed(via *path, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	via.err, via.errTime = err.Error(), time.Now()
}

// pathOf guesses the link of an accepted conn from its two ends.
func (p *peer) pathOf(e *endpoint, remote net.Addr) *path {
	host := hostOf(remote.String())
	best := p.paths[0]
	for i := len(p.paths) - 1; i >= 0; i-- {
		if p.paths[i].local != e {
			continue
		}
		best = p.paths[i]
		if hostOf(best.address) == host {
			break
		}
	}
	return best
}
