package link

import (
	"encoding/binary"
	"math"
	"time"
)

// Each end of a link sees only what it receives: a cut in one direction is seen by the far
// end alone. So every packet begins with a report on what came from its receiver, by each
// link. On the wire, sealed with the payload:
//
//	number of links 1 | for each link, 2 bytes, big endian:
//	large packets do not come 1 bit | age of the last packet, in units of 10 ms, 15 bits
//
// The highest age stands for itself and all above, and for never.
const (
	reportUnit = 10 * time.Millisecond
	unheard    = 1<<15 - 1
	maxReport  = 1 + 2*maxLinks
)

// linkWord is what a node says of one link to it.
type linkWord struct {
	age       uint16 // in reportUnit; unheard: never, or too long ago to tell
	largeLost bool
}

// report is one node's words on all links, by index.
type report []linkWord

// report tells the peer what came from it.
func (p *peer) report(now time.Time) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := make([]byte, 1, maxReport)
	b[0] = byte(len(p.paths))
	for _, via := range p.paths {
		w := linkWord{unheard, via.largeLost(now)}
		if !via.packet.IsZero() {
			w.age = uint16(min(max(now.Sub(via.packet), 0)/reportUnit, unheard))
		}
		b = w.append(b)
	}
	return b
}

func (w linkWord) append(b []byte) []byte {
	word := w.age
	if w.largeLost {
		word |= 1 << 15
	}
	return binary.BigEndian.AppendUint16(b, word)
}

// parseReport splits what was sealed into report and payload.
func parseReport(b []byte) (r report, payload []byte, ok bool) {
	if len(b) == 0 || b[0] > maxLinks || len(b) < 1+2*int(b[0]) {
		return nil, nil, false
	}
	n := int(b[0])
	b = b[1:]
	for range n {
		word := binary.BigEndian.Uint16(b)
		r = append(r, linkWord{word &^ (1 << 15), word>>15 == 1})
		b = b[2:]
	}
	return r, b, true
}

// told notes the peer's report; the caller holds the lock.
func (p *peer) told(r report, now time.Time) {
	p.word = now
	for i, via := range p.paths {
		if i < len(r) { // else the peer is configured differently
			via.said = r[i]
		}
	}
}

// duration is the age that was told.
func (w linkWord) duration() time.Duration {
	if w.age >= unheard {
		return math.MaxInt64
	}
	return time.Duration(w.age) * reportUnit
}

// since is the age that was told when the word itself is that old, in milliseconds.
func (w linkWord) since(wordMS int64) int64 {
	if wordMS == Never || w.age >= unheard {
		return Never
	}
	return w.duration().Milliseconds() + wordMS
}
