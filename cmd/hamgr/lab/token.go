package lab

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hamgr/hamgr/resources/guard"
)

// tokenStory: the pause of the lease, but the storage has hamgr's guard before it.
func tokenStory(ctx context.Context, _ bool) (_ []Scene, err error) {
	dir, err := os.MkdirTemp("", "hamgr-lab-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := newStage("The same pause; the storage asks the guard before each write, and the guard remembers the highest token.")
	put, err := s.guarded(ctx, dir)
	if err != nil {
		return nil, err
	}
	if _, err := s.begin(ctx, put); err != nil {
		return nil, err
	}
	s.freeze(oldHolder, "just before it writes a2")
	if _, err := s.start(ctx, newHolder, newToken); err != nil {
		return nil, err
	}
	s.scene.wrote(newHolder, "starts", newToken, "a new grant: a new token, greater than all before")
	if err := put(newHolder, newToken, "b1"); err != nil {
		return nil, err
	}
	s.world.Thaw(oldHolder)
	s.scene.step(oldHolder, "goes on", "it believes that it still holds the group")
	refused := s.refused(put, "a2")
	if put, err = s.guarded(ctx, dir); err != nil { // a new handle has nothing in its memory
		return nil, err
	}
	s.scene.step("storage", "restarts", "the highest token is on its disk")
	refused += s.refused(put, "a3")
	if err := put(newHolder, newToken, "b2"); err != nil {
		return nil, err
	}
	late := s.late()
	s.scene.Outcome = fmt.Sprintf("%d and %d may both believe that they hold the group; the storage has %s: %s among the new one's, %d refused.",
		oldToken, newToken, s.contents(), count(late, "old write"), refused)
	if late > 0 || refused != 2 {
		return nil, fmt.Errorf("the storage took token %d after token %d: it has %s", oldToken, newToken, s.contents())
	}
	return []Scene{*s.scene}, nil
}

// guarded gives the way to the storage through the guard.
func (s *stage) guarded(ctx context.Context, dir string) (func(host string, token uint64, line string) error, error) {
	g, err := guard.Open(dir)
	if err != nil {
		return nil, err
	}
	return func(host string, token uint64, line string) error {
		return g.Do(ctx, group, token, func() error { return s.put(host, token, line) })
	}, nil
}

// refused has the old holder try to write, and counts the refusal.
func (s *stage) refused(put func(host string, token uint64, line string) error, line string) int {
	err := put(oldHolder, oldToken, line)
	refusal, ok := errors.AsType[*guard.Refused](err)
	if !ok {
		return 0
	}
	s.scene.wrote(oldHolder, "refused", refusal.Token, "%s: %d < %d", line, refusal.Token, refusal.Highest)
	return 1
}
