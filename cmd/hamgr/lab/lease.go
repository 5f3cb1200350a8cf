package lab

import (
	"context"
	"errors"
	"fmt"
)

// lease is what hamgr does not have: a right to write that ends by the clock. Its time is counted in seconds, by hand.
type lease struct {
	now, until int
	holder     string
}

const leaseSeconds = 10

// take gives the lease to who asks, if nobody has it now.
func (l *lease) take(who string) error {
	if l.valid(l.holder) && who != l.holder {
		return fmt.Errorf("%s has the lease until %d s", l.holder, l.until)
	}
	l.holder, l.until = who, l.now+leaseSeconds
	return nil
}

func (l *lease) valid(who string) bool { return l.holder != "" && l.holder == who && l.now < l.until }

// leaseStory: alpha looks at its lease, is paused, and writes when the lease is beta's.
func leaseStory(ctx context.Context, _ bool) ([]Scene, error) {
	s := newStage("Who has the lease may write, and a lease lasts 10 s. The tokens are there, but nobody looks at them.")
	l := &lease{}
	if err := l.take(oldHolder); err != nil {
		return nil, err
	}
	s.scene.step(oldHolder, "lease", "0 s: taken, until %d s", l.until)
	if _, err := s.begin(ctx, s.put); err != nil {
		return nil, err
	}
	l.now = 9
	if !l.valid(oldHolder) {
		return nil, errors.New("the lease ended early")
	}
	s.scene.step(oldHolder, "checks", "%d s: the lease is mine until %d s, so I may write a2", l.now, l.until)
	s.freeze(oldHolder, "%d s: between the check and the write", l.now)

	if err := l.take(newHolder); err == nil {
		return nil, errors.New("the lease was given away before its end")
	}
	s.scene.step(newHolder, "waits", "%d s: until nobody has the lease", l.now)
	l.now = 10
	if err := l.take(newHolder); err != nil {
		return nil, err
	}
	s.scene.step(newHolder, "lease", "%d s: alpha's has expired; taken, until %d s", l.now, l.until)
	if _, err := s.start(ctx, newHolder, newToken); err != nil {
		return nil, err
	}
	s.scene.wrote(newHolder, "starts", newToken, "it mounts the storage")
	if err := s.put(newHolder, newToken, "b1"); err != nil {
		return nil, err
	}

	l.now = 12
	s.world.Thaw(oldHolder)
	s.scene.step(oldHolder, "goes on", "%d s: for alpha no time has passed: it has just checked", l.now)
	if err := s.put(oldHolder, oldToken, "a2"); err != nil {
		return nil, err
	}
	if err := s.put(newHolder, newToken, "b2"); err != nil {
		return nil, err
	}
	breaches, late := s.judge(), s.late()
	s.scene.Outcome = fmt.Sprintf("Two writers. The storage has %s: %s of the old holder among the new one's, and neither was told.", s.contents(), count(late, "write"))
	if breaches == 0 || late == 0 {
		return nil, errors.New("nothing came of it: the judge saw no second writer")
	}
	return []Scene{*s.scene}, nil
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
