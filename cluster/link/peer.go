package link

import (
	"crypto/cipher"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// peer is what is known of one other node.
type peer struct {
	name  string
	paths []*path // one per link, fixed
	seal  cipher.AEAD
	seq   atomic.Uint64 // of the last packet sent

	mu        sync.Mutex
	contact   time.Time // last authenticated receipt; zero: never
	incoming  session   // the packets that come from it
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

	// Guarded by the peer's mu.
	seen    window    // of the packets of this link alone
	packet  time.Time // last packet that came by this link
	stream  time.Time // last bytes of a conn over this link
	err     string    // last failure to send or dial
	errTime time.Time
}

// newPeer lays the paths to a node: link i joins the i-th addresses, and the side with
// fewer addresses uses its last one.
func newPeer(n Node, own []*endpoint, seal cipher.AEAD) *peer {
	p := &peer{name: n.Name, seal: seal}
	for i := range max(len(own), len(n.Addresses)) {
		address := n.Addresses[min(i, len(n.Addresses)-1)]
		p.paths = append(p.paths, &path{
			index:   byte(i),
			local:   own[min(i, len(own)-1)],
			address: address,
			to:      net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)), // validated
		})
	}
	return p
}

// heardStream notes authenticated bytes from a conn.
func (p *peer) heardStream(via *path) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.contact = now
	via.stream = now
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
