package resourcetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"github.com/hamgr/hamgr/resources"
)

var randomChecks = []check{
	{"nothing is left", nil, nothingLeft},
	{"cancelled at random", nil, cancels},
	{"a life at random", nil, randomLife},
}

// nothingLeft: after stop the daemon and the host are as they were before start.
func nothingLeft(s *suite) {
	life := func() {
		h := s.open()
		h.call("probe", s.ctx())
		h.starts()
		h.stops()
	}
	life() // what is made once, and kept, is none of it
	before := s.holds()
	for range 3 {
		life()
	}
	before.areAll(s)
}

// cancels: calls that are broken off anywhere leave nothing behind, and a stop after them makes it certainly inactive.
func cancels(s *suite) {
	span := s.host.patience()
	for range 3 {
		h, begun := s.open(), time.Now()
		h.starts()
		h.stops()
		span = min(span, max(time.Since(begun), 2*time.Millisecond))
	}
	before := s.holds()
	const steps = 8
	for i := range steps {
		h := s.open()
		ctx, cancel := context.WithTimeout(context.Background(), span*time.Duration(i+1)/steps)
		h.call("start", ctx)
		cancel()
		h.stops()
		before.areAll(s)
		if active := s.host.Active(); len(active) != 0 {
			s.Fatalf("a start that was cancelled before the stop went on after it: %v", active)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for done := 0; done < s.host.operations(); {
		h := s.open()
		verbs := h.verbs()
		for range 1 + rng.IntN(3) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.Int64N(int64(span))))
			h.call(verbs[rng.IntN(len(verbs))], ctx) // any outcome that the judge does not belie
			cancel()
			done++
		}
		if rng.IntN(4) == 0 {
			h.stops()
		}
	}
	s.open().stops()
	before.areAll(s)
	h := s.open()
	h.starts()
	h.stops()
}

// model is what the host must be like after what was done to it.
type model int

const (
	idle    model = iota // certainly inactive
	running              // active under the present token
	foreign              // active under a former one
	dead                 // killed: not active
)

// randomLife: after whatever sequence, a probe says what is.
func randomLife(s *suite) {
	s.randomLife(rand.New(rand.NewPCG(3, 4)), s.host.operations())
}

func (s *suite) randomLife(rng *rand.Rand, n int) {
	acts := map[string]int{"start": 4, "stop": 3, "probe": 2, "daemon": 2, "grant": 1}
	if s.host.Kill != nil {
		acts["kill"] = 2
	}
	var lots []string
	for _, act := range names(acts) {
		for range acts[act] {
			lots = append(lots, act)
		}
	}
	h, m := s.open(), idle
	var past []string
	for range n {
		act := lots[rng.IntN(len(lots))]
		past = append(past, act)
		m = h.live(act, m)
		if act == "daemon" {
			h = s.open()
		} else if act == "grant" {
			h = s.grant()
		}
		if err := h.agrees(m); err != nil {
			s.Fatalf("%v, after: %s", err, strings.Join(past[max(0, len(past)-12):], " "))
		}
	}
	h.stops()
}

// live does one thing, and gives what is to be found after it.
func (h *handle) live(act string, m model) model {
	s := h.s
	s.Helper()
	switch act {
	case "start":
		err := h.call("start", s.ctx()).err
		switch {
		case err == nil && m == foreign: // it went on with what it found
			return running
		case err == nil:
			return running
		case m == idle || m == running:
			s.Fatalf("start: %v", err)
		}
	case "stop":
		if err := h.call("stop", s.ctx()).err; err != nil {
			s.Fatalf("stop: %v", err)
		}
		return idle
	case "kill":
		if m == running || m == foreign {
			s.kill()
			return dead
		}
	case "grant":
		if m == running {
			return foreign
		}
	}
	return m
}

// agrees holds a probe, and the judge, against the model.
func (h *handle) agrees(m model) error {
	h.s.Helper()
	o := h.call("probe", h.s.ctx())
	active := h.s.host.Active()
	ok := o.err == nil
	switch m {
	case idle:
		ok = ok && o.state == resources.Inactive && len(active) == 0
	case running:
		ok = ok && o.state == resources.Active && len(active) == 1
	case foreign:
		ok = ok && (o.state == resources.Failed || o.state == resources.Active) && len(active) == 1
	case dead:
		ok = ok && (o.state == resources.Failed || o.state == resources.Inactive) && len(active) == 0
	}
	if ok {
		return nil
	}
	word := [...]string{"inactive", "active", "active under a former token", "killed"}[m]
	return fmt.Errorf("probe says %v (%q), %v; active: %v; it should be %s; %d goroutines", o.state, o.detail, o.err, active, word, runtime.NumGoroutine())
}
