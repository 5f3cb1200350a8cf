package stonith

import (
	"math"
	"time"
)

// Budget is the longest time that an Off through these levels takes. It stops at the
// largest duration.
func Budget(levels [][]Device) time.Duration {
	var sum time.Duration
	for level := range levels {
		sum = add(sum, LevelBudget(levels, level+1))
	}
	return sum
}

// LevelBudget is the share of one level, from 1: the longest of its devices' timeouts, since
// all of them work at once, and the second opinion of the other levels' devices, which may
// begin as late as at the end of that.
func LevelBudget(levels [][]Device, level int) time.Duration {
	if level < 1 || level > len(levels) {
		return 0
	}
	var opinion time.Duration
	for i, devices := range levels {
		for _, d := range devices {
			if i != level-1 {
				opinion = max(opinion, opinionShare(d))
			}
		}
	}
	if len(levels[level-1]) == 0 {
		return 0
	}
	return add(longest(levels[level-1]), opinion)
}

// longest is the time of a level's slowest device.
func longest(devices []Device) time.Duration {
	var longest time.Duration
	for _, d := range devices {
		longest = max(longest, d.Timeout)
	}
	return longest
}

// opinionShare is the time that a device has for its second opinion.
func opinionShare(d Device) time.Duration { return max(min(opinionTime, d.Timeout), 0) }

// add adds two times that are not negative, and stops at the largest duration.
func add(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
