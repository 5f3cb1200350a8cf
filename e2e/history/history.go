// Package history judges what real processes did. A History is what one observer saw of a cluster's run: the nodes' logs
// say what was decided, the shared storage what was written, the power device what was switched. Check holds it against
// the safety rules, one by one; Linearizable against a model in which a group is a lock. Neither asks a node, and neither
// knows how hamgr works.
package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Kind is what happened.
type Kind string

const (
	Granted   Kind = "granted"   // the log gives a group to a node: At is not before that
	Started   Kind = "started"   // something of a group runs on a node from here on
	Write     Kind = "write"     // the storage has taken a write of a group
	Refused   Kind = "refused"   // the storage has refused one, because its token is over
	Stopped   Kind = "stopped"   // nothing of a grant runs any more: At is not after the moment when that is known
	Commanded Kind = "commanded" // a node's power is being switched off
	SeenOff   Kind = "seen off"  // a node's power was read, and it was off
	Word      Kind = "word"      // an operator said that a node is down
	PowerOn   Kind = "power on"  // a node's power is being switched on
	Boot      Kind = "boot"      // a node begins a new boot
	Killed    Kind = "killed"    // a node's daemon, or all of the node
	Frozen    Kind = "frozen"    // a node stands still
	Thawed    Kind = "thawed"    // and goes on
)

var kinds = []Kind{Granted, Started, Write, Refused, Stopped, Commanded, SeenOff, Word, PowerOn, Boot, Killed, Frozen, Thawed}

// Event is one thing that happened, at a time of the observer's monotonic clock. What a kind does not speak of is empty.
type Event struct {
	At    time.Duration `json:"at"`
	Kind  Kind          `json:"kind"`
	Node  string        `json:"node,omitempty"`
	Boot  string        `json:"boot,omitempty"` // empty, where a node is named: not known
	Group string        `json:"group,omitempty"`
	Token uint64        `json:"token,omitempty"`
	Line  int           `json:"line,omitempty"` // of a write: its place in the order in which the storage took them, from 1
}

func (e Event) String() string {
	s := fmt.Sprintf("%v %s", e.At, e.Kind)
	for _, word := range []string{e.Node, e.Boot, e.Group} {
		if word != "" {
			s += " " + word
		}
	}
	if e.Token != 0 {
		s += fmt.Sprintf(" token %d", e.Token)
	}
	return s
}

// History is all that was seen, in any order.
type History []Event

// sorted gives the events in the order of their times. Those of one moment stay as they were recorded.
func (h History) sorted() History {
	h = slices.Clone(h)
	slices.SortStableFunc(h, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return h
}

// Write writes a history, sorted, one line of JSON an event.
func (h History) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	for _, e := range h.sorted() {
		if err := enc.Encode(e); err != nil {
			return fmt.Errorf("write %v: %w", e, err)
		}
	}
	return out.Flush()
}

var errEvent = errors.New("not an event")

// Read reads what Write wrote. A line that says more, or something else, is an error.
func Read(r io.Reader) (h History, err error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	for {
		var e Event
		switch err := dec.Decode(&e); {
		case err == io.EOF:
			return h, nil
		case err != nil:
			return nil, fmt.Errorf("event %d: %w", len(h)+1, err)
		case !slices.Contains(kinds, e.Kind) || e.At < 0 || e.Line < 0:
			return nil, fmt.Errorf("event %d: %w: %v", len(h)+1, errEvent, e)
		}
		h = append(h, e)
	}
}
