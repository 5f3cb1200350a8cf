package stonith

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hamgr/hamgr/agents"
)

const (
	// closeTime bounds the closing of a handle, which has a context of its own: a BMC
	// has few session slots, and those of cancelled operations must come back too.
	closeTime = 500 * time.Millisecond
	// returnTime is how soon after the end of its context a call must have returned.
	returnTime = time.Second
)

// session is one handle on one device, and the device's turn. Every call of the
// agent runs in a goroutine of its own, so that an agent which ignores its context
// holds up nobody: the call is left behind, the session is over, and the device
// stays locked until the call returns and the handle is closed.
type session struct {
	fencer *Fencer
	log    *slog.Logger
	device Device
	turn   *turn
	agent  agents.Agent
	left   <-chan struct{} // closed when the call that was left behind returns
	leftBy string          // what that call was
}

// open waits for the device's turn and makes a handle. An error leaves nothing to close.
func (f *Fencer) open(ctx context.Context, d Device, order bool, yield context.CancelCauseFunc) (*session, error) {
	if d.Open == nil {
		return nil, errors.New("open: device has no agent")
	}
	t, err := f.turnsOf(d.Name).take(ctx, order, yield)
	if err != nil {
		return nil, err
	}
	s := &session{fencer: f, log: f.log.With("device", d.Name), device: d, turn: t}
	_, err = call(ctx, s, "open", func(context.Context) (struct{}, error) {
		a, err := d.Open()
		if err == nil && a == nil {
			err = errors.New("agent gave no handle")
		}
		s.agent = a
		return struct{}{}, err
	})
	if err != nil {
		s.end()
		return nil, fmt.Errorf("open: %w", err)
	}
	return s, nil
}

func (s *session) status(ctx context.Context, plug string) (agents.Reading, error) {
	return call(ctx, s, "power status", func(ctx context.Context) (agents.Reading, error) {
		return s.agent.Status(ctx, plug)
	})
}

func (s *session) command(ctx context.Context, g goal, plug string) error {
	_, err := call(ctx, s, g.verb, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, g.do(s.agent, ctx, plug)
	})
	return err
}

// end closes the handle and gives the device free, both in the background: nobody
// waits for the end of a session, and a call that was left behind must return first,
// since an agent is used by one goroutine at a time.
func (s *session) end() {
	s.fencer.start(func() {
		defer s.turn.done()
		if s.left != nil {
			s.waitFor(s.left, s.leftBy)
		}
		if s.agent == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		_, left, err := await(ctx, s.fencer, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.agent.Close(ctx)
		})
		if left != nil {
			s.waitFor(left, "close")
		}
		if err != nil {
			s.log.Warn("device handle not closed cleanly", "err", err)
		}
	})
}

// waitFor waits for a call that was left behind, however long it takes.
func (s *session) waitFor(returned <-chan struct{}, call string) {
	late := time.NewTimer(returnTime)
	defer late.Stop()
	select {
	case <-returned:
		return
	case <-late.C:
	}
	s.turn.hang(call)
	s.log.Error("device locked by a call that does not return", "call", call)
	<-returned
	s.log.Warn("device is free again", "call", call)
}

// call runs one call of the agent. It is given half of the device's time, so that
// one lost answer leaves time to ask again; when ctx ends it is left behind at once.
// errLost says that the session is of no more use.
func call[T any](ctx context.Context, s *session, what string, fn func(context.Context) (T, error)) (T, error) {
	var none T
	share, cancel := context.WithTimeoutCause(ctx, s.device.Timeout/2, errNoAnswer)
	defer cancel()
	v, left, err := await(share, s.fencer, fn)
	if left == nil {
		if err != nil && share.Err() != nil {
			err = context.Cause(share)
		}
		return v, err
	}
	if ctx.Err() == nil {
		grace := time.NewTimer(returnTime)
		defer grace.Stop()
		select {
		case <-left:
			return none, errNoAnswer
		case <-grace.C:
			err = errLost
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	s.left, s.leftBy = left, what
	return none, err
}

// await runs fn and gives up on it when ctx ends; then left tells when it returns after all.
func await[T any](ctx context.Context, f *Fencer, fn func(context.Context) (T, error)) (v T, left <-chan struct{}, err error) {
	if ctx.Err() != nil {
		return v, nil, context.Cause(ctx)
	}
	var (
		answer   T
		problem  error
		returned = make(chan struct{})
	)
	f.start(func() {
		defer close(returned)
		answer, problem = fn(ctx)
	})
	select {
	case <-returned:
		return answer, nil, problem
	case <-ctx.Done():
		return v, returned, context.Cause(ctx)
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
