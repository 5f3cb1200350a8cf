package link

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Every node sends a small packet by every link to every other one, 16 times in a
// detection time, where nothing else was sent since the last beat. So contact does not
// depend on what the layers above say, or to whom; and each link is known to work, or
// which direction of it does not, before somebody needs it.
const (
	beats = 16 // in a detection time

	// deadBeats without a packet make a link dead, for streams: a healthy one brings a packet in
	// two beats, so that one may be lost. The far end needs up to two more to tell, and this
	// end one to act: 7/16 of a detection time from the cut until its streams fail.
	deadBeats = 4

	// Every largeBeats the packet is as large as packets get; a link by which three in turn do
	// not come, while small ones do, has too small an MTU.
	largeBeats = 2 * beats
	largeSize  = maxDatagram - 2*maxLinks // the sender may have fewer links than it could

	// stallRest is for how long a link is the last choice after a stream stood still on it.
	stallRest = 20 * beats
)

// keepPulse sends the pulses and ends the streams of dead links, until Stop.
func (l *Link) keepPulse() {
	ticks := time.NewTicker(l.beat)
	defer ticks.Stop()
	sent := make(map[*peer]uint64) // sequence numbers at the last beat
	for n := 0; ; n++ {
		select {
		case <-l.ctx.Done():
			return
		case <-ticks.C:
		}
		for _, p := range l.peers {
			large := n%largeBeats == 0
			if large || p.seq.Load() == sent[p] {
				l.post(p, pulse, p.session(), l.padding(large))
			}
			sent[p] = p.seq.Load()
		}
		l.failOver(time.Now())
	}
}

// padding fills a packet up to the largest size.
func (l *Link) padding(large bool) []byte {
	if !large {
		return nil
	}
	return make([]byte, MaxPayload+maxNameLength-len(l.cfg.Self))
}

// heardPacket notes a packet that came by this link; the caller holds the peer's lock.
func (via *path) heardPacket(a arrival) {
	if via.packet.IsZero() || a.at.Sub(via.packet) > largeBeats*via.beat {
		via.spell = a.at
	}
	via.packet = a.at
	if a.size >= largeSize {
		via.large = a.at
	}
}

// largeLost tells whether packets come by this link, but no large ones; the caller holds
// the peer's lock.
func (via *path) largeLost(now time.Time) bool {
	since := via.spell
	if via.large.After(since) {
		since = via.large
	}
	return !via.packet.IsZero() && now.Sub(via.packet) <= largeBeats*via.beat && now.Sub(since) > 3*largeBeats*via.beat
}

// trouble ranks a link for streams: 0 works, 1 has lost large packets or a stream, 2 is not
// known to work both ways; the caller holds the peer's lock.
func (via *path) trouble(p *peer, now time.Time) int {
	limit := deadBeats * via.beat
	heard := via.packet
	if via.stream.After(heard) {
		heard = via.stream
	}
	switch {
	case heard.IsZero() || now.Sub(heard) > limit || p.word.IsZero() || via.said.duration() > limit:
		return 2
	case via.largeLost(now) || via.said.largeLost,
		!via.stalled.IsZero() && now.Sub(via.stalled) < stallRest*via.beat:
		return 1
	}
	return 0
}

// failOver closes the streams that stand still, where another link works: who holds them
// dials anew, which takes a link that works.
func (l *Link) failOver(now time.Time) {
	l.mu.Lock()
	byPeer := make(map[*peer][]*conn)
	for c := range l.conns {
		if c.peer != nil && len(c.peer.paths) > 1 {
			byPeer[c.peer] = append(byPeer[c.peer], c)
		}
	}
	l.mu.Unlock()
	for p, conns := range byPeer {
		for _, c := range p.stuck(conns, now) {
			l.log.Warn("stream closed: its link does not carry it, another one works", "node", p.name, "address", c.via.address)
			c.abort()
		}
	}
}

// stuck picks the conns whose link is dead, or that stand still, while another link works.
func (p *peer) stuck(conns []*conn, now time.Time) []*conn {
	var stuck []*conn
	for _, c := range conns {
		if c.unanswered() {
			c.standing++
		} else {
			c.standing = 0
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// At first some links have brought no packet yet.
	settled := now.Sub(p.began) > 2*deadBeats*p.paths[0].beat
	good := 0
	trouble := make(map[*path]int)
	for _, via := range p.paths {
		trouble[via] = via.trouble(p, now)
		if trouble[via] == 0 {
			good++
		}
	}
	for _, c := range conns {
		elsewhere := good > 1 || good == 1 && trouble[c.via] != 0
		still := c.standing >= deadBeats
		if !elsewhere || !still && (trouble[c.via] < 2 || !settled) {
			continue
		}
		if still {
			c.via.stalled = now
		}
		stuck = append(stuck, c)
	}
	return stuck
}

// unanswered tells whether bytes are under way and the far host answered nothing for a beat. A
// far end that does not read does not count: its host answers.
func (c *conn) unanswered() bool {
	tcp, ok := c.raw.Conn.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	var info *unix.TCPInfo
	var failed error
	if err := raw.Control(func(fd uintptr) { info, failed = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) }); err != nil || failed != nil {
		return false
	}
	return info.Unacked > 0 && time.Duration(info.Last_ack_recv)*time.Millisecond >= c.link.beat
}
