package consensus

import "time"

// minDetection is the least detection time that raft's own lower bounds allow for.
const minDetection = 200 * time.Millisecond

// The log is cut often, so that its file stays small and a newcomer gets one snapshot
// rather than a long tail. The state is a few KiB.
const (
	snapshotInterval  = 30 * time.Second // and up to twice that: checked at random
	snapshotThreshold = 1024             // entries
	trailingLogs      = 1024             // entries kept behind a snapshot for slow followers
)

// Timing is the pace of the log, all of it derived from one number. With these factors a
// new leader was proven by a commit 0.4 detection times after the loss of the old one, and at
// most 0.70 (TestSuccession: 240 losses each at 1, 3 and 10 s, writes of 1 and 5 ms, 3 and 5
// voters; the bound is 1.2), and the old one always stepped down before.
type Timing struct {
	Heartbeat     time.Duration // silence of the leader that starts an election
	Lead          time.Duration // a leader's heartbeats go out every 10 to 20 % of this
	Election      time.Duration // time for one election
	Lease         time.Duration // a leader that hears no majority for this long steps down
	RPC           time.Duration // one request to another voter
	Commit        time.Duration // least pause between two idle messages to a follower; see committed
	StoreDeadline time.Duration // one call of a store; the first one missed is final
	Probe         time.Duration // between two commits that prove leadership
	Patience      time.Duration // without a commit for this long, a leader steps down
	Ask           time.Duration // one question to another voter
	Retry         time.Duration // between two attempts to form a cluster
}

// DeriveTiming computes the pace.
func DeriveTiming(detection time.Duration) Timing {
	return Timing{
		Heartbeat:     detection / 5,
		Lead:          detection * 3 / 5,
		Election:      detection / 5,
		Lease:         detection / 5,
		RPC:           detection / 10,
		Commit:        detection / 4,
		StoreDeadline: detection / 2,
		Probe:         detection / 2,
		Patience:      detection,
		Ask:           detection / 4,
		Retry:         detection / 10,
	}
}
