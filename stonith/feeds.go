package stonith

import (
	"context"
	"sync"
	"time"
)

// feeds keeps a level's devices together. A host with several feeds lives as long as one of them has
// power, so there must be a time at which all are off. It begins when the last device reads off, and
// each device's confirming reads have to be asked its settle time after that.
type feeds struct {
	devices int

	mu sync.Mutex
	// Guarded by mu:
	off       map[*drive]time.Time // since when all plugs read off
	confirmed map[*drive]time.Time // when the reads were asked that confirmed it
	lost      bool                 // a device was given up, and with it the level
	changed   chan struct{}        // closed, and made anew, when one of these changes
}

func newFeeds(devices int) feeds {
	return feeds{
		devices: devices, off: map[*drive]time.Time{}, confirmed: map[*drive]time.Time{},
		changed: make(chan struct{}),
	}
}

// arrive reports whether the device's plugs read off now and did not before. Called with mu held.
func (f *feeds) arrive(d *drive, since time.Time) bool {
	if _, known := f.off[d]; known {
		return false
	}
	f.off[d] = since
	f.tell()
	return true
}

// leave is the opposite. Called with mu held.
func (f *feeds) leave(d *drive) {
	delete(f.off, d)
	delete(f.confirmed, d)
	f.tell()
}

// all reports whether all devices read off. Called with mu held.
func (f *feeds) all() bool { return len(f.off) == f.devices }

// tell wakes those who wait. Called with mu held.
func (f *feeds) tell() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// confirm tells that a device read off again, when asked at that moment.
func (f *feeds) confirm(d *drive, asked time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.confirmed[d] = asked
	f.tell()
}

// lose tells that a device was given up.
func (f *feeds) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = true
	f.tell()
}

// overtaken waits for the other devices of d's level, and reports whether d, which is done, has to
// look again because another one read off only after d was confirmed. When it says no and none was
// lost, all are together, or ctx has ended.
func (f *feeds) overtaken(ctx context.Context, d *drive) bool {
	if !d.op.goal.twice {
		return false
	}
	for {
		f.mu.Lock()
		again := f.all() && f.confirmed[d].Before(f.settled(d))
		if again {
			delete(f.confirmed, d)
		}
		over, changed := f.lost || f.agreed(), f.changed
		f.mu.Unlock()
		if again || over {
			return again
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// together reports whether there was a time at which all devices were off.
func (f *feeds) together() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.agreed()
}

// agreed is together. Called with mu held.
func (f *feeds) agreed() bool {
	for d := range f.off {
		if f.confirmed[d].Before(f.settled(d)) {
			return false
		}
	}
	return f.all()
}

// due is when a device may be asked for what confirms, as far as is known now.
func (f *feeds) due(d *drive) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settled(d)
}

// settled is due: the last of those that are off has been so for the device's settle time. Called with mu held.
func (f *feeds) settled(d *drive) time.Time {
	var latest time.Time
	for _, since := range f.off {
		if since.After(latest) {
			latest = since
		}
	}
	return latest.Add(max(d.device.Settle, 0))
}
