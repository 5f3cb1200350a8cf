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
//
// Whoever asks measures the pause that may just be over: after it, the watch of this type may be the last goroutine to
// run. The time is that since the kernel's start, because the usual clock stands still while a host is suspended.
type trust struct {
	detection time.Duration
	uptime    func() time.Duration
	pace      *Pace
	log       *slog.Logger

	mu      sync.Mutex
	awake   time.Time     // since when this process runs without a gap
	era     int           // counts the gaps: an answer to a question of an earlier era does not count
	ready   chan struct{} // closed while trusted
	trusted bool
	heard   time.Time     // when the coordinator was last heard
	watched bool          // somebody looks often enough, so that a gap is one
	seen    time.Duration // when this process was last seen to run, since the kernel's start
}

func newTrust(detection time.Duration, uptime func() time.Duration, pace *Pace, log *slog.Logger) *trust {
	now := time.Now()
	return &trust{detection: detection, uptime: uptime, pace: pace, log: log, awake: now, heard: now, ready: make(chan struct{})}
}

// watch looks often enough that this process is never unseen for long, until ctx ends.
func (t *trust) watch(ctx context.Context) {
	ticker := time.NewTicker(t.detection / 4)
	defer ticker.Stop()
	t.look(func() { t.watched, t.seen = true, t.uptime() })
	defer t.look(func() { t.watched = false })
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			t.look(func() {})
		}
	}
}

// look does something after the pause that may just be over was measured.
func (t *trust) look(do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watched {
		now := t.uptime()
		gap := now - t.seen
		t.seen = now
		t.pace.stood(gap - t.detection/4)
		// Packets that came meanwhile wait in the sockets: up to half a detection time no
		// contact can look older than the rest of it.
		if gap > t.detection/2 {
			t.lose(time.Now(), gap)
		}
	}
	do()
}

// lose is called with mu held.
func (t *trust) lose(now time.Time, gap time.Duration) {
	t.log.Warn("this node stood still and asks before it acts again", "gap", gap.Round(time.Millisecond))
	t.awake = now
	t.era++
	if t.trusted {
		t.trusted = false
		t.ready = make(chan struct{})
	}
}

// awakeSince is the time before which silence of others means nothing.
func (t *trust) awakeSince() (since time.Time) {
	t.look(func() { since = t.awake })
	return since
}

// question begins a question to the coordinator.
func (t *trust) question() (era int, ask bool) {
	t.look(func() { era, ask = t.era, !t.trusted })
	return era, ask
}

// answered notes the answer to a question of that era: all that was committed before it is applied
// here.
func (t *trust) answered(era int) {
	t.look(func() {
		t.heard = time.Now()
		if era == t.era && !t.trusted {
			t.trusted = true
			close(t.ready)
		}
	})
}

// spoken notes that the coordinator answered.
func (t *trust) spoken() {
	t.look(func() { t.heard = time.Now() })
}

// silence is for how long no coordinator was heard, as far as this process was awake.
func (t *trust) silence() (silent time.Duration) {
	t.look(func() { silent = time.Since(latest(t.heard, t.awake)) })
	return silent
}

// now reports whether this node may act.
func (t *trust) now() (trusted bool) {
	t.look(func() { trusted = t.trusted })
	return trusted
}

// wait returns when this node may act, or with the error of ctx.
func (t *trust) wait(ctx context.Context) error {
	var ready chan struct{}
	t.look(func() { ready = t.ready })
	select {
	case <-ready:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
