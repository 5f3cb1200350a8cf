package stonith

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hamgr/hamgr/agents"
)

// What a caller may want to tell apart. All of them are found with errors.Is in
// the *Failure that Off and On return.
var (
	// ErrStale: a newer operation for the same node has been seen here.
	ErrStale = errors.New("older than the newest operation seen")
	// ErrNoDevices: a level, or the whole target, has nothing that could be switched.
	ErrNoDevices = errors.New("no fence devices")
	// ErrCalledOff: Order.Gate refused; the gate's own error is wrapped too.
	ErrCalledOff = errors.New("called off")
	// ErrNoGate: the order came without a gate, so no command may go out.
	ErrNoGate = errors.New("order has no gate")
	// ErrContradiction: a device that sees the machine itself says that it runs.
	ErrContradiction = errors.New("devices contradict each other")
)

// What ends the work on one device, or keeps it from being known.
var (
	errOutOfTime     = error(silence("out of time"))
	errNoAnswer      = error(silence("no answer"))
	errApart         = errors.New("the devices were not read off at the same time")
	errGateSilent    = errors.New("gate: out of time")
	errLost          = errors.New("call does not return")
	errGaveWay       = errors.New("gave way to a fencing order")
	errLasting       = errors.New("asking again is of no use")
	errNotComparable = errors.New("nothing that the device names can be compared")
)

// silence is agents.ErrUnreachable in the engine's words.
type silence string

func (s silence) Error() string { return string(s) }
func (silence) Unwrap() error   { return agents.ErrUnreachable }

// noTurnError says why a device could not even be asked.
type noTurnError struct {
	text  string
	cause error
}

func (e *noTurnError) Error() string   { return e.text + ": " + e.cause.Error() }
func (e *noTurnError) Unwrap() []error { return []error{e.cause, agents.ErrBusy} }

// Failure is the error of Off and On. Nothing is proven by it, neither that the
// node is on nor that it is off.
type Failure struct {
	Node   string
	Action string // "off" or "on"
	Op     uint64
	// Commanded says that at least one command may have reached a device. If false,
	// the power of the node was certainly not touched by this operation.
	Commanded bool
	// Cause is why the operation ended before its last level: ErrStale, ErrNoDevices,
	// ErrCalledOff, ErrNoGate, or what ended its context. Nil when levels failed by themselves.
	Cause  error
	Levels []LevelFailure
	// Devices are the results of all devices that were used.
	Devices []DeviceResult
}

// LevelFailure tells why one level did not do.
type LevelFailure struct {
	Level   int             // from 1
	Err     error           // what is wrong with the level itself; usually nil
	Devices []DeviceFailure // those that failed; the level's others succeeded
}

// DeviceFailure tells why one device did not do.
type DeviceFailure struct {
	Device    string
	Commanded bool // a command may have reached the device
	Err       error
	Plugs     []PlugFailure // those that did not get where they should
}

// PlugFailure is the last that was known of one plug.
type PlugFailure struct {
	Plug       string
	State      agents.PowerState
	Detail     string
	ReadErr    error // of the last read
	CommandErr error // of the last command: a hint, not the verdict
}

// Error names every level and device, or the reason for ending early.
func (e *Failure) Error() string {
	action := "fence " + e.Node
	if e.Action == "on" {
		action = "power on " + e.Node
	}
	var parts []string
	if e.Cause != nil {
		text := action + ": " + e.Cause.Error()
		if e.Commanded {
			text += " (a command may have gone out)"
		}
		parts = append(parts, text)
	}
	for i := range e.Levels {
		for _, text := range e.Levels[i].texts(e.Cause) {
			parts = append(parts, action+" "+text)
		}
	}
	return strings.Join(parts, "; ")
}

// texts gives one phrase a device, except for those that only ended with the operation.
func (e *LevelFailure) texts(cause error) []string {
	var texts []string
	if e.Err != nil && (cause == nil || !errors.Is(e.Err, cause)) {
		texts = append(texts, fmt.Sprintf("at level %d: %v", e.Level, e.Err))
	}
	for i := range e.Devices {
		if cause == nil || !errors.Is(e.Devices[i].Err, cause) {
			texts = append(texts, "via "+e.Devices[i].Error())
		}
	}
	return texts
}

func (e *LevelFailure) Error() string {
	return strings.Join(e.texts(nil), "; ")
}

// Unwrap gives the level's own error and those of its devices.
func (e *LevelFailure) Unwrap() []error {
	var errs []error
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	for i := range e.Devices {
		errs = append(errs, &e.Devices[i])
	}
	return errs
}

// Unwrap gives the cause and the failures of the levels.
func (e *Failure) Unwrap() []error {
	var errs []error
	if e.Cause != nil {
		errs = append(errs, e.Cause)
	}
	for i := range e.Levels {
		errs = append(errs, &e.Levels[i])
	}
	return errs
}

func (e *DeviceFailure) Error() string {
	parts := make([]string, 0, len(e.Plugs)+1)
	for _, p := range e.Plugs {
		parts = append(parts, p.String())
	}
	parts = append(parts, e.Err.Error())
	return e.Device + ": " + strings.Join(parts, ": ")
}

// Unwrap gives the device's error and those of its plugs.
func (e *DeviceFailure) Unwrap() []error {
	errs := []error{e.Err}
	for _, p := range e.Plugs {
		if p.ReadErr != nil {
			errs = append(errs, p.ReadErr)
		}
		if p.CommandErr != nil {
			errs = append(errs, p.CommandErr)
		}
	}
	return errs
}

// String is the plug's part of the operator's sentence.
func (p PlugFailure) String() string {
	var b strings.Builder
	if p.Plug != "" {
		b.WriteString("plug " + p.Plug + ": ")
	}
	if p.ReadErr != nil {
		b.WriteString("power status: " + p.ReadErr.Error())
	} else {
		b.WriteString("reads " + p.State.String())
		if p.Detail != "" {
			b.WriteString(" (" + p.Detail + ")")
		}
	}
	if p.CommandErr != nil {
		b.WriteString(", command: " + p.CommandErr.Error())
	}
	return b.String()
}
