package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The history is bounded, since every snapshot carries it. Together, with 32 nodes, it stays
// below 4 MiB; a test fills it to the brim.
const (
	keepOperations = 256  // closed operations
	keepFull       = 32   // of these, the newest, that keep what devices said
	keepAttempts   = 8    // of an open operation
	keepClosed     = 3    // attempts of a closed one; of an open one, those that keep what devices said
	keepDevices    = 64   // lines of an attempt
	keepFenced     = 16   // Node.Fenced
	maxText        = 300  // bytes of one text, as JSON
	maxDevices     = 8192 // bytes of what devices said in one attempt, as JSON
	maxEvidence    = 4096 // bytes of a proof's evidence, as JSON
	maxOpinions    = 2048 // bytes of an attempt's opinions, as JSON
	maxNote        = 900  // bytes of a note, as JSON
)

// record adds what came of an attempt.
func record(o *Operation, a Attempt) {
	a.Executor, a.Error = clip(a.Executor, maxText), clip(a.Error, maxText)
	a.Devices = clipDevices(a.Devices)
	a.Opinions = clipLines(a.Opinions, maxOpinions)
	trail := append(slices.Clone(o.Trail), a)
	o.Trail = thin(trail[max(0, len(trail)-keepAttempts):], keepClosed)
}

// thin drops what devices said in all attempts but the newest.
func thin(trail []Attempt, newest int) []Attempt {
	for i := range max(0, len(trail)-newest) {
		trail[i].Devices, trail[i].Opinions = nil, nil
	}
	return trail
}

// close ends an operation, and forgets the oldest ones.
func (t *step) close(o *Operation, phase OpPhase, note string) {
	o.Phase, o.EndedAt = phase, t.at
	addNote(o, note)
	o.Trail = slices.Clone(o.Trail[max(0, len(o.Trail)-keepClosed):])
	t.setOperation(o)
	var closed []uint64
	for _, id := range slices.Sorted(maps.Keys(t.Operations)) {
		if !t.Operations[id].Open() {
			closed = append(closed, id)
		}
	}
	if extra := len(closed) - keepOperations; extra > 0 {
		for _, id := range closed[:extra] {
			delete(t.Operations, id)
		}
		closed = closed[extra:]
	}
	for _, id := range closed[:max(0, len(closed)-keepFull)] {
		t.shorten(id)
	}
}

// shorten leaves of an old operation only how its last attempt ended.
func (t *step) shorten(id uint64) {
	o := *t.Operations[id]
	last := len(o.Trail) - 1
	if last < 0 || last == 0 && o.Trail[0].Devices == nil && o.Trail[0].Opinions == nil {
		return
	}
	o.Trail = thin(slices.Clone(o.Trail[last:]), 0)
	t.Operations[id] = &o
}

func addNote(o *Operation, note string) {
	if o.Note != "" && note != "" {
		note = o.Note + "; " + note
	}
	if note != "" {
		o.Note = clip(note, maxNote)
	}
}

func clipDevices(all []DeviceResult) []DeviceResult {
	var kept []DeviceResult
	left := maxDevices
	for _, d := range all[:min(len(all), keepDevices)] {
		d.Device, d.Plug, d.State = clip(d.Device, maxText), clip(d.Plug, maxText), clip(d.State, maxText)
		d.Detail, d.Trouble, d.Error = clip(d.Detail, maxText), clip(d.Trouble, maxText), clip(d.Error, maxText)
		b, err := json.Marshal(d)
		if left -= len(b) + len(","); err != nil || left < 0 {
			break
		}
		kept = append(kept, d)
	}
	return kept
}

// clipLines bounds a list of texts; at least one line stays.
func clipLines(lines []string, most int) []string {
	var kept []string
	for i, l := range lines {
		l = clip(l, maxText)
		if most -= jsonLen(l) + len(`"",`); most < 0 {
			return append(kept, fmt.Sprintf("(%d more)", len(lines)-i))
		}
		kept = append(kept, l)
	}
	return kept
}

// Kept is a text from outside as the state keeps it: one line, and not too long.
func Kept(s string) string { return clip(s, maxText) }

// clip makes a text that came from outside fit for keeping: at most so many bytes as JSON, on one line.
func clip(s string, most int) string {
	const more = "..."
	const widest = 3                     // bytes of a character that becomes one byte
	s = s[:min(len(s), widest*(most+1))] // what is beyond is cut off anyway
	clean := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	if jsonLen(clean) <= most {
		return clean
	}
	left := most - len(more)
	for i, r := range clean {
		if left -= jsonRune(r); left < 0 {
			return clean[:i] + more
		}
	}
	return clean
}

func jsonLen(s string) int {
	n := 0
	for _, r := range s {
		n += jsonRune(r)
	}
	return n
}

// jsonRune is how many bytes encoding/json makes of a character.
func jsonRune(r rune) int {
	switch r {
	case '"', '\\':
		return 2
	case '<', '>', '&', utf8.RuneError:
		return len(`\u003c`)
	}
	return utf8.RuneLen(r)
}
