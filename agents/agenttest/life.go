package agenttest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/hamgr/hamgr/agents"
)

var lifeChecks = []check{
	{"sessions end with the handle", []string{"Sessions"}, sessions},
	{"use after close", nil, afterClose},
	{"close after errors and cancels", nil, closeAlways},
	{"cancelled at random", nil, cancels},
	{"a restart of the device", []string{"Restart"}, restart},
}

// sessions: at most one is open for a handle, none after it.
func sessions(s *suite) {
	for range 3 {
		h := s.open(s.peer.Device)
		for range 2 {
			for verb, do := range h.verbs() {
				if err := do(s.ctx()); err != nil {
					s.Errorf("%s: %v", verb, err)
				}
				if n := s.peer.Sessions(); n > 1 {
					s.Errorf("%d sessions are open for one handle, after %s", n, verb)
				}
			}
		}
		if err := h.close(s.ctx()); err != nil {
			s.Errorf("close: %v", err)
		}
		s.settled()
	}
}

// afterClose: a closed handle fails, and sends nothing.
func afterClose(s *suite) {
	for _, used := range []bool{false, true} {
		h := s.open(s.peer.Device)
		if used {
			h.reads(agents.On)
		}
		if err := h.close(s.ctx()); err != nil {
			s.Errorf("close: %v", err)
		}
		for verb, do := range h.verbs() {
			if do(s.ctx()) == nil {
				s.Errorf("%s after close: no error", verb)
			}
		}
		h.close(s.ctx()) // an error or not
	}
	if p, n := s.peer.Power(), s.peer.Commands(); p != agents.On || n != 0 {
		s.Errorf("the machine is %v, and %d commands arrived", p, n)
	}
	s.settled()
}

// closeAlways: Close is safe after whatever went wrong before, also under a context that has
// ended, and leaves no session where the peer could still be told.
func closeAlways(s *suite) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	troubles := map[string]*Device{
		"cancel": &s.peer.Device, "wrong password": s.peer.WrongPassword,
		"unreachable": s.peer.Unreachable, "wrong plug": s.peer.WrongPlug,
	}
	for name, d := range troubles {
		if d == nil {
			continue
		}
		h := s.open(*d)
		use := s.ctx()
		if name == "cancel" {
			use = ctx
		}
		if _, err := h.status(use); err == nil {
			s.Errorf("%s: no error", name)
		}
		start := time.Now()
		h.close(s.ctx())
		if took := time.Since(start); took > s.peer.patience()/2 {
			s.Errorf("%s: close took %v", name, took)
		}
	}
	s.settled()
	h := s.open(s.peer.Device)
	h.reads(agents.On)
	h.close(ctx) // may keep its session, and must not hang or panic
}

// cancels: operations that are broken off anywhere leave neither sessions nor goroutines nor
// files, and the shot after them goes through.
func cancels(s *suite) {
	span := s.peer.patience() // twice of what a read takes, at best
	for range 4 {
		h := s.open(s.peer.Device)
		start := time.Now()
		h.reads(agents.On)
		span = min(span, max(2*time.Since(start), 2*time.Millisecond))
		h.close(s.ctx())
	}
	goroutines, files := runtime.NumGoroutine(), openFiles(s)

	n := s.peer.Operations
	if n == 0 {
		n = 200
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range n {
		h := s.open(s.peer.Device)
		verbs := h.verbs()
		names := slices.Sorted(maps.Keys(verbs))
		for range 1 + rng.IntN(2) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.Int64N(int64(span))))
			verbs[names[rng.IntN(len(names))]](ctx) // any outcome
			cancel()
		}
		h.close(s.ctx())
	}
	s.settled()
	s.eventually("as many files as before", func() bool { return openFiles(s) <= files })
	s.eventually("as many goroutines as before", func() bool { return runtime.NumGoroutine() <= goroutines })

	s.peer.SetPower(agents.On)
	h := s.open(s.peer.Device)
	if err := h.off(s.ctx()); err != nil {
		s.Errorf("off after them: %v", err)
	}
	h.becomes(agents.Off)
}

func openFiles(s *suite) int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", os.Getpid()))
	if err != nil {
		s.Fatal(err)
	}
	return len(entries)
}

// restart: the device forgets its sessions; the handle finds its way back, or a fresh one does
// at once. Nothing that is read meanwhile is off.
func restart(s *suite) {
	h := s.open(s.peer.Device)
	h.reads(agents.On)
	s.peer.Restart()
	for range 3 {
		if r, _ := h.status(s.ctx()); r.State == agents.Off {
			s.Error("status says off after a restart, and the machine is on")
		}
	}
	h.close(s.ctx())
	h = s.open(s.peer.Device)
	h.becomes(agents.On)
	if err := h.off(s.ctx()); err != nil {
		s.Errorf("off: %v", err)
	}
	h.becomes(agents.Off)
	h.close(s.ctx())
	s.settled()
}
