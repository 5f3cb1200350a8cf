// Package stonith turns a target and its fence devices into a proof that the
// target's power is off, or into an error.
//
// It knows devices through the agents contract and the cluster not at all: who may
// be shot, and when, is decided by its caller; what counts as proof is decided here.
package stonith

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// Device is one fence device as far as one target is concerned.
type Device struct {
	Name  string
	Agent string   // the agent's kind, for reports
	Plugs []string // the target's plugs at the device; [""] where the device serves one machine
	// Timeout bounds one attempt at this device, from connecting to the last read-back.
	Timeout time.Duration
	// Settle is how long off must last: the time between the two reads that prove it.
	Settle time.Duration
	// Sees says whose power the device reads: the machine's own, or that of a feed.
	Sees agents.Sees
	// AnyIdentity is the operator's exception: the device may name another machine than
	// the target's.
	AnyIdentity bool
	Open        func() (agents.Agent, error)
}

// Target is the node to be fenced.
type Target struct {
	Node    string
	Boot    string     // the boot that the verdict names; empty if it was never known
	Machine Machine    // what it announced of itself; a device that names another one is refused
	Levels  [][]Device // tried in order; all devices of a level must succeed
}

// Order is one fencing operation.
type Order struct {
	Target
	// Op is the operation's number, its index in the replicated log. An operation
	// older than the newest seen for the target is refused (ErrStale).
	Op uint64
	// Level, from 1, is the only level to be used, as in a rehearsal; 0 is all of them in order.
	Level int
	// Gate is asked immediately before each off or on command goes out; an error means that
	// the order no longer stands, and ends the operation. Reads need no gate. It is asked for
	// several devices at once, and an order without a gate is refused (ErrNoGate).
	Gate func(context.Context) error
	// Observe, if not nil, is told of each step as it happens. It must not block;
	// its calls come one at a time.
	Observe func(Step)
}

// levels gives the numbers of those that are to be used, the first to be tried first.
func (o Order) levels() []int {
	var levels []int
	for i := range o.Levels {
		if o.Level == 0 || o.Level == i+1 {
			levels = append(levels, i+1)
		}
	}
	return levels
}

// Step is one thing that happened to one plug during an operation.
type Step struct {
	Level  int // from 1
	Device string
	Plug   string
	What   string // "read", "off", "on", "error", "identity", "opinion", "level failed"
	State  agents.PowerState
	Detail string
	Err    error
	Took   time.Duration
}

// String is the step in words, on one line.
func (s Step) String() string {
	where := strings.TrimSpace(s.Device + " " + s.Plug)
	switch {
	case s.Device == "":
		return fmt.Sprintf("level %d failed: %v", s.Level, s.Err)
	case s.What == off.verb || s.What == on.verb:
		return where + ": " + s.What + " ordered"
	case s.Err != nil && s.What == "error":
		return fmt.Sprintf("%s: %v", where, s.Err)
	case s.Err != nil:
		return fmt.Sprintf("%s: %s: %v", where, s.What, s.Err)
	case s.Detail != "":
		return fmt.Sprintf("%s: %s %s (%s)", where, s.What, s.State, s.Detail)
	default:
		return fmt.Sprintf("%s: %s %s", where, s.What, s.State)
	}
}
