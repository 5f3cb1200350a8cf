package netns

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// whole is how long the nodes may take to find each other again after the end of a cut, however long it was.
const whole = 10 * time.Second

// whole says what is missing until all nodes see all others.
func (l *lab) whole() error {
	var errs []error
	for _, name := range l.names {
		s, err := l.status(l.t.Context(), name)
		if err == nil {
			err = l.unsettled(s, l.names)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// TestB14Cut: after a cut of all from all, or of one node in one direction, the cluster is whole within 10 s.
func TestB14Cut(t *testing.T) {
	for _, c := range []struct {
		name string
		lost func(frame) bool
	}{
		{"all from all", func(frame) bool { return true }},
		{"one node deaf", func(f frame) bool { return f.to == "n3" }},
		{"one node mute", func(f frame) bool { return f.from == "n3" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newCluster(t, shape{members: 3, prefer: map[string][]string{theGroup: {"n1", "n2"}}})
			lengths := []time.Duration{5 * time.Second, 12 * time.Second}
			if *long {
				lengths = append(lengths, 45*time.Second, 600*time.Second)
			}
			for _, d := range lengths {
				l.wires.set(func(f frame) fate { return fate{lost: c.lost(f)} })
				l.let(d)
				if err := l.whole(); err == nil {
					t.Fatalf("a cut of %v was not felt", d)
				}
				l.wires.set(nil)
				began := time.Now()
				l.settledWithin(whole*slowness, fmt.Sprintf("whole after a cut of %v", d), l.names...)
				t.Logf("whole %v after a cut of %v", time.Since(began).Round(time.Millisecond), d)
			}
			l.noShot() // n3 holds nothing; without quorum nobody shoots
			l.judge()
		})
	}
}
