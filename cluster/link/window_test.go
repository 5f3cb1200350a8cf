package link

import (
	"testing"

	"pgregory.net/rapid"
)

// TestWindowAgainstTwin compares the ring of bits with a plain set. The window
// may forget what is old, but never accepts a number twice, and knows at
// least the last 14 * 64.
func TestWindowAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		seen := make(map[uint64]bool)
		var highest uint64
		for range rapid.IntRange(1, 300).Draw(t, "packets") {
			var seq uint64
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				seq = highest + rapid.Uint64Range(1, 3).Draw(t, "next")
			case 1:
				seq = highest + rapid.Uint64Range(1, 5000).Draw(t, "jump")
			case 2:
				seq = highest - min(highest, rapid.Uint64Range(0, 2000).Draw(t, "back"))
			default:
				seq = rapid.Uint64().Draw(t, "any")
				if seq > 1<<60 && highest < 1<<60 {
					seq >>= 20 // stay away from the end, most times
				}
			}
			near := seq != 0 && (seq > highest || highest-seq <= 14*64)
			first := w.first(seq)
			if first && (seen[seq] || seq == 0) {
				t.Fatalf("%d was accepted twice", seq)
			}
			if !first && near && !seen[seq] {
				t.Fatalf("%d is new and near %d, but was refused", seq, highest)
			}
			seen[seq] = seen[seq] || first
			highest = max(highest, seq)
		}
	})
}
