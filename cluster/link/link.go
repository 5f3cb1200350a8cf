// Package link moves bytes between the nodes of one cluster, over several links at
// once, and says nothing about their meaning.
//
// One cluster key is the only secret: the TLS identity of each node and the keys
// that seal packets are derived from it. What was not made with the key is dropped and
// counted. The key proves membership of the cluster, and the name in a
// certificate or packet is believed because only its members hold the key: a stolen
// key can speak for every node, and a new key is the cure.
//
// A link is a pair of addresses: link i joins the i-th address of one node with the
// i-th of the other; a node with fewer addresses uses its last one. Streams (TLS over
// TCP) take one link that works, packets (sealed UDP) take all of them.
//
// The package is not a discovery service: the nodes and their addresses are given.
// It does not judge who is alive either; it only says when it last heard from whom.
// This is the only package that knows TLS and sockets.
package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Protocol names what is spoken over a stream; it travels as the ALPN of the TLS
// handshake, so that all protocols share one port.
type Protocol string

// The protocols of hamgr. The number grows when a protocol changes incompatibly.
const (
	Raft   Protocol = "hamgr-raft/1"
	Gossip Protocol = "hamgr-gossip/1"
	Join   Protocol = "hamgr-join/1"
	API    Protocol = "hamgr-api/1"
)

// Errors that callers tell apart.
var (
	// ErrUnknownNode: the name is not one of the other configured nodes.
	ErrUnknownNode = errors.New("not one of the other nodes of the configuration")
	// ErrTooBig: the payload is longer than MaxPayload.
	ErrTooBig = errors.New("payload too big for one packet")
	// ErrNoLink: no local address is bound yet, so nothing can be sent.
	ErrNoLink = errors.New("no local address is bound")
	// ErrStopped: Stop was called.
	ErrStopped = errors.New("link is stopped")
)

const (
	packetQueue   = 1024             // packets that wait for the reader of Packets
	minPatience   = time.Second      // bounds of Link.patience
	maxPatience   = 10 * time.Second //
	maxNameLength = 63               // a node's name is a DNS name in its certificate
)

// Node is one configured node.
type Node struct {
	Name      string
	Addresses []string // "host:port" with an IP address as host, one per link
}

// Config is what Start needs.
type Config struct {
	Cluster string  // the cluster's name: two clusters with one key still do not mix
	Self    string  // the name of this node, one of Nodes
	Nodes   []Node  // every node of the cluster, this one too
	Keys    KeyRing // the accepted keys, the active one first
	// DetectionTime bounds how long one dial attempt or handshake may take
	// (clamped to 1..10 s). Default 3 s.
	DetectionTime time.Duration
	Network       Network      // nil: the real network
	Log           *slog.Logger // nil: no logs
}

// Link is this node's end of the links to all other nodes. All methods may be
// called concurrently.
type Link struct {
	cfg       Config
	log       *slog.Logger
	network   Network
	patience  time.Duration // limit of a dial attempt or handshake
	beat      time.Duration // pace of the pulses, see pulse.go
	setting   sync.Mutex    // held by SetKeys
	keys      atomic.Pointer[keyset]
	peers     map[string]*peer // by name, fixed
	endpoints []*endpoint      // one per own address, fixed
	packets   chan Packet
	tally     tally
	gate      *gate
	visitors  visitors

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	stopped   bool
	conns     map[*conn]struct{} // every open conn, so that Stop can close it
	listeners map[Protocol]*listener
}

// Start binds every own address and begins to listen. An own address that does not
// exist yet (an interface that is not up) is a warning, and is bound as soon as it
// appears, as long as at least one other can be bound; all else is an error that
// names the address and the cure.
func Start(cfg Config) (*Link, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("start link: %w", err)
	}
	l, err := build(cfg)
	if err != nil {
		return nil, fmt.Errorf("start link: %w", err)
	}
	if err := l.bindAll(); err != nil {
		l.Stop()
		return nil, fmt.Errorf("start link: %w", err)
	}
	for _, name := range l.peerNames() {
		l.greet(l.peers[name], sessionID{})
	}
	l.spawn(l.keepPulse)
	return l, nil
}

