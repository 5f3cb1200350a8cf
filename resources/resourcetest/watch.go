package resourcetest

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/hamgr/hamgr/resources"
)

var watchChecks = []check{
	{"a death is told", []string{"Kill"}, deathTold},
	{"a watch ends with its context", nil, watchEnds},
	{"a watch ends with a stop", nil, watchStopped},
}

// watcher gives the resource as one that notices its death; nil if it does not.
func (h *handle) watcher() resources.Watcher {
	w, ok := h.res.(resources.Watcher)
	if !ok {
		h.s.Log("it is no Watcher")
	}
	return w
}

// died waits for the death of what is active, beside the check.
func (s *suite) died(w resources.Watcher) (told <-chan error, cancel func()) {
	ctx, cancel := context.WithCancel(context.Background())
	s.Cleanup(cancel)
	c := make(chan error, 1)
	go func() { c <- w.Died(ctx) }()
	return c, cancel
}

// dies demands that the death is told, with a reason.
func (s *suite) dies(told <-chan error) {
	s.Helper()
	select {
	case err := <-told:
		if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("died gives no reason: %v", err)
		}
	case <-time.After(s.host.patience()):
		s.Fatal("its death is not told")
	}
}

// deathTold: the death of what is active is told, to the daemon that started it and to one that was started later,
// also if it came before anybody looked; and nothing is told while it lives.
func deathTold(s *suite) {
	for _, restarted := range []bool{false, true} {
		for _, lives := range []time.Duration{0, 50 * time.Millisecond} {
			h := s.open()
			h.starts()
			if restarted {
				h = s.open()
			}
			w := h.watcher()
			if w == nil {
				return
			}
			told, _ := s.died(w)
			if lives > 0 {
				select {
				case err := <-told:
					s.Fatalf("told while it lives: %v; active: %v", err, s.host.Active())
				case <-time.After(lives):
				}
				h.reads(resources.Active) // calls go on beside it
			}
			s.kill()
			s.dies(told)
			h.readsNot(resources.Active)
			h.stops()
		}
	}
}

// watchEnds: Died ends with its context, tells so, and leaves nothing behind.
func watchEnds(s *suite) {
	h := s.open()
	h.starts()
	w := h.watcher()
	if w == nil {
		return
	}
	goroutines, files := runtime.NumGoroutine(), openFiles(s)
	for _, way := range ways {
		var ends context.Context
		s.inTime("died, "+way.name, way, func() func(context.Context) outcome {
			return func(ctx context.Context) outcome {
				ends = ctx
				return outcome{verb: "died", err: w.Died(ctx)}
			}
		}, func(o outcome) {
			if !errors.Is(o.err, ends.Err()) || o.err == nil {
				s.Errorf("died, %s: %v, active: %v", way.name, o.err, s.host.Active())
			}
			h.reads(resources.Active)
		})
	}
	s.eventually("as many goroutines as before", func() bool { return runtime.NumGoroutine() <= goroutines })
	s.eventually("as many files as before", func() bool { return openFiles(s) <= files })
	h.stops()
}

// watchStopped: what is stopped has ended.
func watchStopped(s *suite) {
	h := s.open()
	h.starts()
	w := h.watcher()
	if w == nil {
		return
	}
	told, _ := s.died(w)
	select {
	case err := <-told:
		s.Fatalf("told while it lives: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	h.stops()
	s.dies(told)
}
