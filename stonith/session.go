package stonith

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// session is one operation's, or one read's, use of a device, from join to end. Every call
// of the agent runs in a goroutine of its own, so that an agent which ignores its context
// holds up nobody: the call is left behind, and the device stays locked until it returns.
type session struct {
	turns  *turns
	device Device
	order  bool
	yield  context.CancelCauseFunc // ends a read that is in an order's way
}

// join begins the use of a device: it waits for its turn and for a handle. An error leaves
// nothing to end.
func (f *Fencer) join(ctx context.Context, d Device, order bool, yield context.CancelCauseFunc) (*session, error) {
	if d.Open == nil {
		return nil, errors.New("open: device has no agent")
	}
	s := &session{turns: f.turnsOf(d.Name), device: d, order: order, yield: yield}
	s.turns.enter(s)
	_, err := call(ctx, s, s.share(), "open", func(context.Context, agents.Agent) (struct{}, error) { return struct{}{}, nil })
	if err != nil {
		s.end()
		if _, ok := errors.AsType[*noTurnError](err); !ok {
			err = fmt.Errorf("open: %w", err)
		}
		return nil, err
	}
	return s, nil
}

// end waits for nothing: what is to be closed is closed in the background.
func (s *session) end() { s.turns.leave(s) }

// share is the time that one call has, so that one lost answer leaves time to ask again.
func (s *session) share() time.Duration { return s.device.Timeout / 2 }

func (s *session) status(ctx context.Context, plug string) (agents.Reading, error) {
	r, err := call(ctx, s, s.share(), "power status", func(ctx context.Context, a agents.Agent) (agents.Reading, error) {
		return a.Status(ctx, plug)
	})
	if err != nil {
		r.State = agents.Unknown // a state that comes beside an error is none
	}
	return r, err
}

// command makes the call for which take has got the turn.
func (s *session) command(ctx context.Context, g goal, plug string) error {
	_, err := use(ctx, s, s.share(), g.verb, func(ctx context.Context, a agents.Agent) (struct{}, error) {
		return struct{}{}, g.do(a, ctx, plug)
	})
	return err
}

// check asks whether the plug may be switched; an agent that cannot tell has no objection.
func (s *session) check(ctx context.Context, plug string) error {
	_, err := call(ctx, s, s.share(), "check", func(ctx context.Context, a agents.Agent) (struct{}, error) {
		if c, ok := a.(agents.Checker); ok {
			return struct{}{}, c.Check(ctx, plug)
		}
		return struct{}{}, nil
	})
	return err
}

// identity asks whom the plug powers; an agent that cannot tell knows nothing.
func (s *session) identity(ctx context.Context, limit time.Duration, plug string) (agents.Identity, error) {
	return call(ctx, s, limit, "identity", func(ctx context.Context, a agents.Agent) (agents.Identity, error) {
		if i, ok := a.(agents.Identifier); ok {
			return i.Identity(ctx, plug)
		}
		return agents.Identity{}, nil
	})
}

// identify refuses a device that names another machine than the target announced, with an
// agents.ErrIdentity. Any other error means that it is not known: a device that does not say is no
// worse than one that cannot be asked. Outlets have names only, and are not asked.
func (s *session) identify(ctx context.Context, m Machine, limit time.Duration, plug string) error {
	if s.device.Sees != agents.SeesMachine || s.device.AnyIdentity || !m.known() {
		return nil
	}
	id, err := s.identity(ctx, limit, plug)
	if err != nil {
		return err
	}
	switch same, known := SameMachine(m, id); {
	case same:
		return nil
	case known:
		return mismatch(m, id)
	default:
		return errNotComparable
	}
}

func (s *session) take(ctx context.Context) error { return s.turns.take(ctx, s) }

// call waits for the turn and makes one call.
func call[T any](ctx context.Context, s *session, limit time.Duration, what string, fn func(context.Context, agents.Agent) (T, error)) (T, error) {
	var none T
	if limit <= 0 {
		return none, errNoAnswer
	}
	if err := s.take(ctx); err != nil {
		return none, err
	}
	return use(ctx, s, limit, what, fn)
}

// use makes one call of the agent, within limit, and ends the turn. When ctx ends, the call is left
// behind at once. errLost says that it may never return.
func use[T any](ctx context.Context, s *session, limit time.Duration, what string, fn func(context.Context, agents.Agent) (T, error)) (T, error) {
	var none T
	ts := s.turns
	if ctx.Err() != nil {
		ts.release()
		return none, context.Cause(ctx)
	}
	share, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	v, left, err := await(share, ts.fencer, func(ctx context.Context) (T, error) {
		a, err := ts.handle(s.device.Open)
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx) // opening took too long: what follows is no longer wanted
		}
		if err != nil {
			return none, err
		}
		return fn(ctx, a)
	})
	if left != nil && ctx.Err() == nil { // it has to be seen whether the device is of any more use
		grace := time.NewTimer(returnTime)
		defer grace.Stop()
		select {
		case <-left:
			left = nil
		case <-grace.C:
			err = errLost
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if left != nil {
		ts.abandon(left, what)
		return none, err
	}
	cutShort := err != nil && share.Err() != nil
	if cutShort {
		err = context.Cause(share)
	}
	ts.note(err, cutShort)
	ts.release()
	return v, err
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
