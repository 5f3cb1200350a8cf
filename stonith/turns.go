package stonith

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hamgr/hamgr/agents"
)

const (
	// closeTime bounds the closing of a handle, which has a context of its own: a BMC
	// has few session slots, and those of cancelled operations must come back too.
	closeTime = 500 * time.Millisecond
	// returnTime is how soon after the end of its context a call must have returned.
	returnTime = time.Second
	// brokenAfter is how many errors in a row make a handle suspect.
	brokenAfter = 2
)

// turns hands out one device, call by call, because a device mixes up or refuses what it
// is asked at once. All who use the device meanwhile share one handle, so that it spends
// one session. Orders go before reads: while an order uses the device, reads wait,
// because a shot must not wait for monitoring.
type turns struct {
	fencer *Fencer
	log    *slog.Logger

	mu sync.Mutex
	// Guarded by mu:
	users  map[*session]bool
	busy   bool
	holder *session // who made the call under way; nil while the handle is being closed
	stuck  string   // the call that holds the device although it should have ended
	queue  []*waiter
	rests  []chan struct{} // closed when nobody's call or close is under way

	// Touched only by whose turn it is:
	agent  agents.Agent // nil when there is no handle
	failed int          // errors in a row
	broken bool         // the handle must be replaced
}

type waiter struct {
	session *session
	granted chan struct{}
}

// enter makes s one of the device's users. An order ends the read that is under way.
func (ts *turns) enter(s *session) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.users[s] = true
	if s.order && ts.holder != nil && !ts.holder.order {
		ts.holder.yield(errGaveWay)
	}
}

// leave is the end of s as a user. The last one's handle is closed, in the background.
func (ts *turns) leave(s *session) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.users, s)
	if !ts.busy {
		ts.busy = true
		ts.next()
	}
}

// rest waits until the handle is closed that its last user left behind, but not for a device that hangs.
func (ts *turns) rest(ctx context.Context) {
	ts.mu.Lock()
	if !ts.busy {
		ts.mu.Unlock()
		return
	}
	r := make(chan struct{})
	ts.rests = append(ts.rests, r)
	ts.mu.Unlock()
	limit := time.NewTimer(closeTime)
	defer limit.Stop()
	select {
	case <-r:
	case <-ctx.Done():
	case <-limit.C:
	}
}

// take waits for the turn to make one call; release must follow.
func (ts *turns) take(ctx context.Context, s *session) error {
	w := &waiter{session: s, granted: make(chan struct{})}
	ts.mu.Lock()
	ts.queue = append(ts.queue, w)
	if !ts.busy {
		ts.busy = true
		ts.next()
	}
	ts.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
		return ts.withdraw(w, context.Cause(ctx))
	}
}

// withdraw takes back a wait that nobody is interested in any more, and says what it was for.
func (ts *turns) withdraw(w *waiter, cause error) error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	i := slices.Index(ts.queue, w)
	switch {
	case i < 0: // granted in the same moment
		ts.next()
		return cause
	case ts.stuck != "":
		cause = &noTurnError{"device is locked by an earlier " + ts.stuck + " that has not returned", cause}
	case !w.session.order && ts.ordered():
		cause = &noTurnError{"device is busy", errGaveWay}
	default:
		cause = &noTurnError{"device is busy", cause}
	}
	ts.queue = slices.Delete(ts.queue, i, i+1)
	return cause
}

// release ends a turn.
func (ts *turns) release() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.next()
}

// next ends a turn, and gives the device to whom it is due. Before that, a handle is closed if
// it is in doubt or of no more use. Called with mu held, by whose turn it is.
func (ts *turns) next() {
	ts.holder = nil
	if ts.agent != nil && (ts.broken || len(ts.users) == 0) {
		ts.fencer.start(ts.close)
		return
	}
	ordered := ts.ordered()
	i := slices.IndexFunc(ts.queue, func(w *waiter) bool { return w.session.order == ordered })
	if i < 0 {
		ts.busy = false
		for _, r := range ts.rests {
			close(r)
		}
		ts.rests = nil
		return
	}
	ts.holder = ts.queue[i].session
	close(ts.queue[i].granted)
	ts.queue = slices.Delete(ts.queue, i, i+1)
}

// ordered reports whether an order uses the device. Called with mu held.
func (ts *turns) ordered() bool {
	for s := range ts.users {
		if s.order {
			return true
		}
	}
	return false
}

// handle gives the handle, and makes one if there is none.
func (ts *turns) handle(open func() (agents.Agent, error)) (agents.Agent, error) {
	if ts.agent != nil {
		return ts.agent, nil
	}
	a, err := open()
	if err != nil {
		return nil, err
	}
	if a == nil {
		return nil, errors.New("agent gave no handle")
	}
	ts.agent = a
	return a, nil
}

// note judges the handle by how a call ended. One that was cut short may have left an answer
// on its way or a session half made.
func (ts *turns) note(err error, cutShort bool) {
	if err == nil {
		ts.failed = 0
		return
	}
	ts.failed++
	ts.broken = cutShort || ts.failed >= brokenAfter
}

// abandon ends a turn once the call that was left behind has returned, however long that takes.
func (ts *turns) abandon(returned <-chan struct{}, call string) {
	ts.fencer.start(func() {
		ts.waitFor(returned, call)
		ts.broken = true
		ts.release()
	})
}

// close closes the handle and ends the turn.
func (ts *turns) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_, left, err := await(ctx, ts.fencer, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, ts.agent.Close(ctx)
	})
	if left != nil {
		ts.waitFor(left, "close")
	}
	if err != nil {
		ts.log.Warn("device handle not closed cleanly", "err", err)
	}
	ts.agent, ts.failed, ts.broken = nil, 0, false
	ts.release()
}

// waitFor waits for a call that was left behind, and says so when it should have returned.
func (ts *turns) waitFor(returned <-chan struct{}, call string) {
	late := time.NewTimer(returnTime)
	defer late.Stop()
	select {
	case <-returned:
		return
	case <-late.C:
	}
	ts.hang(call)
	ts.log.Error("device locked by a call that does not return", "call", call)
	<-returned
	ts.hang("")
	ts.log.Warn("device is free again", "call", call)
}

// hang notes what keeps the device, for those who wait.
func (ts *turns) hang(call string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.stuck = call
}
