package node

import (
	"slices"
	"sync"
	"time"
)

// Pace is how evenly this host runs, as measured since the process began: what a shorter detection time is judged by. It
// is safe for concurrent use, and its zero value is ready.
type Pace struct {
	mu      sync.Mutex
	longest time.Duration // that the process stood still
	writes  [1000]time.Duration
	wrote   int // how many writes there were, also those that are forgotten
}

// stood notes that the process stood still.
func (p *Pace) stood(gap time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.longest = max(p.longest, gap)
}

// write notes how long a write to the log took until it was on the disk.
func (p *Pace) write(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes[p.wrote%len(p.writes)] = took
	p.wrote++
}

func (p *Pace) longestGap() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.longest
}

// writeP99 is what 99 of 100 of the last writes took at most; 0 if there was none.
func (p *Pace) writeP99() time.Duration {
	p.mu.Lock()
	last := slices.Clone(p.writes[:min(p.wrote, len(p.writes))])
	p.mu.Unlock()
	if len(last) == 0 {
		return 0
	}
	slices.Sort(last)
	return last[(len(last)*99+99)/100-1]
}
