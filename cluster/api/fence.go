package api

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The actions of a fence request.
const (
	ActionOff      = "off"      // off, proven, and left off
	ActionOn       = "on"       // on again; no proof is needed
	ActionReboot   = "reboot"   // off, proven, then on
	ActionRehearse = "rehearse" // off by one level alone, proven, then on: to prove that its devices work
	ActionConfirm  = "confirm"  // no device is asked: the operator's word that the node is down
)

var actions = []string{ActionOff, ActionOn, ActionReboot, ActionRehearse, ActionConfirm}

// FenceRequest asks for one fencing operation.
type FenceRequest struct {
	Node   string `json:"node"`
	Action string `json:"action"`
	// By is the operator, for the record ("root", "anna").
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Level is the fencing level that a rehearsal is of, from 1; 0 for every other action.
	Level int `json:"level,omitempty"`
	// Force has a confirmation accepted although the node, or a device of it, says that it is alive.
	Force bool `json:"force,omitempty"`
}

// Texts of an operator end up in the replicated log: they are bounded.
const (
	maxName = 255
	maxText = 1024
)

// Validate reports what is wrong with a request in itself, as ErrInvalid.
func (r FenceRequest) Validate() error {
	switch {
	case r.Node == "" || len(r.Node) > maxName:
		return fmt.Errorf("%w: a node name of 1 to %d bytes is needed", ErrInvalid, maxName)
	case !slices.Contains(actions, r.Action):
		return fmt.Errorf("%w: action %q is none of %s", ErrInvalid, r.Action, strings.Join(actions, ", "))
	case (r.Action == ActionRehearse) != (r.Level > 0) || r.Level < 0:
		return fmt.Errorf("%w: a rehearsal, and nothing else, is of one level, from 1", ErrInvalid)
	case r.Force && r.Action != ActionConfirm:
		return fmt.Errorf("%w: only a confirmation can be forced", ErrInvalid)
	case len(r.By) > maxName:
		return fmt.Errorf("%w: the operator's name is longer than %d bytes", ErrInvalid, maxName)
	case len(r.Reason) > maxText:
		return fmt.Errorf("%w: the reason is longer than %d bytes", ErrInvalid, maxText)
	}
	return nil
}

// FenceEvent is one step of a fencing operation, as it happens. Only Phase and Text are
// always set.
type FenceEvent struct {
	Op     uint64    `json:"op,omitempty"`
	At     time.Time `json:"at,omitzero"` // for display only
	Phase  string    `json:"phase"`       // of the operation, see Operation.Phase
	Text   string    `json:"text"`        // the step in words, one line
	Device string    `json:"device,omitempty"`
	Plug   string    `json:"plug,omitempty"`
	State  string    `json:"state,omitempty"` // power state that was read: "on", "off", "unknown"
	Error  string    `json:"error,omitempty"`
	TookMS int64     `json:"took_ms,omitempty"`
}

// FenceResult is the end of a fencing operation that did what was asked.
type FenceResult struct {
	Schema int    `json:"schema"`
	Op     uint64 `json:"op"`
	Node   string `json:"node"`
	Boot   string `json:"boot,omitempty"`
	Action string `json:"action"`
	// Phase is "done", or "proven" where a reboot's off is proven but its power-on
	// failed: the node is fenced all the same, and Note says what is missing.
	Phase string `json:"phase"`
	// Proof is why the node is known to be off, in words; empty after "on".
	Proof  string `json:"proof,omitempty"`
	Note   string `json:"note,omitempty"`
	TookMS int64  `json:"took_ms"`
}

// FenceStatus is what a node's fence devices say about it.
type FenceStatus struct {
	Schema int    `json:"schema"`
	Node   string `json:"node"`    // asked about
	ReadBy string `json:"read_by"` // the node that asked the devices
	// Power is "off" only if every plug of a level says so and none of another level says
	// on, "on" if any plug says so, else "unknown".
	Power   string       `json:"power"`
	Unclean bool         `json:"unclean"`
	FenceOp uint64       `json:"fence_op,omitempty"` // operation that runs against the node, or 0
	Plugs   []PlugStatus `json:"plugs"`
}

// PlugStatus is one fresh answer of a device about one plug.
type PlugStatus struct {
	Level  int    `json:"level"` // from 1
	Device string `json:"device"`
	Agent  string `json:"agent"`
	Plug   string `json:"plug,omitempty"`
	State  string `json:"state"`            // "on", "off", "unknown"
	Detail string `json:"detail,omitempty"` // the device's own word
	Error  string `json:"error,omitempty"`
	TookMS int64  `json:"took_ms"`
}
