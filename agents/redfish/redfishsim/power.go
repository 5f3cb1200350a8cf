package redfishsim

import (
	"context"
	"sync/atomic"
)

// Switch is a Power without a machine.
type Switch struct{ on atomic.Bool }

// NewSwitch makes a switch in the given position.
func NewSwitch(on bool) *Switch {
	s := &Switch{}
	s.on.Store(on)
	return s
}

// On implements Power.
func (s *Switch) On(context.Context) error { s.on.Store(true); return nil }

// Off implements Power.
func (s *Switch) Off(context.Context) error { s.on.Store(false); return nil }

// State implements Power.
func (s *Switch) State() bool { return s.on.Load() }
