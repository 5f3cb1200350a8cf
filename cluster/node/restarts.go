package node

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// restarts are when a group was restarted in place, by the kernel's clock: one grant's, in one boot.
type restarts []time.Duration

// within gives those that are less than a window old; of a window that is not positive, all.
func (rs restarts) within(window, now time.Duration) restarts {
	if window <= 0 {
		return rs
	}
	return slices.DeleteFunc(slices.Clone(rs), func(at time.Duration) bool { return now-at >= window })
}

// uptime is the time since the kernel's start, its sleep included.
func (n *Node) uptime() time.Duration {
	if n.Uptime != nil {
		return n.Uptime()
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("node: the kernel has no clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
