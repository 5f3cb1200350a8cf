// Package state is the replicated state of a cluster and the only way it changes.
//
// It is pure: Apply takes a state, an index of the replicated log and a command, and
// returns the next state. The same log gives the same state on every node. There is
// no I/O, no clock and no randomness here; wall times in commands are carried along for
// display and never compared. What depends on time (never who may write) goes by State.Clock,
// which the commands themselves carry on.
//
// A State is immutable once it was returned: Apply shares what it did not
// change, so a State may be read from any goroutine.
package state

import (
	"maps"
	"slices"
)

// State is everything that the cluster agreed upon. The zero value is a cluster
// that was not configured yet.
type State struct {
	Cluster   string `json:"cluster"`
	Digest    string `json:"digest"`     // of the configuration that was committed
	Applied   uint64 `json:"applied"`    // log index of the last command
	LastToken uint64 `json:"last_token"` // the highest fencing token ever granted
	LastOp    uint64 `json:"last_op"`    // the newest fencing operation
	// Clock is the milliseconds of monotonic time that coordinators counted so far. It stands still while
	// there is none, so that every window that is measured by it gets longer, never shorter.
	Clock int64 `json:"clock,omitempty"`
	// Maintenance says that the cluster watches, and leaves everything alone.
	Maintenance bool `json:"maintenance,omitempty"`
	// Level is the version of the log's format that all nodes know; see Format.
	Level int `json:"level,omitempty"`
	// Text is the configuration that every daemon runs with, and Configured tells where it comes from.
	Text       string     `json:"text,omitempty"`
	Configured Configured `json:"configured,omitzero"`
	TwoNode    bool       `json:"two_node,omitempty"`
	// Forced tells when an operator gave up the majority for lost.
	Forced []Forced `json:"forced,omitempty"`

	Nodes      map[string]*Node      `json:"nodes"`
	Groups     map[string]*Group     `json:"groups"`
	Operations map[uint64]*Operation `json:"operations"` // open ones, and the last closed ones
}

// Configured is where the present configuration comes from.
type Configured struct {
	Index uint64 `json:"index,omitempty"` // of its log entry
	By    string `json:"by,omitempty"`    // the operator who applied it; empty for the file that the cluster began with
	At    int64  `json:"at,omitempty"`    // Unix milliseconds, for display
}

// Role says what a node does in the cluster.
type Role string

// The roles.
const (
	Member  Role = "member"  // runs groups and votes
	Witness Role = "witness" // only votes
)

// Node is what the cluster knows for certain of one node. Whether it answers right
// now is not here: that is an observation.
type Node struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	// Boot is the newest kernel boot that joined; empty before the first.
	Boot string `json:"boot,omitempty"`
	// Session names the run of the daemon that joined last: what an earlier one still
	// says of its grants is not believed.
	Session string `json:"session,omitempty"`
	// Up says that Boot joined and was neither proven over nor left.
	Up bool `json:"up"`
	// Left says that the node took its leave in this boot, holding nothing.
	Left bool `json:"left,omitempty"`
	// Unclean is the reason why the node needs fencing; only a proof ends it.
	Unclean string `json:"unclean,omitempty"`
	// Op is the open fencing operation, 0 if there is none.
	Op uint64 `json:"op,omitempty"`
	// Ended lists the last boots that are proven over, newest last. They never
	// come back.
	Ended []string `json:"ended,omitempty"`
	// Machine is the hardware that the node says it runs on.
	Machine Machine `json:"machine,omitzero"`
	// Away is set while the node's daemon restarts.
	Away *Absence `json:"away,omitempty"`
	// Leaving says that its daemon is being stopped, and that what it holds is to move away first.
	Leaving bool `json:"leaving,omitempty"`
	// Watchdog is what the node told last of its watchdog in this boot; nil for none.
	Watchdog *WatchdogClaim `json:"watchdog,omitempty"`
	// Standby says that the node may hold no groups, by an operator's word.
	Standby bool `json:"standby,omitempty"`
	// Maintenance says that the cluster leaves the node and what it holds alone, and does not shoot it.
	Maintenance bool `json:"maintenance,omitempty"`
	// Capacity bounds the weights of the groups that are placed on the node; 0 is no bound.
	Capacity int `json:"capacity,omitempty"`
	// Fenced tells when (State.Clock) the node was last proven off by the cluster's own operations, newest last.
	// An operator who switches it on clears it.
	Fenced []int64 `json:"fenced,omitempty"`
	// Rehearsals tells, device by device, when it last switched this node off for a rehearsal.
	Rehearsals map[string]Rehearsal `json:"rehearsals,omitempty"`
}

// Machine names a host's hardware as its firmware does (SMBIOS, System Information), for comparison
// with whom a fence device says that it powers.
type Machine struct {
	UUID   string `json:"uuid,omitempty"`
	Serial string `json:"serial,omitempty"`
}

