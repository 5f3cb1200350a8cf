package resourcetest

import (
	"github.com/hamgr/hamgr/resources"
)

var lifeChecks = []check{
	{"never started", nil, neverStarted},
	{"start and stop", nil, startAndStop},
	{"start twice", nil, startTwice},
	{"stop without start", nil, stopWithoutStart},
	{"start after stop", nil, startAfterStop},
	{"a restart of the daemon", nil, restart},
	{"a higher token", nil, higherToken},
	{"killed from outside", []string{"Kill"}, killed},
	{"check changes nothing", nil, checkChangesNothing},
}

// neverStarted: neither the making of a resource nor a look at it changes anything, and what was never started
// is certainly inactive.
func neverStarted(s *suite) {
	before := s.picture()
	h := s.open()
	s.unchanged(before, "new")
	for range 2 {
		h.reads(resources.Inactive)
	}
	s.unchanged(before, "probe")
}

func startAndStop(s *suite) {
	h := s.open()
	h.starts()
	before := s.picture()
	for range 2 {
		h.reads(resources.Active)
	}
	s.unchanged(before, "probe")
	for range 2 {
		h.stops()
	}
}

// startTwice: what is active already under the same token goes on, and no second one comes beside it.
func startTwice(s *suite) {
	h := s.open()
	first := h.starts()
	for range 2 {
		if again := h.starts(); again != first {
			s.Errorf("a second start under the same token made %s; %s was active", again, first)
		}
	}
	h.stops()
}

func stopWithoutStart(s *suite) {
	before := s.picture()
	h := s.open()
	for range 2 {
		h.stops()
	}
	s.unchanged(before, "a stop of what was never started")
	h.starts()
	h.stops()
}

func startAfterStop(s *suite) {
	h := s.open()
	seen := map[string]bool{}
	for range 3 {
		name := h.starts()
		if seen[name] {
			s.Errorf("%s was active before the stop: it was not stopped, or the judge gives one name twice", name)
		}
		seen[name] = true
		h.stops()
	}
	for range 2 { // and under the tokens of new grants
		h = s.grant()
		h.starts()
		h.stops()
	}
}

// restart: a daemon that was started anew knows nothing but the grant. It finds what runs, goes on with it, and
// can stop it.
func restart(s *suite) {
	first := s.open().starts()
	h := s.open()
	h.reads(resources.Active)
	if again := h.starts(); again != first {
		s.Errorf("start by a restarted daemon made %s; %s was active", again, first)
	}
	h = s.open()
	h.stops()
	s.open().reads(resources.Inactive)
	s.open().starts()
	s.open().stops() // without a look before
}

// higherToken: what a former grant left active is never inactive for the next one, which does not start a second copy,
// can stop it, and start its own.
func higherToken(s *suite) {
	first := s.open().starts()
	h := s.grant()
	h.readsNot(resources.Inactive, resources.Unknown)
	err := h.call("start", s.ctx()).err // goes on with it, or demands that it is stopped first
	if active := s.host.Active(); len(active) > 1 || err != nil && (len(active) != 1 || active[0] != first) {
		s.Errorf("start under the next token, %v: active: %v; it was %s", err, active, first)
	}
	h.stops()
	h.starts()
	h.stops()
}

// killed: what has died is not active, can be stopped, and started again.
func killed(s *suite) {
	for _, restarted := range []bool{false, true} {
		h := s.open()
		h.starts()
		if restarted {
			h = s.open()
		}
		s.kill()
		h.readsNot(resources.Active, resources.Unknown)
		h.stops()
		h.starts()
		s.kill()
		if err := h.call("start", s.ctx()).err; err != nil { // it may want to be stopped first
			h.stops()
			h.starts()
		}
		h.stops()
	}
}

// checkChangesNothing: Check looks alone, and finds nothing wrong where nothing is.
func checkChangesNothing(s *suite) {
	h := s.open()
	c, ok := h.res.(resources.Checker)
	if !ok {
		s.Log("it is no Checker")
		return
	}
	looks := func() {
		before := s.picture()
		for range 2 {
			if err := c.Check(s.ctx()); err != nil {
				s.Errorf("check, active %v: %v", s.host.Active(), err)
			}
		}
		s.unchanged(before, "check")
	}
	looks()
	h.reads(resources.Inactive)
	h.starts()
	looks()
	h.stops()
	looks()
}
