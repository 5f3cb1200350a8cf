package link

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Never is the age of what has not happened.
const Never int64 = -1

// PeerHealth is how well another node is heard. Ages are in milliseconds; Never if it
// has not been heard.
type PeerHealth struct {
	Node         string `json:"node"`
	ContactAgeMS int64  `json:"contact_age_ms"`
	// Key is the fingerprint of the cluster key that it used last, in a packet or to
	// dial; empty if it was never heard.
	Key string `json:"key,omitempty"`
	// ForeignKey is the fingerprint in the last packet in its name that was dropped because no key of that name
	// is accepted here. Nothing proves who sent it.
	ForeignKey      string       `json:"foreign_key,omitempty"`
	ForeignKeyAgeMS int64        `json:"foreign_key_age_ms"`
	Links           []LinkHealth `json:"links"`
}

// LinkHealth is one link to one node. Ages are in milliseconds; Never if it has not
// happened. Each end sees only what it receives, so that the other direction is what
// the peer said of it, by whatever link.
type LinkHealth struct {
	Local   string `json:"local"`
	Address string `json:"address"`
	Bound   bool   `json:"bound"`     // the local address exists and is listened on
	InAgeMS int64  `json:"in_age_ms"` // since a packet of the peer came by this link
	// OutAgeMS is since a packet came to the peer by this link: the age that it told, and the
	// time since then. If OutWordAgeMS is high, the peer cannot make itself heard, and
	// this says nothing.
	OutAgeMS     int64 `json:"out_age_ms"`
	OutWordAgeMS int64 `json:"out_word_age_ms"`
	StreamAgeMS  int64 `json:"stream_age_ms"`
	// InLargeLost and OutLargeLost: packets come through, but large ones do not; the path
	// has a smaller MTU than 1280.
	InLargeLost  bool `json:"in_large_lost,omitempty"`
	OutLargeLost bool `json:"out_large_lost,omitempty"`
	// LastError is the last failure to send or dial on this link, in words.
	LastError      string `json:"last_error,omitempty"`
	LastErrorAgeMS int64  `json:"last_error_age_ms"`
}

