package node

import (
	"context"
	"log/slog"
	"time"
)

const (
	// clockStep is the least step of the wall clock that is told of. What is less a time service slews.
	clockStep = 500 * time.Millisecond
	// clockLook is how often the clock is looked at. In that time no slewing comes to a step.
	clockLook = time.Second
)

// watchClock tells when the wall clock is set, until ctx ends. Nothing goes by it, except a window of failback; but who
// reads the logs of several nodes side by side has to know. What the clock should have come to is measured since the
// kernel's start: the clock of a host that was suspended has not stepped.
func watchClock(ctx context.Context, uptime func() time.Duration, wall func() time.Time, log *slog.Logger) {
	ticker := time.NewTicker(clockLook)
	defer ticker.Stop()
	before := kernelStart(uptime, wall)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			now := kernelStart(uptime, wall)
			if by := now.Sub(before); by.Abs() >= clockStep {
				log.Warn("wall clock stepped", "by", by.Round(time.Millisecond))
			}
			before = now
		}
	}
}

// kernelStart is when the kernel started, as the wall clock has it now. A process that stood still between its looks at
// the two clocks looks again.
func kernelStart(uptime func() time.Duration, wall func() time.Time) time.Time {
	for {
		up := uptime()
		start := wall().Round(0).Add(-up) // without its monotonic reading, which no step moves
		if uptime()-up < clockStep/10 {
			return start
		}
	}
}