// Rehearsal says that a device really switched its node off.
type Rehearsal struct {
	Op       uint64   `json:"op"`
	Level    int      `json:"level"` // from 1
	OffMS    int64    `json:"off_ms"`
	At       int64    `json:"at,omitempty"` // Unix milliseconds, for display
	Executor string   `json:"executor"`
	Plugs    []string `json:"plugs,omitempty"`
}

// Group is a group of resources and who holds it.
type Group struct {
	Name string `json:"name"`
	Rules
	// Disabled says that it is to run nowhere, by an operator's word.
	Disabled bool `json:"disabled,omitempty"`
	// Maintenance says that the cluster leaves it alone, by an operator's word.
	Maintenance bool `json:"maintenance,omitempty"`
	// Halted is the failure for which it was stopped everywhere; an operator's clear or enable ends that.
	Halted string `json:"halted,omitempty"`
	Wish   *Wish  `json:"wish,omitempty"`
	// Aim is the node for which it leaves its own, though it runs well.
	Aim       string   `json:"aim,omitempty"`
	AimReason string   `json:"aim_reason,omitempty"`
	Missed    *Missed  `json:"missed,omitempty"`
	Removed   bool     `json:"removed,omitempty"` // no longer configured, but still held
	Grant     *Grant   `json:"grant,omitempty"`
	Released  *Release `json:"released,omitempty"` // how the last grant ended
	// Failures tells, node by node, why the group is not tried there again.
	Failures map[string]Failure `json:"failures,omitempty"`
	// Found tells, node by node, what was found active there without a grant.
	Found map[string]string `json:"found,omitempty"`
}

// GrantPhase is how far a grant came.
type GrantPhase string

// The phases of a grant.
const (
	Granted  GrantPhase = "granted"  // committed; the node starts its resources
	Started  GrantPhase = "started"  // the node reported all of them active
	Stopping GrantPhase = "stopping" // the node is to stop it; it may still hold it
)

// Grant is the committed decision that a group belongs to a node.
type Grant struct {
	Node   string     `json:"node"`
	Boot   string     `json:"boot"`
	Token  uint64     `json:"token"`
	Phase  GrantPhase `json:"phase"`
	Reason string     `json:"reason"`
	// StopReason says why the grant is to end.
	StopReason string `json:"stop_reason,omitempty"`
	At         int64  `json:"at,omitempty"` // Unix milliseconds, for display
}

// Release says how a grant ended.
type Release struct {
	Token uint64 `json:"token"`
	Proof Proof  `json:"proof"`
	// Maintained says that the group was lost with its node while that was in maintenance, which still lasts.
	Maintained bool `json:"maintained,omitempty"`
}

// ProofKind names one of the design's proofs (S3).
type ProofKind string

// The proofs that exist. There are no others.
const (
	CleanStop    ProofKind = "clean_stop"    // (a) the node reported a clean stop of that grant
	PowerOff     ProofKind = "power_off"     // (b) every feed was read back off
	NewBoot      ProofKind = "new_boot"      // (c) the node came back with a new kernel
	Watchdog     ProofKind = "watchdog"      // (e) its armed and tested watchdog must have expired
	OperatorWord ProofKind = "operator_word" // (f) an operator confirmed by hand that it is down
)

// Proof is why a node is known to be unable to write.
type Proof struct {
	Kind     ProofKind `json:"kind"`
	Node     string    `json:"node"`
	Boot     string    `json:"boot"`
	Op       uint64    `json:"op,omitempty"`       // for PowerOff and OperatorWord
	Evidence []string  `json:"evidence,omitempty"` // one line a plug
}

// Failure is why a group could not run on a node.
type Failure struct {
	Resource string `json:"resource"`
	Error    string `json:"error"`
	Count    int    `json:"count"`
	At       int64  `json:"at,omitempty"` // Unix milliseconds, for display
	Clock    int64  `json:"clock,omitempty"`
	// Expired says that the group may be tried there again; it is remembered until it runs there.
	Expired bool `json:"expired,omitempty"`
}

// OpenOperation gives the node's open fencing operation, or nil.
func (s *State) OpenOperation(node string) *Operation {
	n := s.Nodes[node]
	if n == nil || n.Op == 0 {
		return nil
	}
	return s.Operations[n.Op]
}

// Holds lists the groups that the node may have active: what it was granted, and what was found there
// without a grant.
func (s *State) Holds(node string) []string {
	var held []string
	for name, g := range s.Groups {
		_, found := g.Found[node]
		if found || g.Grant != nil && g.Grant.Node == node {
			held = append(held, name)
		}
	}
	slices.Sort(held)
	return held
}

// NodeNames lists the nodes in alphabetical order.
func (s *State) NodeNames() []string { return slices.Sorted(maps.Keys(s.Nodes)) }

// GroupNames lists the groups in alphabetical order.
func (s *State) GroupNames() []string { return slices.Sorted(maps.Keys(s.Groups)) }
