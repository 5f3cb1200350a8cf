// Package stonith turns a target and its fence devices into a proof that the
// target's power is off, or into an error.
//
// It knows devices through the agents contract and the cluster not at all: who may
// be shot, and when, is decided by its caller; what counts as proof is decided here.
package stonith

import (
	"context"
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
	Open   func() (agents.Agent, error)
}

// Target is the node to be fenced.
type Target struct {
	Node   string
	Boot   string     // the boot that the verdict names; empty if it was never known
	Levels [][]Device // tried in order; all devices of a level must succeed
}

// Order is one fencing operation.
type Order struct {
	Target
	// Op is the operation's number, its index in the replicated log. An operation
	// older than the newest seen for the target is refused (ErrStale).
	Op uint64
	// Gate is asked immediately before each off or on command goes out; an error means that
	// the order no longer stands, and ends the operation. Reads need no gate. It is asked for
	// several devices at once, and an order without a gate is refused (ErrNoGate).
	Gate func(context.Context) error
	// Observe, if not nil, is told of each step as it happens. It must not block;
	// its calls come one at a time.
	Observe func(Step)
}

// Step is one thing that happened to one plug during an operation.
type Step struct {
	Level  int // from 1
	Device string
	Plug   string
	What   string // "read", "off", "on", "error", "level failed"
	State  agents.PowerState
	Detail string
	Err    error
	Took   time.Duration
}

// PlugProof is the evidence of one plug.
type PlugProof struct {
	Device string `json:"device"`
	Plug   string `json:"plug,omitempty"`
	Detail string `json:"detail"`  // the device's own word for off
	WasOff bool   `json:"was_off"` // off before any command of this operation
	// OffSince is when it was first read off, of the reads that prove it. It has a
	// monotonic reading, and stays in this process.
	OffSince time.Time `json:"-"`
}

// Proof says that a target's power was read back off at every feed, twice, with
// the settle time between. Only Fencer.Off makes one.
type Proof struct {
	Node  string        `json:"node"`
	Boot  string        `json:"boot"`
	Op    uint64        `json:"op"`
	Level int           `json:"level"` // from 1
	Plugs []PlugProof   `json:"plugs"`
	Took  time.Duration `json:"took_ns"`
}

// OffSince is when the last of the plugs was first read off: what is heard of the target
// after that contradicts the proof.
func (p Proof) OffSince() time.Time {
	var latest time.Time
	for _, plug := range p.Plugs {
		if plug.OffSince.After(latest) {
			latest = plug.OffSince
		}
	}
	return latest
}

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
