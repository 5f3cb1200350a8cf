package watchdog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Options are what a Guard works with.
type Options struct {
	Path   string // of the device, or Fake, or Off: then nothing is guarded, and nothing said of it
	Timing Timing
	// Dir is a directory that is only of this boot, and outlives the daemon.
	Dir string
	// DataDir holds the record of the watchdog's test.
	DataDir string
	Boot    string
	// Held names what an earlier daemon of this boot started and was not proven to have stopped.
	Held []string
	// LetsGo says that this node stops what it holds when it hears no coordinator (on_quorum_loss = "stop"). Without
	// that the watchdog ends a daemon that hangs, and proves nothing to others.
	LetsGo bool
	// Alive says whether the daemon's loops make progress: nil if so. One that does not return is no progress.
	Alive func(context.Context) error
	Log   *slog.Logger

	// For tests; both may be nil.
	Open func(context.Context) (Device, error)
	Now  func() time.Duration
}

// terms are what the others were told, and count on: when this node ends by itself.
type terms struct {
	Timing Timing `json:"timing"`
	LetsGo bool   `json:"lets_go"`
}

// Guard keeps the watchdog armed while the node holds something. All work on the device is done by one goroutine, which may
// hang in the driver; nobody else does then.
type Guard struct {
	Options
	requests chan request
	lastBoot uint32
	interval time.Duration
	stop     context.CancelFunc
	ended    chan struct{}

	mu      sync.Mutex // only for the fields below; never held over a call
	heard   time.Duration
	yes     time.Duration // when Alive was asked last and said yes
	no      error         // what it said instead
	excuse  excuse
	agreed  bool // a coordinator knows the terms of this daemon's own configuration
	tested  Test
	visible view

	// The fields below are the worker's own.
	held    map[string]bool
	terms   terms // that are in force: the last daemon's, until the others know better
	dev     Device
	timeout time.Duration // as the driver made it
	fed     time.Duration
	claimed bool   // by an earlier daemon of this boot: it may count
	trouble error  // why it protects nothing, although it should
	starved error  // why it was not fed at the last turn
	excused string // as the note of this boot has it
}

// view is what the worker shows.
type view struct {
	armed   bool
	holds   int
	info    Info
	timeout time.Duration
	fed     time.Duration
	trouble error
	starved error
	excused string
	terms   terms
}

type request struct {
	ctx     context.Context
	release bool
	name    string
	done    chan error
}

// Start takes over what an earlier daemon of this boot armed, and begins to work. It returns at once.
func Start(ctx context.Context, o Options) (*Guard, error) {
	if o.Now == nil {
		o.Now = Now
	}
	before, err := readNote(o.Dir)
	if err != nil {
		return nil, err
	}
	if before.Armed && before.Path != o.Path {
		// What was armed under another configuration goes on until nothing is held: others may count on it.
		o.Log.Warn("another watchdog is armed since before, and goes on until this daemon starts again", "device", before.Path, "configured", o.Path)
		o.Path = before.Path
	}
	switch {
	case o.Path == Fake, o.Path == Off:
		o.Open = func(context.Context) (Device, error) { return fake{}, nil }
	case o.Open == nil:
		o.Open = func(ctx context.Context) (Device, error) { return Open(ctx, o.Path) }
	}
	if o.Path == Fake {
		o.Log.Warn(`watchdog = "fake": it resets nothing and PROTECTS NOTHING: a group that does not stop, or a daemon that hangs, goes on writing`)
	}
	now := o.Now()
	g := &Guard{Options: o, requests: make(chan request), ended: make(chan struct{}), held: map[string]bool{}, heard: now, yes: now}
	g.terms = terms{o.Timing, o.LetsGo}
	if before.Armed {
		if before.Terms != nil {
			g.terms = *before.Terms
		}
		g.claimed, g.heard, g.fed = true, min(before.Heard, now), min(before.Fed, now)
		g.excuse, g.excused = excuse{why: before.Excuse, known: before.Excuse != ""}, before.Excuse
	}
	g.interval = min(g.Timing.Interval, g.terms.Timing.Interval)
	for _, name := range o.Held {
		g.held[name] = true
	}
	if g.real() {
		id, err := Identify(o.Path)
		if err != nil {
			o.Log.Error("watchdog", "device", o.Path, "err", err)
		}
		g.lastBoot = id.BootStatus
		if g.tested, err = Tested(o.DataDir, o.Boot, id); err != nil {
			o.Log.Error("the watchdog's test", "device", o.Path, "err", err)
		}
		for _, notice := range Notices(id) {
			o.Log.Warn("watchdog: "+notice, "device", o.Path)
		}
	}
	ctx, g.stop = context.WithCancel(context.WithoutCancel(ctx))
	var both sync.WaitGroup
	both.Go(func() { g.work(ctx) })
	both.Go(func() { g.listen(ctx) })
	go func() { both.Wait(); close(g.ended) }()
	return g, nil
}

