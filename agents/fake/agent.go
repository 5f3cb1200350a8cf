package fake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// Options are the keys of a fake device in hamgr.toml. The behavior given here is
// set when the first handle is opened, unless it is all zero: then the device keeps its own.
type Options struct {
	Device  string `toml:"device" doc:"which of the process's fake devices this is"`
	Machine bool   `toml:"machine" doc:"the device sees the machine itself, as a BMC does, and not a feed"`
	Behavior

	devices map[string]*Device
	once    sync.Once
}

// Kind is the registry entry of an agent that drives these devices, picked by the
// option device.
func Kind(devices map[string]*Device) agents.Kind {
	return agents.Kind{
		Name: "fake", Doc: "a device in memory, for tests and trials; it cuts no real power",
		Options: func() agents.Options { return &Options{devices: devices} },
	}
}

var (
	_ agents.Options  = (*Options)(nil)
	_ agents.Observer = (*Options)(nil)
)

// Sees says what the device is told to be.
func (o *Options) Sees() agents.Sees {
	if o.Machine {
		return agents.SeesMachine
	}
	return agents.SeesFeed
}

// Validate refuses unknown devices and words.
func (o *Options) Validate() error {
	errs := o.problems()
	if o.devices[o.Device] == nil {
		names := make([]string, 0, len(o.devices))
		for name := range o.devices {
			names = append(names, name)
		}
		slices.Sort(names)
		errs = append(errs, &agents.KeyError{
			Key: "device", Msg: fmt.Sprintf("there is no fake device %q", o.Device),
			Cure: "use one of " + strings.Join(names, ", "),
		})
	}
	return errors.Join(errs...)
}

// Open makes a handle on the device.
func (o *Options) Open(*slog.Logger) (agents.Agent, error) {
	d := o.devices[o.Device]
	if d == nil {
		return nil, fmt.Errorf("open fake device %q: not known", o.Device)
	}
	o.once.Do(func() {
		if !o.zero() {
			d.Behave(o.Behavior)
		}
	})
	return d.Open()
}

// handle is one agent on a device.
type handle struct {
	device  *Device
	number  int
	session bool // guarded by device.mu
	closed  bool // guarded by device.mu
}

var (
	_ agents.Agent      = (*handle)(nil)
	_ agents.Identifier = (*handle)(nil)
	_ agents.Checker    = (*handle)(nil)
)

// Open makes a handle. Its session begins with its first call.
func (d *Device) Open() (agents.Agent, error) {
	d.mu.Lock()
	d.opened++
	h := &handle{device: d, number: d.opened}
	d.mu.Unlock()
	_, err := h.call(context.Background(), "open", "", func(*Behavior) (agents.Reading, error) {
		d.handles++
		d.overlap = d.overlap || d.handles > 1
		return agents.Reading{}, nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (h *handle) Status(ctx context.Context, plug string) (agents.Reading, error) {
	return h.call(ctx, "status", plug, func(b *Behavior) (agents.Reading, error) {
		return b.reading(h.device.plugs[plug].state)
	})
}

func (h *handle) Identity(ctx context.Context, plug string) (id agents.Identity, err error) {
	_, err = h.call(ctx, "identity", plug, func(b *Behavior) (agents.Reading, error) {
		if b.Identity == "error" {
			return agents.Reading{}, ErrDevice
		}
		id = agents.Identity{UUID: b.UUID, Serial: b.Serial, Name: b.Outlet}
		return agents.Reading{}, nil
	})
	return id, err
}

func (h *handle) Check(ctx context.Context, plug string) error {
	_, err := h.call(ctx, "check", plug, func(b *Behavior) (agents.Reading, error) {
		return agents.Reading{}, b.rights()
	})
	return err
}

func (h *handle) Off(ctx context.Context, plug string) error {
	return h.power(ctx, "off", plug, agents.Off)
}

func (h *handle) On(ctx context.Context, plug string) error {
	return h.power(ctx, "on", plug, agents.On)
}

func (h *handle) power(ctx context.Context, verb, plug string, s agents.PowerState) error {
	obeyed, lag := false, time.Duration(0)
	_, err := h.call(ctx, verb, plug, func(b *Behavior) (agents.Reading, error) {
		obeyed, lag = b.Command != "ignore" && b.Command != "refuse", b.Lag
		if b.Command == "refuse" || b.Command == "error" {
			return agents.Reading{}, ErrDevice
		}
		return agents.Reading{}, nil
	})
	if obeyed {
		h.device.effect(plug, s, lag)
	}
	return err
}

// Close ends the handle's session. A stalled close still closes in the end.
func (h *handle) Close(ctx context.Context) error {
	d := h.device
	_, err := h.call(ctx, "close", "", func(*Behavior) (agents.Reading, error) { return agents.Reading{}, nil })
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	h.closed = true
	d.handles--
	if h.session {
		d.sessions--
	}
	return err
}

// call is what is common to all calls: stalling, the time an answer takes, login and
// sessions, and the record. do is called with the device locked.
func (h *handle) call(ctx context.Context, verb, plug string, do func(*Behavior) (agents.Reading, error)) (agents.Reading, error) {
	d := h.device
	d.mu.Lock()
	d.calls = append(d.calls, Call{At: time.Now(), Handle: h.number, Verb: verb, Plug: plug})
	index := len(d.calls) - 1
	b, released := d.behavior, d.released
	d.mu.Unlock()
	if verb == "open" {
		b.Answer = 0 // the network is not touched yet
	}
	err := wait(ctx, b, slices.Contains(b.Stall, verb), released)

	d.mu.Lock()
	defer d.mu.Unlock()
	var r agents.Reading
	if err == nil {
		err = h.admit(verb, plug)
	}
	if err == nil {
		r, err = do(&d.behavior)
	}
	c := &d.calls[index]
	c.State, c.Err, c.Took = r.State, err, time.Since(c.At)
	return r, err
}

// admit checks what a device checks before it does anything. Called with the device
// locked.
func (h *handle) admit(verb, plug string) error {
	d := h.device
	switch {
	case verb == "open" || verb == "close":
		return nil
	case h.closed:
		return ErrClosed
	case d.behavior.Login:
		return ErrLogin
	case d.plugs[plug] == nil:
		return fmt.Errorf("%w %q", ErrPlug, plug)
	}
	if !h.session {
		if d.behavior.Sessions > 0 && d.sessions >= d.behavior.Sessions {
			return ErrSessions
		}
		h.session = true
		d.sessions++
	}
	return nil
}

// wait is the time until the device answers, for ever when it stalls.
func wait(ctx context.Context, b Behavior, stall bool, released <-chan struct{}) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	ended := ctx.Done()
	if stall && b.Deaf {
		ended = nil
	}
	var answer <-chan time.Time
	if !stall {
		if b.Answer <= 0 {
			return nil
		}
		t := time.NewTimer(b.Answer)
		defer t.Stop()
		answer = t.C
	}
	select {
	case <-answer:
		return nil
	case <-released:
		return nil
	case <-ended:
		return ctx.Err()
	}
}

func (b Behavior) zero() bool {
	return b.Answer == 0 && b.Lag == 0 && b.Rebound == 0 && b.Rebounds == 0 && b.Command == "" && b.Status == "" &&
		len(b.Reads) == 0 && len(b.Stall) == 0 && !b.Deaf && !b.Login && b.Sessions == 0 &&
		b.UUID == "" && b.Serial == "" && b.Outlet == "" && b.Identity == "" && b.Check == ""
}
