// Package agenttest holds a fence agent to the contract of package agents, against a peer:
// a device, or a program that stands for one, which can be looked at and steered from behind.
//
// What the agent says is never compared with what the agent said before, only with what
// the peer knows of its own power and of the commands that reached it.
package agenttest

import (
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// Device is a device as a file would configure it.
type Device struct {
	Plug string
	Open func(log *slog.Logger) (agents.Agent, error)
}

// Peer is one device and all that can be done to it behind the agent's back. What is left
// nil cannot be done with this peer; Cannot then says why, by the name of the field.
//
// The machine is on at the start. Faults last until the end of the peer's life.
type Peer struct {
	Device           // with the right settings
	Secrets []string // occur in no error and no log, neither plain nor encoded

	Power    func() agents.PowerState // the peer's own view, never the agent's
	SetPower func(agents.PowerState)  // as by the machine's button
	Commands func() int               // commands to switch that arrived so far
	Sessions func() int               // sessions that are open at the peer

	// Identity is what the peer knows of the machine, for agents that are Identifiers.
	Identity *agents.Identity

	WrongPassword *Device
	Unreachable   *Device // nothing listens at its address
	Stalled       *Device // something listens there, and never says a word
	WrongPlug     *Device

	Stuck func() // accepts commands from now on, and ignores them
	Fails func() // obeys commands from now on, and answers an error
	Lag   func() // commands take effect some time after their answer, a second at most
	// Odd are ways to show something that is neither on nor off, whatever the truth.
	Odd map[string]func()
	// Freeze lets the peer answer nothing more until Thaw; connections are still taken.
	Freeze, Thaw func()
	Restart      func() // of the device, not of the machine behind it

	// Cannot gives the reason for each field that is nil, and for these words:
	// "Credentials": the protocol cannot tell a wrong secret from silence.
	Cannot map[string]string

	// Patience is how long the peer may take to answer a call and to obey; default 5 s.
	Patience time.Duration
	// Operations is how many are cancelled at random; default 200.
	Operations int
}

// check is one rule of the contract. It is tried where the peer has all that it needs.
type check struct {
	name  string
	needs []string // fields of Peer
	run   func(*suite)
}

var checks = slices.Concat(powerChecks, refusalChecks, contextChecks, lifeChecks)

// Run holds an agent to the contract. start makes a peer whose machine is on, and ends it
// with the test that it is given; it is called for each check anew.
func Run(t *testing.T, start func(t testing.TB) *Peer) {
	t.Helper()
	var cannot map[string]string
	if !t.Run("peer", func(t *testing.T) {
		p := start(t)
		cannot = p.Cannot
		p.complete(t)
		for _, name := range slices.Sorted(maps.Keys(cannot)) {
			t.Logf("not tried, %s: %s", name, cannot[name])
		}
	}) {
		return
	}
	for _, c := range checks {
		if !slices.ContainsFunc(c.needs, func(need string) bool { return cannot[need] != "" }) {
			t.Run(c.name, func(t *testing.T) { c.try(t, start(t)) })
		}
	}
}

func (c check) try(t testing.TB, p *Peer) {
	s := &suite{TB: t, peer: p}
	defer s.secrets()
	c.run(s)
}

// always are the fields without which there is nothing to be held against.
var always = []string{"Power", "SetPower", "Commands"}

// complete demands a reason for each ability that is missing, and no reason for one that is there.
func (p *Peer) complete(t testing.TB) {
	t.Helper()
	if p.Open == nil {
		t.Fatal("the peer has no Open")
	}
	known := []string{"Credentials"}
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		if name == "Cannot" || field.Kind() != reflect.Func && field.Kind() != reflect.Pointer && field.Kind() != reflect.Map {
			continue
		}
		known = append(known, name)
		switch reason := p.Cannot[name]; {
		case field.IsNil() && slices.Contains(always, name):
			t.Errorf("the peer needs %s", name)
		case field.IsNil() && reason == "":
			t.Errorf("the peer lacks %s without a reason in Cannot", name)
		case !field.IsNil() && reason != "":
			t.Errorf("the peer has %s, and says that it cannot: %s", name, reason)
		}
	}
	for name := range p.Cannot {
		if !slices.Contains(known, name) {
			t.Errorf("Cannot names %s, which is unknown", name)
		}
	}
	if p.Power != nil && p.Power() != agents.On {
		t.Errorf("the peer's machine is %v at the start", p.Power())
	}
}

func (p *Peer) patience() time.Duration {
	if p.Patience > 0 {
		return p.Patience
	}
	return 5 * time.Second
}
