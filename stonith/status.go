package stonith

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// PlugStatus is one device's answer about one plug, for operators.
type PlugStatus struct {
	Level  int               `json:"level"`
	Device string            `json:"device"`
	Agent  string            `json:"agent"`
	Plug   string            `json:"plug,omitempty"`
	State  agents.PowerState `json:"state"`
	Detail string            `json:"detail,omitempty"`
	Error  string            `json:"error,omitempty"`
	Took   time.Duration     `json:"took_ns"`
}

// Status reads every plug of every level, all devices at once and each within its
// own timeout, and changes nothing. It gives way to an order for the same device.
// The answers are in the order of the levels; what could not be read says why.
func (f *Fencer) Status(ctx context.Context, t Target) []PlugStatus {
	return askAll(t, func(level int, d Device, plug string) PlugStatus {
		return PlugStatus{Level: level, Device: d.Name, Agent: d.Agent, Plug: plug}
	}, func(d Device, plugs []PlugStatus) { f.read(ctx, d, plugs) })
}

// askAll asks all devices of the target at once, with a blank answer for each of their plugs. The answers are in the
// order of the levels.
func askAll[T any](t Target, blank func(level int, d Device, plug string) T, ask func(Device, []T)) []T {
	var (
		wg      sync.WaitGroup
		answers [][]T
	)
	for i, devices := range t.Levels {
		for _, d := range devices {
			answer := make([]T, len(d.Plugs))
			for j, plug := range d.Plugs {
				answer[j] = blank(i+1, d, plug)
			}
			answers = append(answers, answer)
			wg.Go(func() { ask(d, answer) })
		}
	}
	wg.Wait()
	return slices.Concat(answers...)
}

// read fills in the state of each plug of one device.
func (f *Fencer) read(ctx context.Context, d Device, plugs []PlugStatus) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.Timeout, errOutOfTime)
	defer cancel()
	ctx, yield := context.WithCancelCause(ctx)
	defer yield(nil)
	begun := time.Now()
	s, err := f.join(ctx, d, false, yield)
	if err == nil {
		defer s.end()
	}
	for i := range plugs {
		var r agents.Reading
		if err == nil {
			r, err = s.status(ctx, plugs[i].Plug)
		}
		if err != nil {
			plugs[i].Error = err.Error()
		} else {
			plugs[i].State, plugs[i].Detail = r.State, r.Detail
		}
		plugs[i].Took = time.Since(begun)
		if err != nil && s != nil && ctx.Err() == nil && !errors.Is(err, errLost) {
			err = nil // this plug's trouble is not the next one's
		}
		begun = time.Now()
	}
}
