package agenttest

import (
	"context"
	"errors"
	"time"

	"github.com/hamgr/hamgr/agents"
)

var contextChecks = []check{
	{"a frozen peer", []string{"Freeze", "Thaw"}, frozen},
	{"a peer that freezes within a session", []string{"Freeze", "Thaw"}, frozenLater},
	{"a peer that never answers", []string{"Stalled"}, stalled},
	{"a context that has ended", nil, endedBefore},
	{"open touches nothing", nil, openAlone},
}

const (
	// limit is how long the calls of these checks are given.
	limit = 60 * time.Millisecond
	// closing is how long a handle may take to close afterwards, when the peer is well again.
	closing = 500 * time.Millisecond
	// tries is how often a call may be late before it is held against the agent.
	tries = 5
)

// silence is how a peer comes to say nothing to a handle.
type silence struct {
	name       string
	open       func() *handle
	begin, end func()
	closing    time.Duration // what Close is given afterwards
}

func frozen(s *suite) {
	s.obeys(silence{"fresh", func() *handle { return s.open(s.peer.Device) }, s.peer.Freeze, s.peer.Thaw, closing})
}

func frozenLater(s *suite) {
	s.obeys(silence{"connected", func() *handle {
		h := s.open(s.peer.Device)
		if _, err := h.status(s.ctx()); err != nil {
			s.Fatal(err)
		}
		return h
	}, s.peer.Freeze, s.peer.Thaw, closing})
}

func stalled(s *suite) {
	s.obeys(silence{"stalled", func() *handle { return s.open(*s.peer.Stalled) }, func() {}, func() {}, limit})
}

// calls are the names of all calls of the agent.
func (s *suite) calls() []string {
	names := []string{"close"}
	h := s.open(s.peer.Device)
	for verb := range h.verbs() {
		names = append(names, verb)
	}
	h.close(s.ctx())
	return names
}

// way is how a context ends.
type way struct {
	name  string
	begin func() (context.Context, func())
}

var ways = []way{
	{"deadline", func() (context.Context, func()) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		return ctx, cancel
	}},
	{"cancel", func() (context.Context, func()) {
		ctx, cancel := context.WithCancel(context.Background())
		t := time.AfterFunc(limit, cancel)
		return ctx, func() { t.Stop(); cancel() }
	}},
}

// obeys: each call ends with its context, and does not blame the settings for it.
func (s *suite) obeys(q silence) {
	s.Helper()
	for _, w := range ways {
		for _, verb := range s.calls() {
			s.inTime(q, w, verb)
		}
	}
}

// inTime tries one call. A busy machine may be late by itself: what counts is how much later than
// a goroutine that only waits for the same context, and only a call that is late at each try does not obey.
func (s *suite) inTime(q silence, w way, verb string) {
	s.Helper()
	what := q.name + ", " + verb + ", " + w.name
	var late time.Duration
	for range tries {
		h := q.open()
		call := func(ctx context.Context) error { h.close(ctx); return ctx.Err() }
		if verb != "close" {
			call = h.verbs()[verb]
		}
		q.begin()
		ctx, stop := w.begin()
		returned, woken := make(chan error, 1), make(chan time.Time, 1)
		go func() { <-ctx.Done(); woken <- time.Now() }()
		go func() { returned <- call(ctx) }()
		var err error
		select {
		case err = <-returned:
			now := time.Now()
			stop()
			late = now.Sub(<-woken)
		case <-time.After(limit + 2*time.Second):
			stop()
			q.end()
			s.Fatalf("%s: does not return", what)
		}
		q.end()
		if verb != "close" {
			switch {
			case err == nil:
				s.Errorf("%s: no error, and no answer", what)
			case agents.Lasting(err):
				s.Errorf("%s: silence is blamed on the settings: %v", what, err)
			}
			h.closeWithin(q.closing)
		}
		if late <= slack() {
			return
		}
	}
	s.Errorf("%s: returned %v after the end of its context", what, late)
}

// endedBefore: with a context that has ended nothing is sent, and nobody is told otherwise.
func endedBefore(s *suite) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, connected := range []bool{false, true} {
		h := s.open(s.peer.Device)
		if connected {
			h.reads(agents.On)
		}
		for verb, do := range h.verbs() {
			if err := do(ctx); err == nil {
				s.Errorf("%s, connected %v: no error", verb, connected)
			} else if !errors.Is(err, context.Canceled) {
				s.Errorf("%s, connected %v: not told by its error: %v", verb, connected, err)
			}
		}
	}
	time.Sleep(20 * time.Millisecond) // what was sent arrives
	if p, n := s.peer.Power(), s.peer.Commands(); p != agents.On || n != 0 {
		s.Errorf("the machine is %v, and %d commands arrived", p, n)
	}
}

// openAlone: Open returns at once whatever the device does, and Close after it as well.
func openAlone(s *suite) {
	devices := map[string]*Device{"right": &s.peer.Device, "stalled": s.peer.Stalled, "unreachable": s.peer.Unreachable}
	for name, d := range devices {
		if d == nil {
			continue
		}
		var took time.Duration
		for range tries {
			start := time.Now()
			h := s.open(*d)
			h.close(s.ctx())
			if took = time.Since(start); took <= slack() {
				break
			}
		}
		if took > slack() {
			s.Errorf("%s: open and close took %v", name, took)
		}
	}
	if s.peer.Sessions != nil && s.peer.Sessions() != 0 {
		s.Error("open made a session")
	}
}

// slack is what a call may take beyond the end of its context.
func slack() time.Duration {
	if raceEnabled {
		return 150 * time.Millisecond
	}
	return 50 * time.Millisecond
}
