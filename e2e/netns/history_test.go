package netns

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cmd/hamgr/demo"
	"github.com/hamgr/hamgr/e2e/history"
)

// recorder collects what the test does to the hosts, and sees of their power, by the monotonic clock, which the writers
// share. The logs have the wall clock: what that shows is known for the beginning.
type recorder struct {
	wall time.Time
	mono time.Duration

	mu     sync.Mutex
	events history.History
}

func newRecorder() *recorder { return &recorder{wall: time.Now().Round(0), mono: monotonic()} }

func (r *recorder) now() time.Duration { return monotonic() - r.mono }

// saw records what happens now; a boot ID is the node's, where it is known.
func (r *recorder) saw(kind history.Kind, node, boot string) {
	r.sawAt(r.now(), kind, node, boot)
}

func (r *recorder) sawAt(at time.Duration, kind history.Kind, node, boot string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, history.Event{At: at, Kind: kind, Node: node, Boot: boot})
}

// logged are the lines of the daemons' logs that a history has. What runs on a node, it says itself: of a group that has one
// resource, that the resource has stopped says all. The coordinator, which repeats it, may die before.
var logged = map[string]history.Kind{
	"group granted":                          history.Granted,
	"resource started":                       history.Started,
	"resource stopped":                       history.Stopped,
	"group stopped":                          history.Stopped,
	"an operator says that the node is down": history.Word,
}

// recorded is all that was seen of the cluster so far.
func (l *lab) recorded() history.History {
	l.t.Helper()
	r := l.seen
	r.mu.Lock()
	h := append(history.History(nil), r.events...)
	r.mu.Unlock()
	// If the machine's wall clock stepped, a line is from somewhere between these two. A grant counts as late as it may
	// have been, a proof as early.
	stepped := time.Now().Round(0).Sub(r.wall) - r.now()
	early, late := max(0, stepped), max(0, -stepped)
	for _, e := range l.events(func(e event) bool { return logged[e.Msg] != "" }) {
		at := e.Time.Sub(r.wall)
		kind := logged[e.Msg]
		if kind == history.Stopped || kind == history.Word {
			at -= early
		} else {
			at += late
		}
		h = append(h, history.Event{At: max(0, at), Kind: kind, Node: e.Node, Boot: e.Boot, Group: e.Group, Token: e.Token})
	}
	for _, g := range l.groups {
		for i, e := range l.entries(g + ".ledger") {
			h = append(h, r.entry(history.Write, g, e, i+1))
		}
		for _, e := range l.entries(g + ".refused") {
			h = append(h, r.entry(history.Refused, g, e, 0))
		}
	}
	return h
}

func (r *recorder) entry(kind history.Kind, group string, e demo.Entry, line int) history.Event {
	return history.Event{At: time.Duration(e.Mono) - r.mono, Kind: kind, Node: e.Node, Boot: e.Boot, Group: group, Token: e.Token, Line: line}
}

// checkHistory is the end of every test. What it saw is kept if the test has failed.
func (l *lab) checkHistory() {
	l.t.Helper()
	h := l.recorded()
	for _, v := range append(history.Check(h), history.Linearizable(h)...) {
		l.t.Error(v)
	}
	if !l.t.Failed() {
		return
	}
	file, err := os.CreateTemp("", "hamgr-history-*.jsonl") // not in memory: that ends with the namespaces
	if err != nil {
		l.t.Error(err)
		return
	}
	defer file.Close()
	if err := h.Write(file); err != nil {
		l.t.Error(err)
	}
	l.t.Logf("the history is in %s", file.Name())
}

// TestHistoryIsRecorded: of a failover, the history has everything that the rules speak of; and without the one reading
// that proved the dead host off, it is one that breaks them.
func TestHistoryIsRecorded(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 3})
	before := l.writes(theGroup)
	if err := l.hosts[before.Node].freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.settled("taken over, and the shot one is back", l.names...)
	l.writes(theGroup)
	l.judge()
	h, seen := l.recorded(), map[history.Kind]int{}
	var unproven history.History
	for _, e := range h {
		seen[e.Kind]++
		if e.Node != before.Node || e.Kind != history.SeenOff && (e.Kind != history.Boot || e.Boot == before.Boot) {
			unproven = append(unproven, e)
		}
	}
	for _, kind := range []history.Kind{history.Granted, history.Started, history.Write, history.Frozen, history.Commanded, history.SeenOff, history.Killed, history.PowerOn, history.Boot} {
		if seen[kind] == 0 {
			t.Errorf("nothing is %s: %v", kind, seen)
		}
	}
	if all := history.Check(unproven); len(all) == 0 || all[0].Rule != history.ProofFirst {
		t.Errorf("without a proof: %v", all)
	}
	if len(history.Linearizable(unproven)) == 0 {
		t.Error("without a proof a lock would have given it so")
	}
}