// real tells whether there is a device.
func (g *Guard) real() bool { return g.Path != Fake && g.Path != Off }

// Stop ends the guard and leaves the watchdog as it is: whoever holds something must be followed by another guard in time.
func (g *Guard) Stop(ctx context.Context) error {
	g.stop()
	select {
	case <-g.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the watchdog's guard: %w", ctx.Err())
	}
}

// Hold returns nil once the watchdog guards what has that name: before that it may not be started. After an error it must
// not be started, and is to be released.
func (g *Guard) Hold(ctx context.Context, name string) error {
	return g.ask(request{ctx: ctx, name: name, done: make(chan error, 1)})
}

// Release says that what has that name is proven stopped. The last one disarms the watchdog.
func (g *Guard) Release(ctx context.Context, name string) error {
	return g.ask(request{ctx: ctx, release: true, name: name, done: make(chan error, 1)})
}

func (g *Guard) ask(r request) error {
	what := "hold"
	if r.release {
		what = "release"
	}
	select {
	case g.requests <- r:
	case <-g.ended:
		return fmt.Errorf("watchdog: %s %s: %w", what, r.name, ErrStopped)
	case <-r.ctx.Done():
		return fmt.Errorf("watchdog: %s %s: %w", what, r.name, r.ctx.Err())
	}
	select {
	case err := <-r.done:
		if err != nil {
			return fmt.Errorf("watchdog: %s %s: %w", what, r.name, err)
		}
		return nil
	case <-g.ended:
		return fmt.Errorf("watchdog: %s %s: %w", what, r.name, ErrStopped)
	case <-r.ctx.Done():
		return fmt.Errorf("watchdog: %s %s: %w", what, r.name, r.ctx.Err())
	}
}

func (g *Guard) work(ctx context.Context) {
	ticker := time.NewTicker(g.interval)
	defer ticker.Stop()
	for {
		g.turn(ctx)
		g.show()
		select {
		case <-ctx.Done():
			if g.dev != nil {
				if err := g.dev.Close(); err != nil {
					g.Log.Error("watchdog", "device", g.Path, "err", err)
				}
			}
			return
		case r := <-g.requests:
			err := g.serve(ctx, r)
			g.show()
			r.done <- err
		case <-ticker.C:
		}
	}
}

// listen asks again and again whether the daemon makes progress. A question that is not answered leaves the last yes to
// grow old.
func (g *Guard) listen(ctx context.Context) {
	ticker := time.NewTicker(g.interval / 2)
	defer ticker.Stop()
	for {
		asked := g.Now()
		err := g.Alive(ctx)
		g.mu.Lock()
		if g.no = err; err == nil {
			g.yes = asked
		}
		g.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (g *Guard) serve(ctx context.Context, r request) error {
	if r.release {
		delete(g.held, r.name)
		if len(g.held) == 0 {
			return g.disarm()
		}
		return nil
	}
	if r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	already := g.held[r.name]
	g.held[r.name] = true
	err := g.guarded(ctx)
	if err != nil && !already {
		delete(g.held, r.name)
	}
	return err
}

// guarded arms the watchdog if it is not, and says why it does not guard.
func (g *Guard) guarded(ctx context.Context) error {
	if g.dev == nil {
		g.arm(ctx)
	}
	switch {
	case g.trouble != nil:
		return g.trouble
	case g.dev == nil:
		return g.starved
	}
	// Once more: the process may have stood still since.
	return g.mayFeed(g.Now())
}

// turn is what is done again and again.
func (g *Guard) turn(ctx context.Context) {
	g.adopt()
	switch {
	case g.dev != nil:
		g.feed()
	case g.claimed || len(g.held) > 0:
		g.arm(ctx)
	}
	if g.dev != nil && len(g.held) == 0 && g.claimed {
		// The last daemon ended after everything was stopped, and before it disarmed.
		if err := g.disarm(); err != nil && !errors.Is(err, ErrNoWayOut) {
			g.Log.Error("watchdog", "device", g.Path, "err", err)
		}
	}
}

func (g *Guard) show() {
	v := view{armed: g.dev != nil, holds: len(g.held), timeout: g.timeout, fed: g.fed, trouble: g.trouble, starved: g.starved, excused: g.excused, terms: g.terms}
	if g.dev != nil {
		v.info = g.dev.Info()
	}
	g.mu.Lock()
	g.visible = v
	g.mu.Unlock()
}
