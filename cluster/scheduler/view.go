package scheduler

import (
	"slices"

	"github.com/hamgr/hamgr/cluster/state"
)

// Liveness is what the coordinator observes of a node at this moment.
type Liveness struct {
	// Reachable says that the node answers and may be given work.
	Reachable bool
	// Boot is the boot that it answers in; empty if it does not.
	Boot string
	// Gone says, in words, why the node counts as failed; empty while it does not.
	Gone string
}

// View is what the coordinator observes, besides the replicated state.
type View struct {
	Self  string // the coordinator
	Nodes map[string]Liveness
	// Voters are those whose votes count now; nil is all nodes.
	Voters []string
	// Busy names the operations that this coordinator executes right now, or that
	// wait for their next attempt.
	Busy map[uint64]bool
	// Settled says that nodes which start together with the cluster have had
	// the time to join: the first placement waits for better nodes until then.
	Settled bool
	// FenceAction is what is ordered against a failed node: FenceReboot or FenceOff.
	FenceAction state.FenceAction
	// Since is the milliseconds of this coordinator's monotonic time that the cluster's clock does not count yet:
	// since its last command of this term, or since the term began.
	Since int64
	// Minute is the minute of the coordinator's day, for failback alone; -1 if it is unknown.
	Minute int
	Policy Policy
	// Executors names, target by target, the nodes that can talk to its fence devices, best first. A
	// target without an entry is this coordinator's to fence.
	Executors map[string][]string
	// Unarmed says that this coordinator works no fence device itself.
	Unarmed bool
}

// votes reports whether the node's vote counts now, of how many.
func (v View) votes(s *state.State, name string) (counts bool, of int) {
	if v.Voters == nil {
		return true, len(s.Nodes)
	}
	return slices.Contains(v.Voters, name), len(v.Voters)
}

// Policy bounds what the cluster does by itself. Times are milliseconds of State.Clock; a window of zero
// switches its rule off.
type Policy struct {
	// StormWindow is the time within which the cluster fences at most half of the members.
	StormWindow int64
	// A node that was fenced QuarantineAfter times within QuarantineWindow is in quarantine for
	// QuarantineTime, and for twice as long with each time beyond.
	QuarantineWindow, QuarantineTime int64
	QuarantineAfter                  int
}

// Now is the present reading of the cluster's clock.
func Now(s *state.State, v View) int64 { return s.Clock + max(0, v.Since) }
