package demo

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Entry is one write to the ledger, the file that stands for the storage which the nodes
// share. Every write is one line, appended by one system call.
type Entry struct {
	// Mono is the kernel's monotonic clock in nanoseconds: all processes of one machine share it,
	// so that writes of different nodes can be put in order without trusting any node.
	Mono  uint64
	Node  string
	Boot  string
	Token uint64
	PID   int
	Seq   uint64 // from 1, without gaps, for each writing process
}

// The fields of a line, separated by one space, in this order.
const entryFields = 6

// String is the entry as it stands in the file, without the newline.
func (e Entry) String() string {
	return fmt.Sprintf("%020d %s %s %020d %d %d", e.Mono, e.Node, e.Boot, e.Token, e.PID, e.Seq)
}

var errLedger = errors.New("not a line of a ledger")

// ParseEntry reads one line as Entry.String wrote it, and nothing else: a torn or padded
// line is a finding, not something to be read kindly.
func ParseEntry(line string) (Entry, error) {
	f := strings.Split(line, " ")
	if len(f) != entryFields || f[1] == "" || f[2] == "" {
		return Entry{}, fmt.Errorf("%w: %q", errLedger, line)
	}
	mono, err1 := strconv.ParseUint(f[0], 10, 64)
	token, err2 := strconv.ParseUint(f[3], 10, 64)
	pid, err3 := strconv.Atoi(f[4])
	seq, err4 := strconv.ParseUint(f[5], 10, 64)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return Entry{}, fmt.Errorf("%w: %q: %w", errLedger, line, err)
	}
	e := Entry{Mono: mono, Node: f[1], Boot: f[2], Token: token, PID: pid, Seq: seq}
	if e.String() != line {
		return Entry{}, fmt.Errorf("%w: %q", errLedger, line)
	}
	return e, nil
}

// ReadLedger reads a whole ledger in the order of its lines, which is the order in which
// the storage took the writes. A file that does not exist is an empty ledger.
func ReadLedger(path string) ([]Entry, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := parseLedger(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return entries, nil
}

func parseLedger(text string) ([]Entry, error) {
	var entries []Entry
	for n, line := range strings.SplitAfter(text, "\n") {
		if line == "" {
			break // what follows the last newline
		}
		body, whole := strings.CutSuffix(line, "\n")
		if !whole {
			return nil, fmt.Errorf("line %d: %w: %q is torn", n+1, errLedger, line)
		}
		e, err := ParseEntry(body)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Verdict is what a ledger says by itself, whatever the nodes believe.
type Verdict struct {
	Writes int
	// Overlaps are the writes of a token that came after the first write of a higher one, in
	// the order of the storage or by the clock. There must be none: one is two writers at once.
	Overlaps []Entry
	// Lost are the writing processes whose sequence has a gap or a repetition.
	Lost []Entry
	// Gap is the time without any write around the change from one token to the next, the
	// longest one, in nanoseconds: how long the service stood still.
	Gap uint64
}

// Judge finds the overlaps in a ledger.
func Judge(entries []Entry) Verdict {
	v := Verdict{Writes: len(entries)}
	byClock := slices.Clone(entries)
	slices.SortStableFunc(byClock, func(a, b Entry) int { return cmp.Compare(a.Mono, b.Mono) })
	late := map[Entry]bool{}
	for _, order := range [][]Entry{entries, byClock} {
		var highest uint64
		for _, e := range order {
			if e.Token < highest {
				late[e] = true
			}
			highest = max(highest, e.Token)
		}
	}
	for _, e := range entries {
		if late[e] {
			v.Overlaps = append(v.Overlaps, e)
			delete(late, e)
		}
	}

	type writer struct {
		boot string
		pid  int
	}
	next := map[writer]uint64{}
	for _, e := range entries {
		w := writer{e.Boot, e.PID}
		if e.Seq != next[w]+1 {
			v.Lost = append(v.Lost, e)
		}
		next[w] = e.Seq
	}
	for i := 1; i < len(byClock); i++ {
		if byClock[i].Token != byClock[i-1].Token {
			v.Gap = max(v.Gap, byClock[i].Mono-byClock[i-1].Mono)
		}
	}
	return v
}
