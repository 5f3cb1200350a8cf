package node

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// trust is whether this node may act on what it knows. It may not after it started, and not
// after it stood still for so long that others may have acted: then it has to ask
// the coordinator first.
type trust struct {
	detection time.Duration
	log       *slog.Logger

	mu      sync.Mutex
	awake   time.Time     // since when this process runs without a gap
	era     int           // counts the gaps: an answer to a question of an earlier era does not count
	ready   chan struct{} // closed while trusted
	trusted bool
	heard   time.Time     // when the coordinator was last heard
	longest time.Duration // the longest that this process stood still so far
}

func newTrust(detection time.Duration, log *slog.Logger) *trust {
	now := time.Now()
	return &trust{detection: detection, log: log, awake: now, heard: now, ready: make(chan struct{})}
}

// watch measures this process's own gaps, until ctx ends.
func (t *trust) watch(ctx context.Context) {
	ticker := time.NewTicker(t.detection / 4)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		// Packets that came meanwhile wait in the sockets: up to half a detection time no
		// contact can look older than the rest of it.
		gap := now.Sub(last)
		t.measured(gap - t.detection/4)
		if gap > t.detection/2 {
			t.lose(now, gap)
		}
		last = now
	}
}

// measured notes for how long this process stood still.
func (t *trust) measured(gap time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.longest = max(t.longest, gap)
}

// longestGap is the longest that this process stood still so far.
func (t *trust) longestGap() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.longest
}

func (t *trust) lose(now time.Time, gap time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log.Warn("this node stood still and asks before it acts again", "gap", gap.Round(time.Millisecond))
	t.awake = now
	t.era++
	if t.trusted {
		t.trusted = false
		t.ready = make(chan struct{})
	}
}

// awakeSince is the time before which silence of others means nothing.
func (t *trust) awakeSince() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.awake
}

// question begins a question to the coordinator.
func (t *trust) question() (era int, ask bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.era, !t.trusted
}

// answered notes the answer to a question of that era: all that was committed before it is applied
// here.
func (t *trust) answered(era int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard = time.Now()
	if era == t.era && !t.trusted {
		t.trusted = true
		close(t.ready)
	}
}

// spoken notes that the coordinator answered.
func (t *trust) spoken() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard = time.Now()
}

// silence is for how long no coordinator was heard, as far as this process was awake.
func (t *trust) silence() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	since := t.heard
	if t.awake.After(since) {
		since = t.awake
	}
	return time.Since(since)
}

// now reports whether this node may act.
func (t *trust) now() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trusted
}

// wait returns when this node may act, or with the error of ctx.
func (t *trust) wait(ctx context.Context) error {
	t.mu.Lock()
	ready := t.ready
	t.mu.Unlock()
	select {
	case <-ready:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
