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
	id      sessionID // zero: none yet
	open    cipher.AEAD
	seen    window // of packets by any link: the first copy is delivered
	retired map[sessionID]struct{}
}

// supersede makes id the session that is accepted.
func (s *session) supersede(id sessionID, open cipher.AEAD) {
	if s.id != (sessionID{}) {
		if s.retired == nil {
			s.retired = make(map[sessionID]struct{})
		}
		s.retired[s.id] = struct{}{}
	}
	s.id, s.open, s.seen = id, open, window{}
}

// open decrypts a packet from p and returns the drop that applies, if any. The
// cipher is returned because a new session's is not kept until it is believed.
func (l *Link) open(p *peer, h header, prefix, sealed []byte) (payload []byte, open cipher.AEAD, why drop) {
	p.mu.Lock()
	if h.session == p.incoming.id {
		open = p.incoming.open
	}
	p.mu.Unlock()
	if open == nil {
		var err error
		open, err = packetCipher(l.cfg.Key, l.cfg.Cluster, h.session, h.sender, l.cfg.Self)
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

// admit decides about a packet that was opened: whether its session is the one to
// believe, and whether this copy is the first. It tells whether to greet the sender.
func (l *Link) admit(p *peer, h header, open cipher.AEAD, now time.Time) (why drop, greet bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := &p.incoming
	if h.session != in.id {
		if _, retired := in.retired[h.session]; retired {
			return dropStaleSession, false
		}
		if h.echo != l.session {
			return dropUnproven, true
		}
		in.supersede(h.session, open)
		for _, via := range p.paths {
			via.seen = window{}
		}
	}
	via := p.paths[h.link]
	newHere := via.seen.first(h.seq)
	if newHere {
		via.packet = now // also for a copy: it proves this link
	}
	if !in.seen.first(h.seq) {
		if newHere {
			return dropCopy, false
		}
		return dropReplayed, false
	}
	p.contact = now
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
