package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Event is one line of a daemon's log.
type Event struct {
	At       time.Time // the daemon's own timestamp: all daemons share the machine's clock
	Observer string    // the node whose log it is
	Level    string
	Message  string // a constant phrase, such as "node dead"
	attrs    map[string]json.RawMessage
	line     string
}

// Text is an attribute in words, empty if the event has none of that name.
func (e Event) Text(key string) string {
	raw := e.attrs[key]
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// Uint is an attribute that is a number, 0 if the event has none of that name.
func (e Event) Uint(key string) uint64 {
	var n uint64
	if json.Unmarshal(e.attrs[key], &n) != nil {
		return 0
	}
	return n
}

// parseEvent reads one line of slog's JSON. Whatever else a daemon writes to its standard
// error, a panic for example, is kept as it is, as an event without a message.
func parseEvent(observer, line string) Event {
	e := Event{Observer: observer, line: line}
	var attrs map[string]json.RawMessage
	if json.Unmarshal([]byte(line), &attrs) != nil {
		return e
	}
	e.attrs = attrs
	if at, err := time.Parse(time.RFC3339Nano, e.Text("time")); err == nil {
		e.At = at
	}
	e.Level, e.Message = e.Text("level"), e.Text("msg")
	return e
}

// Events follows the log files of a cluster's daemons. It is safe for concurrent use.
type Events struct {
	mu      sync.Mutex
	all     []Event       // in the order in which they were read
	changed chan struct{} // closed and replaced when all grows

	stop chan struct{}
	done sync.WaitGroup
}

// followEvery is how often the files are looked at. It delays the display, not the
// figures: those are made of the daemons' own timestamps.
const followEvery = 5 * time.Millisecond

// follow reads the files, by node, from now until Close. They need not exist yet.
func follow(files map[string]string) *Events {
	ev := &Events{changed: make(chan struct{}), stop: make(chan struct{})}
	for node, path := range files {
		ev.done.Go(func() { ev.read(node, path) })
	}
	return ev
}

// Close ends the following; what was read stays.
func (ev *Events) Close() {
	close(ev.stop)
	ev.done.Wait()
}

func (ev *Events) read(node, path string) {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	var file *os.File
	defer func() {
		if file != nil {
			_ = file.Close()
		}
	}()
	var partial []byte
	for {
		if file == nil {
			file, _ = os.Open(path) // it appears when the daemon starts
		}
		if file != nil {
			// What cannot be read now is read at the next tick.
			more, _ := io.ReadAll(file)
			partial = append(partial, more...)
			end := bytes.LastIndexByte(partial, '\n') + 1
			ev.add(node, string(partial[:end]))
			partial = partial[end:]
		}
		select {
		case <-ev.stop:
			return
		case <-tick.C:
		}
	}
}

func (ev *Events) add(node, text string) {
	if text == "" {
		return
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	for line := range strings.Lines(text) {
		ev.all = append(ev.all, parseEvent(node, strings.TrimSuffix(line, "\n")))
	}
	close(ev.changed)
	ev.changed = make(chan struct{})
}

// from gives the events read since the first n, and what is closed when there are more.
func (ev *Events) from(n int) ([]Event, <-chan struct{}) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	return slices.Clone(ev.all[n:]), ev.changed
}

// Each calls f with every event, past and future, one after the other, until f says that it has seen
// enough, or ctx ends.
func (ev *Events) Each(ctx context.Context, f func(Event) (enough bool)) error {
	for n := 0; ; {
		events, changed := ev.from(n)
		for _, e := range events {
			if f(e) {
				return nil
			}
		}
		n += len(events)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// All gives the events read so far that match, in the order of their timestamps.
func (ev *Events) All(match func(Event) bool) []Event {
	events, _ := ev.from(0)
	events = slices.DeleteFunc(events, func(e Event) bool { return !match(e) })
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	return events
}

// Tail is the end of each daemon's log, as an aid when something went wrong.
func (ev *Events) Tail(lines int) string {
	byNode := map[string][]string{}
	events, _ := ev.from(0)
	for _, e := range events {
		byNode[e.Observer] = append(byNode[e.Observer], e.line)
	}
	var b strings.Builder
	nodes := make([]string, 0, len(byNode))
	for n := range byNode {
		nodes = append(nodes, n)
	}
	slices.Sort(nodes)
	for _, n := range nodes {
		all := byNode[n]
		fmt.Fprintf(&b, "--- the last lines of %s's log\n%s\n", n, strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	return b.String()
}

// errNotSeen is what a wait that ran out of time has in common.
var errNotSeen = errors.New("not seen in time")

// Await returns the first event that matches; what it is called in words is for the error.
func (ev *Events) Await(ctx context.Context, what string, match func(Event) bool) (Event, error) {
	var found Event
	err := ev.Each(ctx, func(e Event) bool {
		if match(e) {
			found = e
			return true
		}
		return false
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return Event{}, fmt.Errorf("%s: %w", what, errNotSeen)
	}
	return found, err
}
