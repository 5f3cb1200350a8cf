package link

import (
	"crypto/cipher"
	"time"
)

// At most helloBurst greetings go to one peer in each helloPeriod, so that replayed
// packets cannot make this node talk without end.
const (
	helloBurst  = 16
	helloPeriod = 100 * time.Millisecond
)

// session is the run of a peer whose packets are accepted.
//
// A replay window alone is not enough: a process that just started has seen nothing, so
// a recorded packet of an older run would look new, and would even push out the peer's
// present session. So a session is believed only when one of its packets carries
// this process's own session, which nobody knew before this process started. A packet
// that does not is answered with a hello, which tells the peer what to carry:
//
//	A -> B  data or hello, echo unknown or old     B drops it, and greets A
//	B -> A  hello, echo = A's session              A believes B's session
//	A -> B  data, echo = B's session               B believes A's session
//
// A session that was superseded is refused from then on, so packets recorded since
// this process started are worthless too.
type session struct {
	run     run // zero: none yet
	open    cipher.AEAD
	seen    window // of packets by any link: the first copy is delivered
	told    uint64 // sequence number of the newest report
	retired map[run]struct{}
}

// supersede makes r the run that is accepted.
func (s *session) supersede(r run, open cipher.AEAD) {
	if s.run != (run{}) {
		if s.retired == nil {
			s.retired = make(map[run]struct{})
		}
		s.retired[s.run] = struct{}{}
	}
	s.run, s.open, s.seen, s.told = r, open, window{}, 0
}

// open decrypts a packet from p and returns the drop that applies, if any. The
// cipher is returned because a new session's is not kept until it is believed.
func (l *Link) open(p *peer, h header, prefix, sealed []byte) (payload []byte, open cipher.AEAD, why drop) {
	p.mu.Lock()
	if h.run == p.incoming.run {
		open = p.incoming.open
	}
	p.mu.Unlock()
	if open == nil {
		sealedWith := l.keys.Load().held[h.key]
		if sealedWith == nil {
			return nil, nil, dropKey
		}
		var err error
		open, err = packetCipher(sealedWith.key, l.cfg.Cluster, h.session, h.sender, l.cfg.Self)
		if err != nil {
			return nil, nil, dropSealed
		}
	}
	payload, err := open.Open(nil, h.nonce(), sealed, prefix)
	if err != nil {
		return nil, nil, dropSealed
	}
	return payload, open, dropNone
}

// arrival is a packet that was opened.
type arrival struct {
	header
	open   cipher.AEAD
	report report
	size   int // of the whole datagram
	at     time.Time
}

// admit decides about a packet that was opened: whether its run is the one to
// believe, and whether this copy is the first. It tells whether to greet the sender.
func (l *Link) admit(p *peer, a arrival) (why drop, greet bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := &p.incoming
	if a.run != in.run {
		if _, retired := in.retired[a.run]; retired {
			return dropStaleSession, false
		}
		// Asked with the lock held: what SetKeys has dropped is not believed again.
		if keys := l.keys.Load(); a.echo != keys.session || keys.held[a.key] == nil {
			return dropUnproven, true
		}
		in.supersede(a.run, a.open)
		p.began = a.at
		for _, via := range p.paths {
			via.seen = window{}
		}
	}
	via := p.paths[a.link]
	newHere := via.seen.first(a.seq)
	if newHere {
		via.heardPacket(a) // also a copy: it proves this link
	}
	if !in.seen.first(a.seq) {
		if newHere {
			return dropCopy, false
		}
		return dropReplayed, false
	}
	p.contact, p.key = a.at, a.key
	if a.seq > in.told { // an older one has been overtaken
		in.told = a.seq
		p.told(a.report, a.at)
	}
	return dropNone, false
}

// greet sends a hello that carries echo as the peer's session.
func (l *Link) greet(p *peer, echo sessionID) {
	now := time.Now()
	p.mu.Lock()
	if p.greeted.IsZero() || now.Sub(p.greeted) >= helloPeriod {
		p.greeted, p.greetings = now, 0
	}
	p.greetings++
	enough := p.greetings > helloBurst
	p.mu.Unlock()
	if !enough {
		l.post(p, hello, echo, nil)
	}
}
