// Package linktest is an in-memory network for tests in virtual time: it takes the
// place of real sockets under package link, and breaks on demand.
//
// Make the Network inside the synctest bubble. It has no goroutines of its own: when
// everything that uses it is closed, nothing keeps the bubble alive. Random choices
// (delay, loss, duplicates) follow from the seed and the order of the packets.
//
// It is not a model of TCP: streams are lossless and ordered, a cut holds their bytes
// back as retransmission would, and what was held arrives at once when the cut heals.
package linktest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/link"
)

// maxHeld bounds the packets that wait for a frozen host, as a socket buffer would.
const maxHeld = 4096

// Network joins the hosts of one test. All methods may be called concurrently.
type Network struct {
	mu       sync.Mutex // guards everything below, and all hosts, conns and sockets
	random   *rand.Rand
	hosts    map[string]*host
	owners   map[netip.Addr]nic
	cuts     map[direction]bool
	isolated map[string]bool
	narrow   map[direction]int
	delay    [2]time.Duration
	loss     float64
	copies   float64
	port     uint16  // the last one given to a dialing conn
	halves   []*half // of all open streams, oldest first
	halfMark int     // when to look for closed ones again
	topology waiters // told of every change that may let a dial go on
}

// direction is a one-way route between two hosts: of all links, or of one.
type direction struct {
	link     int
	from, to string
}

// allLinks stands for every link in a direction.
const allLinks = -1

// host is one machine.
type host struct {
	network   *Network
	name      string
	addresses []netip.Addr
	boots     int // counts power cuts: what was made before one is dead after it
	down      bool
	frozen    bool
	held      []func() // packets that wait for the thaw
	listeners map[netip.AddrPort]*listener
	sockets   map[netip.AddrPort]*socket
}

// nic is one address of a host.
type nic struct {
	host  *host
	index int
}

var _ link.Network = (*host)(nil)

// New makes a network without faults or delay.
func New(seed uint64) *Network {
	return &Network{
		random:   rand.New(rand.NewPCG(seed, 0)),
		hosts:    make(map[string]*host),
		owners:   make(map[netip.Addr]nic),
		cuts:     make(map[direction]bool),
		isolated: make(map[string]bool),
		narrow:   make(map[direction]int),
		port:     32768,
	}
}

// Host adds a machine with all its addresses ("IP" or "IP:port", one per link) and
// returns its view of the network. Called again with the same name, as for a
// restart, it returns the same machine.
func (n *Network) Host(name string, addresses ...string) link.Network {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		h = &host{
			network:   n,
			name:      name,
			listeners: make(map[netip.AddrPort]*listener),
			sockets:   make(map[netip.AddrPort]*socket),
		}
		n.hosts[name] = h
	}
	for _, a := range addresses {
		ip := address(a)
		if owner, taken := n.owners[ip]; taken && owner.host != h {
			panic(fmt.Sprintf("linktest: %s is an address of host %s already", ip, owner.host.name))
		}
		if !slices.Contains(h.addresses, ip) {
			n.owners[ip] = nic{h, len(h.addresses)}
			h.addresses = append(h.addresses, ip)
		}
	}
	n.topology.wake()
	return h
}

// address parses "IP" or "IP:port"; a test's own mistake panics.
func address(a string) netip.Addr {
	if ap, err := netip.ParseAddrPort(a); err == nil {
		return ap.Addr()
	}
	return netip.MustParseAddr(a)
}

// Cut stops all traffic in one direction. Packets are lost, also those under way;
// the bytes of streams are held until the direction heals; dials hang.
func (n *Network) Cut(from, to string) {
	n.change(func() { n.cuts[direction{allLinks, from, to}] = true })
}

// Heal ends Cut.
func (n *Network) Heal(from, to string) {
	n.change(func() { delete(n.cuts, direction{allLinks, from, to}) })
}

// CutLink is Cut for one link only: the i-th pair of addresses.
func (n *Network) CutLink(i int, from, to string) {
	n.change(func() { n.cuts[direction{i, from, to}] = true })
}

// HealLink ends CutLink.
func (n *Network) HealLink(i int, from, to string) {
	n.change(func() { delete(n.cuts, direction{i, from, to}) })
}

// Isolate cuts a host off from all others, both ways.
func (n *Network) Isolate(host string) { n.change(func() { n.isolated[host] = true }) }

