package netns

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// noTakeover: for some detection times nobody writes under another token than before.
func (l *lab) noTakeover(ask string, token uint64) {
	l.t.Helper()
	l.let(5 * detection)
	if e := l.last(theGroup); e.Token != token {
		l.t.Errorf("taken over without quorum: %v", e)
	}
	s, err := l.status(l.t.Context(), ask)
	if err != nil {
		l.t.Fatal(err)
	}
	if s.Quorate {
		l.t.Errorf("%s sees quorum: %+v", ask, s)
	}
	l.noShot()
}

// tolerates waits until a node says how many may fail.
func (l *lab) tolerates(ask string, n int) {
	l.t.Helper()
	l.until(patience, fmt.Sprintf("%d may fail", n), func(ctx context.Context) error {
		s, err := l.status(ctx, ask)
		if err == nil && (!s.Quorate || s.Tolerates != n) {
			err = fmt.Errorf("quorate: %v, %d may fail", s.Quorate, s.Tolerates)
		}
		return err
	})
}

// says waits until what hamgr status shows on a node has all these words.
func (l *lab) says(ask string, words ...string) {
	l.t.Helper()
	l.until(patience, fmt.Sprintf("status says %q", words), func(context.Context) error {
		screen := l.screen(ask)
		for _, w := range words {
			if !strings.Contains(screen, w) {
				return fmt.Errorf("no %q in\n%s", w, screen)
			}
		}
		return nil
	})
}

// TestB18TwoVoters: of two voters none may fail, and status says so; nothing is taken over when one does.
func TestB18TwoVoters(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 2, prefer: map[string][]string{theGroup: {"n1"}}})
	l.tolerates("n2", 0)
	l.says("n2", "no failure")
	before := l.writes(theGroup)
	if err := l.hosts["n1"].off(); err != nil {
		t.Fatal(err)
	}
	l.noTakeover("n2", before.Token)
	l.powerOn("n1")
	l.settled("both are back", l.names...)
	l.noShot()
	l.judge()
}

// TestB18Witness: with a witness one may fail, whichever.
func TestB18Witness(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 2, witness: true, prefer: map[string][]string{theGroup: {"n1"}}})
	l.tolerates("n2", 1)

	// The witness first: then nobody else may fail any more.
	if err := l.hosts[witness].off(); err != nil {
		t.Fatal(err)
	}
	l.tolerates("n2", 0)
	l.says("n2", "no failure")
	before := l.writes(theGroup)
	if err := l.hosts["n1"].off(); err != nil {
		t.Fatal(err)
	}
	l.noTakeover("n2", before.Token)
	l.powerOn(l.names...)
	l.settled("all are back", l.names...)
	l.noShot()

	s := l.settled("steady", l.names...)
	holder := groupOf(s, theGroup).Node
	other := map[string]string{"n1": "n2", "n2": "n1"}[holder]
	if err := l.hosts[holder].off(); err != nil {
		t.Fatal(err)
	}
	l.until(patience, "taken over", func(ctx context.Context) error {
		s, err := l.status(ctx, other)
		if g := groupOf(s, theGroup); err == nil && (g.Node != other || g.State != api.GroupRunning) {
			err = fmt.Errorf("%+v", g)
		}
		return err
	})
	l.powerOn(holder)
	l.settled("whole again", l.names...)
	if shots := l.shots(); len(shots) != 1 || shots[0].Node != holder {
		t.Errorf("shots: %v", shots)
	}
	l.judge()
}

// TestB23SlowWitness: a daemon that stands still, while its host and its service go on, is shot, and its group taken over,
// with the witness's vote. A witness that is slow delays that; it never costs anybody else's power.
func TestB23SlowWitness(t *testing.T) {
	for _, delay := range []time.Duration{0, 2 * time.Second, 8 * time.Second} {
		t.Run(delay.String(), func(t *testing.T) {
			t.Parallel()
			l := newCluster(t, shape{members: 2, witness: true, prefer: map[string][]string{theGroup: {"n1"}}})
			l.wires.set(func(f frame) fate {
				if f.of(witness) {
					return fate{late: delay}
				}
				return passes
			})
			before := l.writes(theGroup)
			if delay > 0 {
				l.let(4 * detection)
				if after := l.writes(theGroup); after.PID != before.PID {
					t.Errorf("a slow witness moved the group: %v, then %v", before, after)
				}
				l.noShot()
			}
			if err := l.hosts["n1"].signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if delay > 0 {
				l.let(delay + 2*detection)
				l.wires.set(nil) // n2 had no majority within the time: it has one again
			}
			l.settled("taken over, and n1 is back", l.names...)
			if e := l.writes(theGroup); e.Token <= before.Token || e.Node != "n2" {
				t.Errorf("not taken over: %v, then %v", before, e)
			}
			if shots := l.shots(); len(shots) != 1 || shots[0].Node != "n1" {
				t.Errorf("shots: %v", shots)
			}
			l.judge()
		})
	}
}
