package agenttest

import (
	"slices"

	"github.com/hamgr/hamgr/agents"
)

var refusalChecks = []check{
	{"wrong password", []string{"WrongPassword"}, wrongPassword},
	{"unreachable", []string{"Unreachable"}, unreachable},
	{"wrong plug", []string{"WrongPlug"}, wrongPlug},
}

func wrongPassword(s *suite) {
	words := []agents.Trouble{agents.Credentials}
	if s.peer.Cannot["Credentials"] != "" {
		words = append(words, agents.Unreachable)
	}
	s.refused(*s.peer.WrongPassword, words...)
}

func unreachable(s *suite) { s.refused(*s.peer.Unreachable, agents.Unreachable) }

func wrongPlug(s *suite) { s.refused(*s.peer.WrongPlug, agents.WrongPlug) }

// refused: each call fails with the right word, and nothing happens to the machine. A fresh
// handle each, since the first call of a handle is the one that logs in; and once more on the
// same handle.
func (s *suite) refused(d Device, words ...agents.Trouble) {
	s.Helper()
	for _, verb := range s.calls() {
		if verb == "close" {
			continue
		}
		h := s.open(d)
		for range 2 {
			err := h.verbs()[verb](s.ctx())
			if got := agents.TroubleOf(err); !slices.Contains(words, got) {
				s.Errorf("%s: %q instead of %q, by the error: %v", verb, got, words, err)
			}
		}
		h.close(s.ctx())
	}
	if p, n := s.peer.Power(), s.peer.Commands(); p != agents.On || n != 0 {
		s.Errorf("the machine is %v, and %d commands arrived", p, n)
	}
	s.settled()
}
