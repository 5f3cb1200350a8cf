package watchdog

import "time"

// Timing is every time of the watchdog. None of them can be set by itself: a timeout that fits the rest of the
// cluster is a matter of arithmetic, not of taste.
type Timing struct {
	// Timeout is when the host is reset after the last feeding. It is longer than the longest restart of a daemon, which must
	// take over a watchdog that counts.
	Timeout time.Duration
	// Least is the shortest timeout that a driver may make of it.
	Least time.Duration
	// Interval is the time between two feedings: a quarter of Timeout at most.
	Interval time.Duration
	// Fresh is for how long the daemon's word that it makes progress is good.
	Fresh time.Duration
	// Patience is for how long a node that holds something is fed after it asked the last question that a coordinator
	// answered: as long as it may take to notice that, and to stop everything in order.
	Patience time.Duration
	// Expiry is how long after the last contact the node is certainly reset, or holds nothing.
	Expiry time.Duration
}

const (
	// RestartTime is the longest that a restart of the daemon takes, from its end until the new one has the watchdog: systemd
	// waits 100 ms, the program reads its configuration and opens the device; the rest is for a host that is busy.
	RestartTime = 10 * time.Second
	// grain is what the kernel's interface rounds to.
	grain = time.Second
	// letGo is after how many detection times without a coordinator a node stops its groups.
	letGo = 2
)

// Derive computes all times from the cluster's one number and from how long the slowest group may take to stop.
func Derive(detection, slowestStop time.Duration) Timing {
	t := Timing{
		Timeout: roundUp(RestartTime + 2*detection),
		Least:   roundUp(RestartTime),
		Fresh:   2 * detection,
	}
	t.Interval = min(t.Timeout/4, detection)
	// One detection time more: a coordinator that was cut off answers until its lease ends, and
	// such an answer counts here, but not for its successor, who measures the silence. A quarter: how often the groups are
	// looked after. And a restart on the way, after which the waiting begins anew.
	t.Patience = letGo*detection + detection + detection/4 + RestartTime + max(slowestStop, 0)
	t.Expiry = expiry(t, 0)
	return t
}

// Late is after how long without feeding the host must have been reset: the timeout, what the driver rounds to, and
// a tenth, at least a second, for its clock.
func (t Timing) Late(pretimeout time.Duration) time.Duration {
	fire := t.Timeout + pretimeout + grain
	return fire + max(fire/10, time.Second)
}

// expiry computes how long others wait, by their own monotonic clock, from the last contact with the node. (The named
// exception to "no safety from clocks": it holds as long as clocks run at speeds that differ by less than a tenth, and
// as the watchdog fires, which a test has shown.)
//
// Let q be when the node asked the last question that a coordinator answered. The coordinator heard from the node no
// earlier than that, so what it measures, from its last contact, begins at q or later. After q + Patience the node's daemon,
// which looks at the time before each feeding, does not feed while it holds anything. But between look and feeding the process
// can be stopped, by a signal or for want of a CPU. It can not be stopped for longer than Late, counted from the feeding before:
// the host would be dead. So the last feeding that was allowed is over at q + Patience + Late. When that process ends, the
// kernel feeds once more: at q + Patience + 2 Late at most, for the same reason. A successor looks at the same q, which is
// recorded in this boot, before it opens the device, and does not. So by q + Patience + 3 Late the host is
// reset, unless it disarmed the watchdog because everything that it held was proven stopped.
func expiry(t Timing, pretimeout time.Duration) time.Duration {
	e := t.Patience + 3*t.Late(pretimeout)
	return e + max(e/10, time.Second)
}

// Line is one time with its meaning, for those who check a configuration.
type Line struct {
	Name    string
	Value   time.Duration
	Meaning string
}

// Lines lists what an operator wants to know.
func (t Timing) Lines() []Line {
	return []Line{
		{"watchdog timeout", t.Timeout, "a host that holds something is reset so long after it was last fed"},
		{"watchdog fed", t.Interval, "this often, while the daemon makes progress"},
		{"watchdog patience", t.Patience, "a node without coordinator is fed for this long, to stop its groups in order"},
		{"watchdog expiry", t.Expiry, "a node that was silent for this long is reset, or holds nothing (level \"watchdog\")"},
	}
}

// roundUp gives whole seconds: the kernel's interface knows no others.
func roundUp(d time.Duration) time.Duration {
	return (d + grain - 1).Truncate(grain)
}
