package redfishsim

import (
	"context"
	"slices"
	"time"
)

// step is a part of what a reset does: a state that is shown for a while, a change of the power, or both.
type step struct {
	shown  string                      // as PowerState; empty = as before
	change func(context.Context) error // nil = none
	lasts  time.Duration
}

// steps are those of a ResetType. One that asks the operating system finds nobody who listens.
func (s *system) steps(resetType string, m Mode) []step {
	stale := func(before string) string {
		if m.Stale > 0 {
			return before
		}
		return ""
	}
	off := []step{
		{"On", nil, m.Hesitate}, {"PoweringOff", nil, m.PoweringOff}, {"Off", nil, m.EarlyOff},
		{stale("On"), s.Power.Off, m.Stale},
	}
	on := []step{{"PoweringOn", nil, m.PoweringOn}, {stale("Off"), s.Power.On, m.Stale}}
	var all []step
	switch {
	case resetType == "ForceOff", resetType == "PushPowerButton" && s.Power.State():
		all = off
	case resetType == "On", resetType == "ForceOn", resetType == "PushPowerButton":
		all = on
	case resetType == "ForceRestart", resetType == "PowerCycle":
		all = append(off, on...)
	}
	return slices.DeleteFunc(all, func(p step) bool { return p.change == nil && p.lasts <= 0 })
}

// carryOut does what a ResetType asks for: at once, or in the background where the
// mode has the machine take its time. A newer reset takes the place of an older one.
func (b *BMC) carryOut(s *system, resetType string, m Mode) error {
	steps := s.steps(resetType, m)
	ctx, cancel := context.WithCancel(b.life)
	s.mu.Lock()
	s.abandon()
	s.abandon = cancel
	s.changes++
	s.shown = ""
	if len(steps) > 0 {
		s.shown = steps[0].shown // before the answer goes out
	}
	s.mu.Unlock()
	if !slices.ContainsFunc(steps, func(p step) bool { return p.lasts > 0 }) {
		return s.run(ctx, steps)
	}
	if !b.begin() {
		return context.Canceled
	}
	go func() {
		defer b.working.Done()
		s.run(ctx, steps) // an abandoned transition fails; the state shown is the newer one's
	}()
	return nil
}

func (s *system) run(ctx context.Context, steps []step) error {
	for _, p := range steps {
		if p.shown != "" && !s.showFor(ctx, p.shown) {
			return ctx.Err()
		}
		if p.change != nil {
			if err := p.change(ctx); err != nil {
				return err
			}
		}
		if p.lasts > 0 {
			if err := wait(ctx, p.lasts); err != nil {
				return err
			}
		}
	}
	s.showFor(ctx, "")
	return nil
}

// showFor sets the state that is shown, unless the transition that wants it was abandoned.
func (s *system) showFor(ctx context.Context, state string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	s.shown = state
	return true
}
