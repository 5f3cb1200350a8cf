// Package fake is a fence agent without hardware: its devices are values in the
// memory of the process, each steered to behave or misbehave as a test or a trial
// needs, and each keeping a record of what was asked of it and of what power really
// did. It proves nothing about any real device.
package fake

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// The errors of a device that is told to fail.
var (
	ErrDevice   = errors.New("device answered with an error")
	ErrLogin    = error(kindOf{"login refused", agents.ErrCredentials})
	ErrSessions = error(kindOf{"no free session", agents.ErrBusy})
	ErrPlug     = error(kindOf{"no such plug", agents.ErrPlug})
	ErrClosed   = errors.New("handle is closed")
)

// kindOf is an error with a text of its own and one of the agents' kinds.
type kindOf struct {
	text string
	kind error
}

func (e kindOf) Error() string { return e.text }
func (e kindOf) Unwrap() error { return e.kind }

// Device is one fake fence device with its plugs, all on at first. It may be used by
// several goroutines, and by several handles at once.
type Device struct {
	// OnPower, if not nil, is called after a plug's power really changed, outside
	// of any lock. Set it before the device is used.
	OnPower func(plug string, state agents.PowerState)

	mu sync.Mutex
	// Guarded by mu:
	behavior Behavior
	plugs    map[string]*outlet
	calls    []Call
	handles  int // open handles
	opened   int // handles ever opened, for their numbers
	sessions int
	overlap  bool
	released chan struct{}
}

// outlet is the truth of one plug.
type outlet struct {
	state    agents.PowerState
	history  []Change
	rebounds int
	next     agents.PowerState // what is to come: a command's effect, or the rebound
	timer    *time.Timer       // when; nil when next is Unknown
}

// Change is one real change of a plug's power; the first is the state at New.
type Change struct {
	At    time.Time
	State agents.PowerState
}

// Call is one call that was made to a device.
type Call struct {
	At     time.Time // when it came
	Handle int       // from 1
	Verb   string    // "open", "status", "off", "on", "identity", "check", "close"
	Plug   string
	State  agents.PowerState // what a status answered
	Err    error
	Took   time.Duration
}

// New makes a device with these plugs, all on; without any it has the one plug "".
func New(plugs ...string) *Device {
	if len(plugs) == 0 {
		plugs = []string{""}
	}
	d := &Device{plugs: map[string]*outlet{}, released: make(chan struct{})}
	for _, p := range plugs {
		d.plugs[p] = &outlet{state: agents.On, history: []Change{{time.Now(), agents.On}}}
	}
	return d
}

// Behave sets how the device treats calls from now on.
func (d *Device) Behave(b Behavior) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.behavior = b
}

// Behavior returns how the device treats calls now.
func (d *Device) Behavior() Behavior {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.behavior
}

// SetPower changes a plug's power as if by its button. Commands still at work are
// dropped.
func (d *Device) SetPower(plug string, s agents.PowerState) {
	d.mu.Lock()
	if o := d.plugs[plug]; o != nil {
		o.stop()
	}
	d.mu.Unlock()
	d.change(plug, s)
}

// Power returns the truth about a plug; Unknown if there is no such plug.
func (d *Device) Power(plug string) agents.PowerState {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.plugs[plug]; o != nil {
		return o.state
	}
	return agents.Unknown
}

// History returns every real change of a plug's power, oldest first.
func (d *Device) History(plug string) []Change {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.plugs[plug]; o != nil {
		return slices.Clone(o.history)
	}
	return nil
}

// Calls returns every call so far, in the order of their coming.
func (d *Device) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Handles returns how many handles are open.
func (d *Device) Handles() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.handles
}

// Overlapped reports whether two handles were ever open at once.
func (d *Device) Overlapped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.overlap
}

// Release lets all calls return that are stalled now.
func (d *Device) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.released)
	d.released = make(chan struct{})
}

// change makes a plug's power s, and plans the rebound if there is one.
func (d *Device) change(plug string, s agents.PowerState) {
	d.mu.Lock()
	o := d.plugs[plug]
	if o == nil || o.state == s {
		d.mu.Unlock()
		return
	}
	o.state = s
	o.history = append(o.history, Change{time.Now(), s})
	b := d.behavior
	if s == agents.Off && b.Rebound > 0 && (b.Rebounds == 0 || o.rebounds < b.Rebounds) {
		o.rebounds++
		d.plan(plug, agents.On, b.Rebound)
	}
	d.mu.Unlock()
	if d.OnPower != nil {
		d.OnPower(plug, s)
	}
}

// effect carries out an obeyed command, after the lag.
func (d *Device) effect(plug string, s agents.PowerState, lag time.Duration) {
	if lag <= 0 {
		d.change(plug, s)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.plugs[plug].next != s { // a repeated command does not start the lag anew
		d.plan(plug, s, lag)
	}
}

// plan lets a plug's power change later, in place of what was planned before. Called
// with mu held.
func (d *Device) plan(plug string, s agents.PowerState, after time.Duration) {
	o := d.plugs[plug]
	o.stop()
	o.next = s
	o.timer = time.AfterFunc(after, func() {
		d.mu.Lock()
		o.next, o.timer = agents.Unknown, nil
		d.mu.Unlock()
		d.change(plug, s)
	})
}

func (o *outlet) stop() {
	if o.timer != nil {
		o.timer.Stop()
	}
	o.next, o.timer = agents.Unknown, nil
}
