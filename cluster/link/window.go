package link

// windowWords gives the reach of a window: 15 * 64 packets may overtake each other.
const windowWords = 16

// window remembers which sequence numbers were seen, as far back as it reaches; what
// is older counts as seen (the scheme of RFC 6479). The zero value has seen nothing.
type window struct {
	highest uint64
	bits    [windowWords]uint64 // a ring; word (seq/64)%windowWords
}

// first reports whether seq is seen for the first time, and remembers it.
func (w *window) first(seq uint64) bool {
	if seq == 0 {
		return false
	}
	word := seq / 64
	top := w.highest / 64
	switch {
	case word > top:
		for i := range min(word-top, windowWords) {
			w.bits[(top+1+i)%windowWords] = 0
		}
	case top-word >= windowWords-1:
		return false // too old to know
	}
	w.highest = max(w.highest, seq)
	bit := uint64(1) << (seq % 64)
	seen := w.bits[word%windowWords]&bit != 0
	w.bits[word%windowWords] |= bit
	return !seen
}
