package agenttest

import "github.com/hamgr/hamgr/agents"

var powerChecks = []check{
	{"status is fresh", nil, freshStatus},
	{"off and on", nil, offAndOn},
	{"off while off, on while on", nil, withoutEffect},
	{"accepted and ignored", []string{"Stuck"}, stuck},
	{"obeyed with an error", []string{"Fails"}, failing},
	{"obeyed late", []string{"Lag"}, late},
	{"neither on nor off", []string{"Odd"}, odd},
	{"check and identity change nothing", nil, readOnly},
	{"identity", []string{"Identity"}, identity},
}

// freshStatus: a change behind the agent's back is seen by the very next read, of the same
// handle and of another one.
func freshStatus(s *suite) {
	h, other := s.open(s.peer.Device), s.open(s.peer.Device)
	for _, state := range []agents.PowerState{agents.On, agents.Off, agents.On, agents.Off, agents.Off, agents.On} {
		s.peer.SetPower(state)
		h.reads(state)
		other.reads(state)
	}
	if n := s.peer.Commands(); n != 0 {
		s.Errorf("reading sent %d commands", n)
	}
}

// offAndOn: the peer itself is off after Off, by one command, and on after On, by one more.
func offAndOn(s *suite) {
	h := s.open(s.peer.Device)
	h.reads(agents.On)
	for i, want := range []agents.PowerState{agents.Off, agents.On, agents.Off} {
		command := h.on
		if want == agents.Off {
			command = h.off
		}
		if err := command(s.ctx()); err != nil {
			s.Fatalf("%v: %v", want, err)
		}
		h.becomes(want)
		if n := s.peer.Commands(); n != i+1 {
			s.Errorf("%d commands arrived for %d calls", n, i+1)
		}
	}
}

// withoutEffect: devices may refuse a command that changes nothing, but it changes nothing.
func withoutEffect(s *suite) {
	h := s.open(s.peer.Device)
	h.on(s.ctx())
	h.reads(agents.On)
	s.peer.SetPower(agents.Off)
	h.off(s.ctx())
	h.reads(agents.Off)
	if p := s.peer.Power(); p != agents.Off {
		s.Errorf("off made it %v", p)
	}
}

// stuck: a command that was accepted says nothing about the power.
func stuck(s *suite) {
	s.peer.Stuck()
	h := s.open(s.peer.Device)
	before := s.peer.Commands()
	if err := h.off(s.ctx()); err != nil {
		s.Errorf("the peer accepted off, the agent says: %v", err)
	}
	if n := s.peer.Commands() - before; n != 1 {
		s.Errorf("%d commands arrived", n)
	}
	for range 3 {
		h.reads(agents.On)
	}
	if p := s.peer.Power(); p != agents.On {
		s.Fatalf("the peer is not stuck: %v", p)
	}
}

// failing: a command that was refused says nothing either, and is not sent again by the agent.
func failing(s *suite) {
	s.peer.Fails()
	h := s.open(s.peer.Device)
	if err := h.off(s.ctx()); err == nil {
		s.Error("the peer refused off, the agent says nothing of it")
	}
	h.becomes(agents.Off)
	if n := s.peer.Commands(); n != 1 {
		s.Errorf("%d commands arrived", n)
	}
}

// late: until the peer is off, no read says so.
func late(s *suite) {
	s.peer.Lag()
	h := s.open(s.peer.Device)
	if err := h.off(s.ctx()); err != nil {
		s.Errorf("off: %v", err)
	}
	if s.peer.Power() == agents.Off {
		s.Error("the peer has no lag")
	}
	h.becomes(agents.Off)
}

// odd: what is neither on nor off is unknown, whatever the truth is.
func odd(s *suite) {
	if len(s.peer.Odd) == 0 {
		s.Fatal("no way to be odd")
	}
	for name, show := range s.peer.Odd {
		show()
		h := s.open(s.peer.Device)
		for _, truth := range []agents.PowerState{agents.Off, agents.On} {
			s.peer.SetPower(truth)
			if r, err := h.status(s.ctx()); r.State != agents.Unknown {
				s.Errorf("%s: status says %v (%q), %v", name, r.State, r.Detail, err)
			}
		}
		h.close(s.ctx())
	}
}

// readOnly: neither Check nor Identity nor Status sends a command, and Check finds nothing wrong.
func readOnly(s *suite) {
	for _, state := range []agents.PowerState{agents.On, agents.Off} {
		s.peer.SetPower(state)
		h := s.open(s.peer.Device)
		for verb, do := range h.verbs() {
			if verb == "on" || verb == "off" {
				continue
			}
			if err := do(s.ctx()); err != nil {
				s.Errorf("%s while %v: %v", verb, state, err)
			}
		}
		h.close(s.ctx())
		if p := s.peer.Power(); p != state {
			s.Errorf("reading made it %v", p)
		}
	}
	if n := s.peer.Commands(); n != 0 {
		s.Errorf("reading sent %d commands", n)
	}
}

// identity: it is the peer's, on each handle, whether the machine is on or off.
func identity(s *suite) {
	for _, state := range []agents.PowerState{agents.On, agents.Off} {
		s.peer.SetPower(state)
		h := s.open(s.peer.Device)
		a, ok := h.agent.(agents.Identifier)
		if !ok {
			s.Fatal("the peer has an identity, and the agent does not tell it")
		}
		for range 2 {
			got, err := a.Identity(s.ctx(), h.plug)
			if err != nil || got != *s.peer.Identity {
				s.Errorf("while %v: %+v, %v; it is %+v", state, got, err, *s.peer.Identity)
			}
		}
	}
}
