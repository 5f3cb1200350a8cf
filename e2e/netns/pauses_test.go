package netns

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestB20QuickReset: a host that resets, and is back before anybody has missed it, comes with a new boot: its group is
// started again, and nobody shoots the new boot.
func TestB20QuickReset(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 3})
	for range 3 {
		before := l.writes(theGroup)
		h := l.hosts[before.Node]
		began := time.Now()
		if err := h.off(); err != nil {
			t.Fatal(err)
		}
		l.powerOn(before.Node)
		took := time.Since(began)
		l.settled("recovered", l.names...)
		after := l.writes(theGroup)
		if after.Token <= before.Token {
			t.Errorf("the group was not started again: %v, then %v", before, after)
		}
		t.Logf("off for %v, %s, then %s, writes again after %v", took, before.Node, after.Node, time.Duration(after.Mono-before.Mono))
	}
	l.noShot()
	l.judge()
}

// shortPause is one that a daemon notices and that no healthy node is shot for.
const shortPause = detection * 8 / 10

const stoodStill = "this node stood still and asks before it acts again"

// pause lets a node's host stand still for a time. It gives when it went on, and whether it did.
func (l *lab) pause(name string, d time.Duration) (woke time.Time, was bool) {
	l.t.Helper()
	h := l.hosts[name]
	boot := h.machine.Boot()
	if err := h.freeze(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	l.let(d)
	woke = time.Now()
	was, err := h.thaw(l.t.Context(), boot)
	if err != nil {
		l.t.Fatal(err)
	}
	return woke, was
}

// noticed: after it woke, the node noticed that it had stood still before it did anything else with a group.
func (l *lab) noticed(name string, woke time.Time) {
	l.t.Helper()
	var first event
	l.until(patience, name+" notices", func(context.Context) error {
		after := l.events(func(e event) bool {
			return e.on == name && !e.Time.Before(woke) && (e.Msg == stoodStill || e.Group != "" || e.Op != 0)
		})
		if len(after) == 0 {
			return errors.New("nothing is logged yet")
		}
		first = after[0]
		return nil
	})
	if first.Msg != stoodStill {
		l.t.Errorf("%s went on without asking: %v", name, first)
	}
}

// TestB22Pause: the host that holds the group stands still. A short pause does nothing; after a long one it is shot before
// anybody else writes, and what stood still never wakes.
func TestB22Pause(t *testing.T) {
	for _, d := range []time.Duration{shortPause, 8 * time.Second, 15 * time.Second} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			l := newCluster(t, shape{members: 3})
			before := l.writes(theGroup)
			woke, was := l.pause(before.Node, d)
			short := d < detection
			if was != short {
				t.Errorf("after %v the same boot stands there: %v", d, was)
			}
			if short {
				l.noticed(before.Node, woke)
			}
			l.settled("well again", l.names...)
			after := l.writes(theGroup)
			if short {
				if after.PID != before.PID || after.Token != before.Token {
					t.Errorf("a pause of %v moved the group: %v, then %v", d, before, after)
				}
				l.noShot()
			} else if shots := l.shots(); len(shots) != 1 || shots[0].Boot != before.Boot || after.Token <= before.Token {
				t.Errorf("%v, then %v; shots: %v", before, after, shots)
			}
			l.judge()
		})
	}
}

// TestB22Unfenced: as before, but the host's power cannot be switched. Nobody takes over; and the host, when it goes on,
// notices before it does anything that others may have acted.
func TestB22Unfenced(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 3})
	before := l.writes(theGroup)
	l.device.silence(before.Node, true)
	h := l.hosts[before.Node]
	if err := h.freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.let(8 * time.Second)
	if e := l.last(theGroup); e.Token != before.Token {
		t.Fatalf("taken over without proof: %v", e)
	}
	woke := time.Now()
	if was, err := h.thaw(t.Context(), before.Boot); err != nil || !was {
		t.Fatalf("it was shot without a device, %v", err)
	}
	l.noticed(before.Node, woke)
	l.device.silence(before.Node, false)
	l.settled("well again", l.names...)
	l.writes(theGroup)
	l.judge()
}

// TestPausesShorterThanDetection: of pauses that a healthy node may make, however often, none costs anything.
func TestPausesShorterThanDetection(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 3})
	before := l.writes(theGroup)
	for i := range 6 {
		name := l.names[i%len(l.names)]
		if _, was := l.pause(name, shortPause); !was {
			t.Fatalf("pause %d of %s: it was shot", i, name)
		}
		l.settled(fmt.Sprintf("well after pause %d of %s", i, name), l.names...)
	}
	if after := l.writes(theGroup); after.PID != before.PID || after.Token != before.Token {
		t.Errorf("not the same process writes: %v, then %v", before, after)
	}
	l.noShot()
	l.judge()
}