// build makes a Link that is not bound to anything.
func build(cfg Config) (*Link, error) {
	l := &Link{
		cfg:       cfg,
		log:       cfg.Log,
		network:   cfg.Network,
		patience:  cfg.DetectionTime,
		peers:     make(map[string]*peer),
		packets:   make(chan Packet, packetQueue),
		conns:     make(map[*conn]struct{}),
		listeners: make(map[Protocol]*listener),
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.network == nil {
		l.network = realNetwork{}
	}
	if l.patience == 0 {
		l.patience = 3 * time.Second
	}
	l.beat = max(l.patience/beats, time.Millisecond)
	l.patience = min(max(l.patience, minPatience), maxPatience)
	l.ctx, l.cancel = context.WithCancel(context.Background())

	var own Node
	var known []netip.Addr
	for _, n := range cfg.Nodes {
		if n.Name == cfg.Self {
			own = n
			continue
		}
		for _, a := range n.Addresses {
			known = append(known, netip.MustParseAddrPort(a).Addr()) // validated
		}
	}
	l.gate = newGate(known)
	for i, a := range own.Addresses {
		l.endpoints = append(l.endpoints, newEndpoint(i, a))
	}
	for _, n := range cfg.Nodes {
		if n.Name == cfg.Self {
			continue
		}
		l.peers[n.Name] = newPeer(n, l.endpoints, l.beat)
	}
	keys, err := l.newKeyset(cfg.Keys, newSession())
	if err != nil {
		return nil, err
	}
	l.keys.Store(keys)
	return l, nil
}

// Self is this node's name.
func (l *Link) Self() string { return l.cfg.Self }

// Stop closes every listener, socket and conn, accepted or dialed, and waits for
// every goroutine. It then closes the channel of Packets. Later calls return at
// once when the first is done.
func (l *Link) Stop() {
	l.mu.Lock()
	first := !l.stopped
	l.stopped = true
	conns := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	listeners := make([]*listener, 0, len(l.listeners))
	for _, p := range l.listeners {
		listeners = append(listeners, p)
	}
	l.mu.Unlock()

	l.cancel()
	for _, e := range l.endpoints {
		e.close()
	}
	for _, p := range listeners {
		p.Close()
	}
	for _, c := range conns {
		c.abort()
	}
	l.wg.Wait()
	if first {
		close(l.packets)
	}
}

// spawn runs f in a goroutine that Stop waits for; false when already stopped.
func (l *Link) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return false
	}
	l.wg.Go(f)
	return true
}

// validate finds what would make the link unusable or unsafe.
func (c Config) validate() error {
	if c.Cluster == "" {
		return errors.New("the cluster has no name")
	}
	if err := c.Keys.validate(); err != nil {
		return err
	}
	names := make(map[string]bool)
	owners := make(map[netip.AddrPort]string)
	for _, n := range c.Nodes {
		if err := checkName(n.Name); err != nil {
			return fmt.Errorf("node %q: %w", n.Name, err)
		}
		if names[n.Name] {
			return fmt.Errorf("node %s: configured twice", n.Name)
		}
		names[n.Name] = true
		if len(n.Addresses) == 0 || len(n.Addresses) > maxLinks {
			return fmt.Errorf("node %s: has %d addresses; give it 1 to %d, one per link", n.Name, len(n.Addresses), maxLinks)
		}
		for _, a := range n.Addresses {
			ap, err := netip.ParseAddrPort(a)
			if err != nil || ap.Port() == 0 || ap.Addr().IsUnspecified() {
				return fmt.Errorf("node %s: address %q: want IP:port (names would make the cluster depend on DNS)", n.Name, a)
			}
			if other, taken := owners[ap]; taken {
				return fmt.Errorf("node %s: address %s is node %s's already", n.Name, a, other)
			}
			owners[ap] = n.Name
		}
	}
	if !names[c.Self] {
		return fmt.Errorf("node %s, this one, is not among the configured nodes", c.Self)
	}
	return nil
}

// checkName accepts what is the same in a certificate, in a packet and in a log.
func checkName(name string) error {
	if name == "" || len(name) > maxNameLength {
		return fmt.Errorf("a name has 1 to %d bytes", maxNameLength)
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return errors.New("a name must not be an IP address")
	}
	for _, part := range strings.Split(name, ".") {
		if part == "" || part[0] == '-' || part[len(part)-1] == '-' {
			return errors.New("a name is made of labels such as host-1, joined by dots")
		}
		for _, r := range part {
			if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
				return fmt.Errorf("a name must not hold %q", r)
			}
		}
	}
	return nil
}

// peerNames lists the other nodes, sorted.
func (l *Link) peerNames() []string {
	names := make([]string, 0, len(l.peers))
	for n := range l.peers {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// peer finds another node, or says why not.
func (l *Link) peer(node string) (*peer, error) {
	p, ok := l.peers[node]
	if !ok {
		return nil, fmt.Errorf("node %q: %w", node, ErrUnknownNode)
	}
	return p, nil
}

// hostOf is the host part of "host:port".
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
