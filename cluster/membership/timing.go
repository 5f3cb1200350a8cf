package membership

import (
	"math"
	"time"
)

// Timing is SWIM's pace, all of it derived from one number. The factors were measured in
// virtual time over some thousand deaths and pauses with 2 to 32 nodes: the last observer
// declares a death between 1.00 and 1.2 detection times after it, and a node whose packets
// were held back for 0.9 detection times is never declared dead.
type Timing struct {
	ProbeInterval  time.Duration
	ProbeTimeout   time.Duration
	GossipInterval time.Duration
	GossipNodes    int
	// SuspicionMult times ProbeInterval (and memberlist's own factor of the node count) is
	// the time from the failed SWIM probe to death.
	SuspicionMult int
	// RetransmitMult is four times the library's default. A node that was paused must get its
	// refutation through: with 4, one in ten pauses (n=5) to seven in ten (n=9) ended in a
	// false death, because the refutation went out too few times and, once known, is never
	// repeated.
	RetransmitMult int
	// PushPullInterval is between two exchanges of everything with one other node, over a stream: what
	// gossip lost. Who is missing is asked far sooner, see RejoinInterval.
	PushPullInterval time.Duration
	// StreamTimeout bounds every stream, and so how long a join of a silent node blocks.
	StreamTimeout time.Duration
	// ForgetTime is for how long what was said of a dead node counts after its death. Where a node is known by the highest
	// number, whoever gave it, it cannot refute a death that is a mistake: then only forgetting helps. By this time all
	// others have seen a real death too, so that nobody tells that the dead one lives.
	ForgetTime time.Duration
	// RejoinInterval is the mean pause between two attempts to join a missing node; the
	// pause itself is uniform between half and one and a half of it.
	RejoinInterval time.Duration
}

// DeriveTiming computes the pace of a cluster of that many nodes.
//
// Each node probes one other at a time. The interval is such that any two are in touch some ten times in a
// detection time, however many there are, within the bounds that were measured: what a small cluster need not send
// is what an idle host need not wake up for.
func DeriveTiming(detection time.Duration, nodes int) Timing {
	interval := min(max(detection*2/time.Duration(15*max(nodes-1, 1)), detection/40), detection/15)
	// memberlist multiplies the suspicion time by max(1, log10 n): taken out again, so that
	// the probe that fails and the suspicion after it make one detection time.
	scale := math.Max(1, math.Log10(math.Max(1, float64(nodes))))
	return Timing{
		ProbeInterval:    interval,
		ProbeTimeout:     interval / 2,
		GossipInterval:   interval,
		GossipNodes:      max(1, min(nodes-1, 4)),
		SuspicionMult:    int(math.Ceil(float64(detection-interval)/(float64(interval)*scale) - 1e-3)),
		RetransmitMult:   16,
		PushPullInterval: 4 * detection,
		StreamTimeout:    detection / 4,
		ForgetTime:       2 * detection,
		RejoinInterval:   min(time.Second, detection),
	}
}
