package node

import (
	"log/slog"
	"slices"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/membership"
	"github.com/hamgr/hamgr/stonith"
)

// Timing is one time that follows from the configuration.
type Timing struct {
	Name    string
	Value   time.Duration
	Meaning string
}

// Failover is the worst case, in its parts, of the failover of what one node may hold.
type Failover struct {
	Node   string
	Detect time.Duration // from the fault to the order to fence
	Fence  time.Duration // every level tried to its end, the last one successful
	Start  time.Duration // of the slowest group, all its resources together
}

// Total is the sum of the parts.
func (f Failover) Total() time.Duration { return f.Detect + f.Fence + f.Start }

var discard = slog.New(slog.DiscardHandler)

// Timings gives what follows from a configuration: the pace of each part, and the worst case of each
// member's failover.
func Timings(c *config.Config) ([]Timing, []Failover) {
	d := c.Cluster.DetectionTime
	gossip := membership.DeriveTiming(d, len(c.Nodes))
	log := consensus.DeriveTiming(d)
	timings := []Timing{
		{"detection_time", d, "a healthy node may pause for this long; a dead one is fenced right after"},
		{"SWIM probe interval", gossip.ProbeInterval, "each node probes another one this often"},
		{"suspected after", d / 4, "silence after which a node is shown as suspect"},
		{"raft heartbeat timeout", log.Heartbeat, "silence of the coordinator after which an election starts"},
		{"raft leader lease", log.Lease, "a coordinator without a majority steps down after this"},
		{"log store deadline", log.StoreDeadline, "a write to the log that takes longer ends the daemon"},
		{"progress probe", log.Probe, "the coordinator proves its majority by a commit this often"},
		{"quorum loss", quorumLossTimes * d, "a node that hears no coordinator for this long lets go (on_quorum_loss)"},
		{"no progress", coordinator.StallLimit(d), "a node that answers but applies nothing for this long is fenced"},
	}
	if c.Cluster.TwoNode {
		for _, m := range c.Members() {
			timings = append(timings, Timing{"second shot by " + m, SecondShotDelay(c, m), "of two nodes, the one that does not hold the groups waits this long before it shoots a node that has power"})
		}
	}
	if slices.ContainsFunc(c.Nodes, config.Node.HasWatchdog) {
		for _, l := range WatchdogTiming(c).Lines() {
			timings = append(timings, Timing{l.Name, l.Value, l.Meaning})
		}
	}
	var failovers []Failover
	slowest := slowestStart(c)
	for _, m := range c.Members() {
		fence := stonith.Budget(levels(c, m, discard))
		if node, _ := c.Node(m); node.WatchdogLevel() > 0 {
			fence += WatchdogTiming(c).Expiry // the devices are tried on meanwhile
		}
		failovers = append(failovers, Failover{
			Node:   m,
			Detect: d + d/4,
			Fence:  fence,
			Start:  slowest,
		})
	}
	return timings, failovers
}

// Share is what one fence device may take of the time in which a node is to be fenced.
type Share struct {
	Node    string
	Level   int // from 1
	Device  string
	Timeout time.Duration // of the device: all that it has for one attempt
	Settle  time.Duration // of the timeout: off must last for so long
	// OfLevel is the budget of the device's level: that of its slowest device, and the second opinion of the other
	// levels.
	OfLevel time.Duration
	// Whole is the budget of all levels, one after the other.
	Whole time.Duration
}

// Shares gives the time budget of every node's fencing, device by device.
func Shares(c *config.Config) []Share {
	var all []Share
	for _, name := range c.NodeNames() {
		devices := levels(c, name, discard)
		for i, level := range devices {
			for _, d := range level {
				all = append(all, Share{
					Node: name, Level: i + 1, Device: d.Name, Timeout: d.Timeout, Settle: d.Settle,
					OfLevel: stonith.LevelBudget(devices, i+1), Whole: stonith.Budget(devices),
				})
			}
		}
	}
	return all
}

// slowestStart is the longest that any group may take to start.
func slowestStart(c *config.Config) time.Duration {
	var slowest time.Duration
	for _, g := range c.Groups {
		var sum time.Duration
		for _, r := range g.Resources {
			sum += r.StartTimeout
		}
		slowest = max(slowest, sum)
	}
	return slowest
}