// Rejoin ends Isolate; single cuts stay.
func (n *Network) Rejoin(host string) { n.change(func() { delete(n.isolated, host) }) }

// Narrow makes one direction of one link lose every packet of more than size bytes, as a
// path with a smaller MTU does where nobody tells. Streams do not mind.
func (n *Network) Narrow(i int, from, to string, size int) {
	n.change(func() { n.narrow[direction{i, from, to}] = size })
}

// HealAll ends every cut and isolation, and what Narrow did. Frozen hosts stay frozen, and
// down ones down.
func (n *Network) HealAll() { n.change(func() { clear(n.cuts); clear(n.isolated); clear(n.narrow) }) }

// Delay makes each packet, and each piece of a stream, take a random time. Packets
// may overtake each other then; streams stay in order.
func (n *Network) Delay(min, max time.Duration) {
	n.change(func() { n.delay = [2]time.Duration{min, max} })
}

// Loss drops each packet with this probability. Streams lose nothing.
func (n *Network) Loss(p float64) { n.change(func() { n.loss = p }) }

// Duplicate sends each packet twice with this probability.
func (n *Network) Duplicate(p float64) { n.change(func() { n.copies = p }) }

// Freeze holds everything to and from a host, as if the whole host were paused. The
// host's goroutines run on, but nothing that they send gets out.
func (n *Network) Freeze(host string) { n.change(func() { n.named(host).frozen = true }) }

// Thaw ends Freeze: what was held arrives, in order.
func (n *Network) Thaw(host string) {
	n.change(func() {
		h := n.named(host)
		h.frozen = false
		held := h.held
		h.held = nil
		for _, deliver := range held {
			deliver()
		}
	})
}

// Down cuts a host's power: all it had open vanishes without a word, and so does what
// was under way. Its own goroutines hang until they close what they hold; stop them
// before Up.
func (n *Network) Down(host string) {
	n.change(func() {
		h := n.named(host)
		h.down, h.frozen, h.held = true, false, nil
		h.boots++
		clear(h.listeners)
		clear(h.sockets)
	})
}

// Up gives power again. The host has no listeners and sockets until it opens new
// ones, and answers what comes for its old conns with a reset.
func (n *Network) Up(host string) { n.change(func() { n.named(host).down = false }) }

// change does f, then moves what may move now.
func (n *Network) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	n.sweep()
	for _, s := range slices.Clone(n.halves) {
		s.pump()
	}
	n.topology.wake()
}

func (n *Network) named(name string) *host {
	h := n.hosts[name]
	if h == nil {
		panic("linktest: no host is named " + name)
	}
	return h
}

// cut tells whether the direction between two addresses is cut. Where the hosts have
// different numbers of addresses, the higher one of the pair names the link.
func (n *Network) cut(from, to nic) bool {
	a, b := from.host.name, to.host.name
	if a == b {
		return false
	}
	return n.isolated[a] || n.isolated[b] ||
		n.cuts[direction{allLinks, a, b}] || n.cuts[direction{max(from.index, to.index), a, b}]
}

// tooLarge tells whether a packet does not fit the direction between two addresses.
func (n *Network) tooLarge(from, to nic, size int) bool {
	limit, narrow := n.narrow[direction{max(from.index, to.index), from.host.name, to.host.name}]
	return narrow && size > limit
}

// blocked tells whether a stream's bytes must wait.
func (n *Network) blocked(from, to nic) bool {
	return n.cut(from, to) || from.host.frozen || to.host.frozen || from.host.down || to.host.down
}

// latency draws the time that one thing takes.
func (n *Network) latency() time.Duration {
	if n.delay[1] <= n.delay[0] {
		return n.delay[0]
	}
	return n.delay[0] + time.Duration(n.random.Int64N(int64(n.delay[1]-n.delay[0])))
}

// chance draws whether something of probability p happens.
func (n *Network) chance(p float64) bool { return p > 0 && n.random.Float64() < p }

// after does f under the lock, later or at once; the caller holds the lock.
func (n *Network) after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	time.AfterFunc(d, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		f()
	})
}

// waiters lets goroutines wait for a change. The owner's lock guards it.
type waiters struct{ ch chan struct{} }

// wait returns what is closed by the next wake.
func (w *waiters) wait() <-chan struct{} {
	if w.ch == nil {
		w.ch = make(chan struct{})
	}
	return w.ch
}

func (w *waiters) wake() {
	if w.ch != nil {
		close(w.ch)
		w.ch = nil
	}
}
