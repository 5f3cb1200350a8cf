package resourcetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hamgr/hamgr/resources"
)

var contextChecks = []check{
	{"a context that has ended", nil, endedBefore},
	{"a hang", []string{"Hangs"}, hang},
}

const (
	// limit is how long the calls of these checks are given.
	limit = 40 * time.Millisecond
	// slack is what a call may take beyond the end of its context: 50 ms, and as much again for a busy machine.
	slack = 100 * time.Millisecond
	// tries is how often a call may be late before it is held against the resource.
	tries = 5
)

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

// endedBefore: a call whose context has ended starts nothing, and says so, unless there was nothing to do or to wait for.
func endedBefore(s *suite) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, active := range []bool{false, true} {
		h := s.open()
		if active {
			h.starts()
			if w, ok := h.res.(resources.Watcher); ok {
				if err := w.Died(ctx); !errors.Is(err, context.Canceled) {
					s.Errorf("died: %v", err)
				}
			}
		}
		for _, verb := range h.verbs() {
			before := s.host.Active()
			o := h.call(verb, ctx) // what is true may be said all the same
			if o.err == nil && (verb == "start" && !active || verb == "stop" && active) {
				s.Errorf("%s, active %v: no error", verb, active)
			} else if o.err != nil && !errors.Is(o.err, context.Canceled) {
				s.Errorf("%s, active %v: not told by its error: %v", verb, active, o.err)
			}
			if after := s.host.Active(); verb != "stop" && !slices.Equal(after, before) {
				s.Errorf("%s, active %v: made %v of %v", verb, active, after, before)
			}
		}
		h.stops()
	}
}

// hang: a call that hangs ends with its context, by an error that neither says inactive nor blames the setup; and
// when the hang is over, a stop succeeds, whatever was begun before.
func hang(s *suite) {
	for _, name := range names(s.host.Hangs) {
		fault := s.host.Hangs[name]
		for _, active := range []bool{true, false} {
			for _, verb := range s.open().verbs() {
				if fault.Calls != nil && !slices.Contains(fault.Calls, verb) {
					continue
				}
				for _, w := range ways {
					s.hangs(fmt.Sprintf("%s, active %v, %s, %s", name, active, verb, w.name), fault, active, verb, w)
				}
			}
		}
	}
}

func (s *suite) hangs(what string, fault Hang, active bool, verb string, w way) {
	s.Helper()
	var h *handle
	s.inTime(what, w, func() func(context.Context) outcome {
		h = s.open()
		if active {
			h.starts()
		}
		s.begin(fault.Fault)
		return func(ctx context.Context) outcome { return h.try(verb, ctx) }
	}, func(o outcome) {
		switch {
		case o.err == nil && fault.Calls != nil && active == (verb == "start"): // it had only to look
		case o.err == nil && verb != "probe":
			s.Errorf("%s: no error", what)
		case o.err == nil && (o.state == resources.Inactive || o.state == resources.Active): // that it hangs may be its failure
			s.Errorf("%s: probe says %v (%q)", what, o.state, o.detail)
		case errors.Is(o.err, resources.ErrSetup):
			s.Errorf("%s: a hang is blamed on the setup: %v", what, o.err)
		}
		s.mend()
		h.stops()
	})
}

// inTime tries one call that waits for the end of its context. A busy machine may be late by itself: what counts is how
// much later than a goroutine that only waits for the same context, and only a call that is late at each try does
// not obey.
func (s *suite) inTime(what string, w way, prepare func() func(context.Context) outcome, after func(outcome)) {
	s.Helper()
	var late time.Duration
	for range tries {
		call := prepare()
		before := s.host.Active()
		ctx, stop := w.begin()
		returned, woken := make(chan outcome, 1), make(chan time.Time, 1)
		go func() { <-ctx.Done(); woken <- time.Now() }()
		go func() { returned <- call(ctx) }()
		select {
		case o := <-returned:
			now := time.Now()
			stop()
			late = now.Sub(<-woken)
			(&handle{s: s}).judge(before, o)
			after(o)
		case <-time.After(limit + s.host.patience()):
			stop()
			s.Fatalf("%s: does not return", what)
		}
		if late <= slack {
			return
		}
	}
	s.Fatalf("%s: returned %v after the end of its context", what, late)
}
