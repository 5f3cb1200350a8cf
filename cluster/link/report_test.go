package link

import (
	"bytes"
	"testing"
	"time"
)

// FuzzReport: whatever a newer or differently configured node seals does not panic, and what
// is read is what was written.
func FuzzReport(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 1, 2})
	f.Add([]byte{2, 0x80, 1, 0x7f, 0xff, 9})
	f.Add([]byte{maxLinks + 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, payload, ok := parseReport(b)
		if !ok {
			if r != nil || payload != nil {
				t.Fatal("a refusal came with something")
			}
			return
		}
		again := []byte{byte(len(r))}
		for _, w := range r {
			again = w.append(again)
		}
		if !bytes.Equal(append(again, payload...), b) {
			t.Fatalf("%x was read as %v", b, r)
		}
	})
}

// TestOvertakenReport: an older report that comes later, or comes again, changes nothing.
func TestOvertakenReport(t *testing.T) {
	w := newWire(t, "alpha", "beta")
	w.meet("alpha", "beta")
	alpha, beta := w.links["alpha"], w.links["beta"]
	tell := func(seq uint64, link byte, age uint16) []byte {
		h := header{kind: pulse, link: link, sender: "alpha", run: alpha.run(), echo: beta.run().session, seq: seq}
		return seal(alpha.keys.Load().seals["beta"], h, linkWord{age: age}.append([]byte{1}))
	}
	said := func() uint16 { return beta.peers["alpha"].paths[0].said.age }
	newer, older := tell(101, 0, 7), tell(100, 0, 9)
	for _, step := range []struct {
		packet []byte
		want   drop
		says   uint16
	}{{newer, dropNone, 7}, {older, dropNone, 7}, {older, dropReplayed, 7}, {tell(100, 1, 9), dropCopy, 7}, {tell(102, 1, 8), dropNone, 8}} {
		if got := beta.take(bytes.Clone(step.packet), time.Now()); got != step.want || said() != step.says {
			t.Errorf("%q, and the word is %d; want %q and %d", dropWords[got], said(), dropWords[step.want], step.says)
		}
	}
	if beta.peers["alpha"].paths[1].said.age != unheard {
		t.Error("a link of which nothing was said has a word")
	}
}
