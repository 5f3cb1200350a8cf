package link

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Packet is one payload that arrived.
type Packet struct {
	From string    // the node whose packet it is, proven
	Data []byte    // the receiver's own
	At   time.Time // when it was received, monotonic
}

// Send seals payload into one packet and sends it to node over every link. It never
// blocks and promises nothing: packets get lost, and overtake each other; none arrives
// twice. The payload may be reused when Send returns. The first packets between
// two processes may be lost while they learn each other's session.
func (l *Link) Send(node string, payload []byte) error {
	p, err := l.peer(node)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if len(payload) > MaxPayload {
		return fmt.Errorf("send %d bytes to node %s: %w: at most %d", len(payload), node, ErrTooBig, MaxPayload)
	}
	if l.ctx.Err() != nil {
		return fmt.Errorf("send to node %s: %w", node, ErrStopped)
	}
	if !l.post(p, data, p.session(), payload) {
		return fmt.Errorf("send to node %s: %w", node, ErrNoLink)
	}
	return nil
}

// Packets is where packets arrive. Who does not keep up loses some, which is
// counted. Stop closes the channel.
func (l *Link) Packets() <-chan Packet { return l.packets }

// post queues one packet on every path; false if no path has a socket.
func (l *Link) post(p *peer, k kind, echo sessionID, payload []byte) bool {
	keys := l.keys.Load()
	h := header{kind: k, sender: l.cfg.Self, run: run{keys.active.id, keys.session}, echo: echo, seq: p.seq.Add(1)}
	payload = append(p.report(time.Now()), payload...)
	posted := false
	for _, via := range p.paths {
		if !via.local.bound() {
			continue
		}
		posted = true
		h.link = via.index
		o := outgoing{p, via, seal(keys.seals[p.name], h, payload)}
		if l.sendNow(o) {
			continue
		}
		select {
		case via.local.out <- o:
		default:
			l.tally.lost(dropSendQueue)
			p.failed(via, errSendQueue)
		}
	}
	return posted
}

// sendNow sends a packet without a queue, where the socket takes it at once: that saves an idle
// daemon a wake-up for each packet. It reports whether the packet is dealt with.
func (l *Link) sendNow(o outgoing) bool {
	socket, ok := o.path.local.socket().(tryWriter)
	if !ok {
		return false
	}
	err := socket.tryWriteTo(o.data, o.path.to)
	if errors.Is(err, syscall.EAGAIN) {
		return false
	}
	l.written(o, err)
	return true
}

// written counts what became of a packet.
func (l *Link) written(o outgoing, err error) {
	if err == nil {
		l.tally.sent.Add(1)
		return
	}
	if l.ctx.Err() != nil {
		return
	}
	l.tally.lost(dropSend)
	o.peer.failed(o.path, err)
}

var errSendQueue = errors.New("packets pile up: the socket does not take them")

// transmit writes what is queued for one socket.
func (l *Link) transmit(e *endpoint, socket net.PacketConn) {
	for {
		select {
		case <-l.ctx.Done():
			return
		case o := <-e.out:
			_, err := socket.WriteTo(o.data, o.path.to)
			l.written(o, err)
		}
	}
}

// receive reads one socket until it is closed.
func (l *Link) receive(socket net.PacketConn) {
	buffer := make([]byte, maxDatagram+1) // one more, so that too big ones show
	for {
		n, from, err := socket.ReadFrom(buffer)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || !l.pause(hiccup) {
				return
			}
			l.log.Debug("packet read failed", "err", err)
			continue
		}
		if why := l.take(buffer[:n], time.Now()); why != dropNone {
			l.tally.lost(why)
			l.report(why, from)
		}
	}
}

// take handles one datagram, and returns why it was dropped, if it was.
func (l *Link) take(b []byte, now time.Time) drop {
	h, prefix, sealed, why := split(b)
	if why != dropNone {
		return why
	}
	if h.sender == l.cfg.Self {
		return dropOwnName
	}
	p := l.peers[h.sender]
	if p == nil {
		return dropUnknownNode
	}
	opened, open, why := l.open(p, h, prefix, sealed)
	if why == dropKey {
		p.namedForeignKey(h.key, now)
	}
	if why != dropNone {
		return why
	}
	// Authentic from here on; a link, kind or report that makes no sense is a newer or
	// differently configured node.
	told, payload, ok := parseReport(opened)
	if !ok || int(h.link) >= len(p.paths) || h.kind < data || h.kind > pulse {
		return dropVersion
	}
	why, greet := l.admit(p, arrival{h, open, told, len(b), now})
	if greet {
		l.greet(p, h.session)
	}
	if why != dropNone {
		return why
	}
	l.tally.received.Add(1)
	if h.kind != data {
		return dropNone
	}
	select {
	case l.packets <- Packet{From: h.sender, Data: payload, At: now}:
		return dropNone
	default:
		return dropQueue
	}
}
