package ipmi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hamgr/hamgr/agents"
)

const (
	// How long the first try of a question is waited for: twice what the last answer took, and
	// twice as long with each attempt that meets silence. Too long, and a BMC that forgot the
	// session is found out late; too short, and a slow one seems to have forgotten it.
	shortestWait = 250 * time.Millisecond
	longestWait  = 2 * time.Second
	// The pause before another attempt, which grows, and is varied by half.
	shortestPause = 100 * time.Millisecond
	longestPause  = time.Second
	// portPatience is how long a port at which nothing listens is asked again within a
	// call: a restarting BMC comes back, a wrong address does not.
	portPatience = 250 * time.Millisecond
	// callLimit bounds a call whose context has no deadline, loginLimit a login that nobody
	// waits for any more, closeLimit the end of a session.
	callLimit  = 30 * time.Second
	loginLimit = 20 * time.Second
	closeLimit = 300 * time.Millisecond
)

// do runs work in a session, in a new one when the old one broke, until it is done, fails
// for a reason that another attempt does not mend, or ctx ends.
func (a *agent) do(ctx context.Context, plug string, work func(context.Context, *session) error) error {
	switch {
	case a.closed:
		return ErrClosed
	case plug != "":
		return errAlone
	case ctx.Err() != nil:
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	start, before := time.Now(), error(nil)
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		err := a.attempt(ctx, work)
		var lost *silence
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && before != nil:
			return fmt.Errorf("%w; before that, %w", err, before)
		case ctx.Err() != nil, !again(err):
			return err
		case errors.As(err, &lost) && lost.refused && time.Since(start) > portPatience:
			return err
		}
		before = err
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

func (a *agent) attempt(ctx context.Context, work func(context.Context, *session) error) error {
	s, err := a.connect(ctx)
	if err == nil {
		s.wait = a.wait
		err = work(ctx, s)
	}
	if err == nil {
		a.wait = min(max(shortestWait, 2*s.took), longestWait)
	}
	if ctx.Err() != nil || errors.As(err, new(finalError)) {
		return err // the session stays: nothing is known against it
	}
	if errors.As(err, new(*silence)) || errors.Is(err, errMixedUp) {
		a.wait = min(2*a.wait, longestWait)
		if s != nil {
			s.abandon() // the BMC forgot it, as after a restart, or lost is lost
			a.session = nil
		}
	}
	return err
}

// login is the opening of a session. It runs apart from the call that needs it: if that
// call is cancelled half way, it goes on to its end, where Close or the next call finds the
// session. Broken off, it would hold one of the BMC's few slots until the BMC loses patience.
type login struct {
	target target
	log    *slog.Logger
	wait   time.Duration
	heard  atomic.Bool // the BMC said something that belongs to the login
	cancel context.CancelFunc
	done   chan struct{} // closed when what follows is set

	session *session
	suites  []suite // left after those refused
	err     error
}

// connect gives the session, opening it if there is none.
func (a *agent) connect(ctx context.Context) (*session, error) {
	if a.session != nil {
		return a.session, nil
	}
	if a.login == nil {
		a.login = a.startLogin()
	}
	l := a.login
	select {
	case <-ctx.Done():
		if !l.heard.Load() {
			return nil, fmt.Errorf("opening a session: %w", &silence{ended: ctx.Err()})
		}
		return nil, fmt.Errorf("opening a session: %w", ctx.Err())
	case <-l.done:
	}
	a.login = nil
	if l.err != nil {
		return nil, fmt.Errorf("opening a session: %w", l.err)
	}
	a.session, a.suites = l.session, l.suites
	return a.session, nil
}

func (a *agent) startLogin() *login {
	ctx, cancel := context.WithTimeout(context.Background(), loginLimit)
	l := &login{target: a.target, log: a.log, wait: a.wait, suites: slices.Clone(a.suites), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer cancel()
		defer close(l.done)
		for {
			l.session, l.err = l.open(ctx, l.suites[0])
			if !errors.Is(l.err, errSuite) || len(l.suites) == 1 {
				return
			}
			// The BMC itself said that it lacks the suite; silence would not do.
			l.suites = l.suites[1:]
		}
	}()
	return l
}

func (l *login) open(ctx context.Context, s suite) (*session, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", l.target.address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", agents.ErrUnreachable, err)
	}
	h := &handshake{
		wire:   &wire{conn: conn, log: l.log, heard: &l.heard},
		target: l.target, suite: s, wait: l.wait,
	}
	opened, err := h.open(ctx)
	if err != nil {
		h.wire.close()
		return nil, err
	}
	return opened, nil
}

// Close ends the session, also one that is still being opened for a call that was cancelled.
func (a *agent) Close(ctx context.Context) error {
	if a.closed {
		return nil
	}
	a.closed = true
	ctx, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	if l := a.login; l != nil {
		select {
		case <-l.done:
		case <-ctx.Done():
		}
		l.cancel()
		<-l.done
		a.session = l.session
	}
	if a.session == nil {
		return nil
	}
	err := a.session.end(ctx)
	a.session = nil
	return a.fail(ctx, "closing", err)
}