// Contact tells when node was last heard on any link: a packet of its present session
// that was opened, or bytes of a TLS conn. The time is monotonic. Old packets that
// are replayed, by whomever, do not count.
func (l *Link) Contact(node string) (at time.Time, ok bool) {
	p := l.peers[node]
	if p == nil {
		return time.Time{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.contact, !p.contact.IsZero()
}

// Health is the state of every link, sorted by node.
func (l *Link) Health() []PeerHealth {
	now := time.Now()
	all := make([]PeerHealth, 0, len(l.peers))
	for _, name := range l.peerNames() {
		p := l.peers[name]
		bound := make([]bool, len(p.paths))
		for i, via := range p.paths {
			bound[i] = via.local.bound()
		}
		p.mu.Lock()
		h := PeerHealth{Node: name, ContactAgeMS: age(now, p.contact)}
		if p.key != (keyID{}) {
			h.Key = p.key.String()
		}
		if h.ForeignKeyAgeMS = age(now, p.foreignAt); !p.foreignAt.IsZero() {
			h.ForeignKey = p.foreign.String()
		}
		for i, via := range p.paths {
			h.Links = append(h.Links, LinkHealth{
				Local:          via.local.address,
				Address:        via.address,
				Bound:          bound[i],
				InAgeMS:        age(now, via.packet),
				OutAgeMS:       via.said.since(age(now, p.word)),
				OutWordAgeMS:   age(now, p.word),
				StreamAgeMS:    age(now, via.stream),
				InLargeLost:    via.largeLost(now),
				OutLargeLost:   via.said.largeLost,
				LastError:      via.err,
				LastErrorAgeMS: age(now, via.errTime),
			})
		}
		p.mu.Unlock()
		all = append(all, h)
	}
	return all
}

func age(now, then time.Time) int64 {
	if then.IsZero() {
		return Never
	}
	return max(now.Sub(then).Milliseconds(), 0)
}

// Counters are totals since Start.
type Counters struct {
	PacketsSent     uint64      `json:"packets_sent"` // each link's copy counts
	PacketsReceived uint64      `json:"packets_received"`
	ConnsAccepted   uint64      `json:"conns_accepted"`
	StrangersHeard  uint64      `json:"strangers_heard"` // for Join alone, of no node of the configuration
	ConnsDialed     uint64      `json:"conns_dialed"`
	Packets         PacketDrops `json:"packets_dropped"`
	Conns           ConnDrops   `json:"conns_dropped"`
}

// PacketDrops counts packets that were not delivered, by reason.
type PacketDrops struct {
	Short        uint64 `json:"short"`
	Version      uint64 `json:"version"` // another format, kind or link
	TooBig       uint64 `json:"too_big"`
	UnknownKey   uint64 `json:"unknown_key"` // names a cluster key that is not accepted here
	Unopened     uint64 `json:"unopened"`    // not sealed with this cluster's key for this node
	UnknownNode  uint64 `json:"unknown_node"`
	OwnName      uint64 `json:"own_name"` // another host claims this node's name, or an echo
	Replayed     uint64 `json:"replayed"`
	StaleSession uint64 `json:"stale_session"` // of a run of the sender that has ended
	Unproven     uint64 `json:"unproven"`      // session not believed yet; a few at each start
	Copies       uint64 `json:"copies"`        // the same packet by a further link: no fault
	QueueFull    uint64 `json:"queue_full"`    // the reader of Packets is too slow
	SendQueue    uint64 `json:"send_queue_full"`
	Send         uint64 `json:"send_failed"`
}

// ConnDrops counts accepted conns that were closed before anyone got them, by reason.
type ConnDrops struct {
	TooMany     uint64 `json:"too_many"`    // more handshakes at once than allowed
	Handshake   uint64 `json:"handshake"`   // no TLS 1.3, too slow, or no certificate
	Certificate uint64 `json:"certificate"` // not made with this cluster's key
	UnknownKey  uint64 `json:"unknown_key"` // names no cluster key that is accepted here
	UnknownNode uint64 `json:"unknown_node"`
	Strangers   uint64 `json:"strangers"` // of no node, for Join, more than allowed
	OwnName     uint64 `json:"own_name"`  // another host claims this node's name
	Protocol    uint64 `json:"protocol"`  // nobody listens for it here
	QueueFull   uint64 `json:"queue_full"`
}

// drop is the reason why a packet or conn was not delivered.
type drop int

const (
	dropNone drop = iota
	dropShort
	dropVersion
	dropTooBig
	dropKey
	dropSealed
	dropUnknownNode
	dropOwnName
	dropReplayed
	dropStaleSession
	dropUnproven
	dropCopy
	dropQueue
	dropSendQueue
	dropSend
	dropConnTooMany
	dropConnHandshake
	dropConnKey
	dropConnCertificate
	dropConnUnknownNode
	dropConnStrangers
	dropConnOwnName
	dropConnProtocol
	dropConnQueue
	drops
)

var dropWords = [drops]string{
	dropShort:           "too short",
	dropVersion:         "unknown version",
	dropTooBig:          "too big",
	dropKey:             "names no cluster key that is accepted here",
	dropSealed:          "not sealed with this cluster's key for this node",
	dropUnknownNode:     "sender is no node of the configuration",
	dropOwnName:         "sender uses this node's own name",
	dropReplayed:        "replayed",
	dropStaleSession:    "of a run of the sender that has ended",
	dropUnproven:        "session not believed yet",
	dropCopy:            "copy by a further link",
	dropQueue:           "reader is too slow",
	dropSendQueue:       "socket does not take packets",
	dropSend:            "cannot be sent",
	dropConnTooMany:     "too many handshakes at once",
	dropConnHandshake:   "handshake failed",
	dropConnKey:         "names no cluster key that is accepted here",
	dropConnStrangers:   "more visitors of no node of the configuration than allowed",
	dropConnCertificate: "certificate not made with this cluster's key",
	dropConnUnknownNode: "peer is no node of the configuration",
	dropConnOwnName:     "peer uses this node's own name",
	dropConnProtocol:    "protocol not served here",
	dropConnQueue:       "listener is too slow",
}

// tally counts and remembers what was reported when.
type tally struct {
	sent, received, accepted, dialed, strangers atomic.Uint64

	drops [drops]atomic.Uint64

	mu       sync.Mutex
	reported [drops]time.Time
}

func (t *tally) lost(why drop) { t.drops[why].Add(1) }

// Counters are the totals since Start.
func (l *Link) Counters() Counters {
	t := &l.tally
	n := func(d drop) uint64 { return t.drops[d].Load() }
	return Counters{
		PacketsSent:     t.sent.Load(),
		PacketsReceived: t.received.Load(),
		ConnsAccepted:   t.accepted.Load(),
		ConnsDialed:     t.dialed.Load(),
		StrangersHeard:  t.strangers.Load(),
		Packets: PacketDrops{
			Short:        n(dropShort),
			Version:      n(dropVersion),
			TooBig:       n(dropTooBig),
			UnknownKey:   n(dropKey),
			Unopened:     n(dropSealed),
			UnknownNode:  n(dropUnknownNode),
			OwnName:      n(dropOwnName),
			Replayed:     n(dropReplayed),
			StaleSession: n(dropStaleSession),
			Unproven:     n(dropUnproven),
			Copies:       n(dropCopy),
			QueueFull:    n(dropQueue),
			SendQueue:    n(dropSendQueue),
			Send:         n(dropSend),
		},
		Conns: ConnDrops{
			TooMany:     n(dropConnTooMany),
			Handshake:   n(dropConnHandshake),
			Certificate: n(dropConnCertificate),
			UnknownKey:  n(dropConnKey),
			UnknownNode: n(dropConnUnknownNode),
			Strangers:   n(dropConnStrangers),
			OwnName:     n(dropConnOwnName),
			Protocol:    n(dropConnProtocol),
			QueueFull:   n(dropConnQueue),
		},
	}
}

// reportPause is between two log lines about one reason: a stranger must not fill the
// disk with them.
const reportPause = 10 * time.Second

// quiet reasons belong to healthy life and are never logged.
func (d drop) quiet() bool { return d == dropCopy || d == dropUnproven || d == dropStaleSession }

// report logs a drop, each reason at most once in reportPause.
func (l *Link) report(why drop, from net.Addr) {
	if why.quiet() {
		return
	}
	t := &l.tally
	now := time.Now()
	t.mu.Lock()
	early := !t.reported[why].IsZero() && now.Sub(t.reported[why]) < reportPause
	if !early {
		t.reported[why] = now
	}
	t.mu.Unlock()
	if early {
		return
	}
	message := "packet dropped"
	if why >= dropConnTooMany {
		message = "connection dropped"
	}
	l.log.Warn(message, "reason", dropWords[why], "address", from.String(), "total", t.drops[why].Load())
}
