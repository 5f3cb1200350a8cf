package stonith

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// Health is what a check found of one plug.
type Health struct {
	Level    int               `json:"level"` // from 1
	Device   string            `json:"device"`
	Agent    string            `json:"agent"`
	Plug     string            `json:"plug,omitempty"`
	State    agents.PowerState `json:"state"`
	Detail   string            `json:"detail,omitempty"`
	Trouble  agents.Trouble    `json:"trouble,omitempty"`
	Error    string            `json:"error,omitempty"`
	Identity agents.Identity   `json:"identity,omitzero"` // of the machine behind the plug, where it was asked for
	// GaveWay: a fencing order came first, so nothing was learned.
	GaveWay bool  `json:"gave_way,omitempty"`
	TookMS  int64 `json:"took_ms"`
}

// Healthy reports whether the plug could be used to fence, as far as reading tells.
func (h Health) Healthy() bool {
	return h.Trouble == agents.NoTrouble && !h.GaveWay && h.State != agents.Unknown
}

// Check reads everything that can be read of every plug of every level, and changes nothing:
// its state, whether it may be switched, and whom it powers. All devices are asked at once, each
// within its own timeout; all of it gives way to orders. The answers are in the order of
// the levels. When Check returns, the devices' sessions are free again: the next one to check a device may
// be another host.
func (f *Fencer) Check(ctx context.Context, t Target) []Health {
	return askAll(t, func(level int, d Device, plug string) Health {
		return Health{Level: level, Device: d.Name, Agent: d.Agent, Plug: plug}
	}, func(d Device, plugs []Health) { f.check(ctx, d, t.Machine, plugs) })
}

// check examines each plug of one device.
func (f *Fencer) check(ctx context.Context, d Device, m Machine, plugs []Health) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.Timeout, errOutOfTime)
	defer cancel()
	ctx, yield := context.WithCancelCause(ctx)
	defer yield(nil)
	s, lost := f.join(ctx, d, false, yield)
	if lost == nil {
		defer func() {
			s.end()
			s.turns.rest(ctx)
		}()
	}
	for i := range plugs {
		begun, h, err := time.Now(), &plugs[i], lost
		if err == nil {
			err = s.examine(ctx, m, h)
		}
		if errors.Is(err, errLost) {
			lost = err
		}
		h.TookMS = time.Since(begun).Milliseconds()
		if err != nil {
			h.Trouble, h.Error, h.GaveWay = agents.TroubleOf(err), err.Error(), errors.Is(err, errGaveWay)
		}
	}
}

// examine fills in what the device tells of one plug, until something is wrong with it.
func (s *session) examine(ctx context.Context, m Machine, h *Health) error {
	r, err := s.status(ctx, h.Plug)
	if err != nil {
		return fmt.Errorf("power status: %w", err)
	}
	h.State, h.Detail = r.State, r.Detail
	if r.State == agents.Unknown {
		return fmt.Errorf("power status: says neither on nor off (%s)", r.Detail)
	}
	if err := s.check(ctx, h.Plug); err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if !m.known() {
		return nil
	}
	h.Identity, err = s.identity(ctx, s.share(), h.Plug)
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	same, known := SameMachine(m, h.Identity)
	if known && !same && s.device.Sees == agents.SeesMachine && !s.device.AnyIdentity {
		return mismatch(m, h.Identity)
	}
	return nil
}
