package stonith

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Fencer carries out fencing operations. One Fencer serves a whole process, since it
// keeps devices from being used twice at once and remembers the newest operation
// of each node. All methods may be called concurrently.
type Fencer struct {
	log *slog.Logger

	mu sync.Mutex
	// Guarded by mu:
	nodes   map[string]*history // by node name
	devices map[string]*turns   // by device name
	running int                 // goroutines
	idle    chan struct{}       // closed when running falls to 0; nil when nobody waits
}

// New makes a Fencer that logs to log; nil logs nothing.
func New(log *slog.Logger) *Fencer {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Fencer{log: log, nodes: map[string]*history{}, devices: map[string]*turns{}}
}

// Off cuts the target's power and proves it: the target's levels are tried in order,
// until at every plug of every device of one level off was read twice, with the
// device's settle time between, and no other device that sees the machine itself said on. A
// nil error is given with a proof only. Every error is a *Failure, which tells whether a
// command may have gone out.
//
// Off returns at once when ctx ends, and else within Budget(o.Levels). Handles that
// are still being closed then are waited for by Wait.
func (f *Fencer) Off(ctx context.Context, o Order) (Proof, error) {
	begun := time.Now()
	op, ctx, err := f.begin(ctx, o, off)
	if err != nil {
		return Proof{}, err
	}
	var failed []LevelFailure
	for _, level := range o.levels() {
		if ctx.Err() != nil {
			break
		}
		plugs, opinions, failure := op.level(ctx, level)
		if failure == nil {
			return op.proof(Proof{Level: level, Plugs: plugs, Opinions: opinions, Took: time.Since(begun)})
		}
		failed = append(failed, *failure)
	}
	return Proof{}, op.finish(context.Cause(ctx), failed)
}

// On powers the target on: at every plug of every level, because a fencing that went
// past its first level has switched off plugs of several. Levels go from the last to
// the first: what comes later in the topology feeds what comes earlier, and a BMC
// answers only when its outlets have power. A level that fails does not keep the
// others from being tried. On is for after the proof: it begins when no Off of the node is
// under way any more, it is refused when a newer operation for the node has been seen, and an
// Off ends it. Every error is a *Failure.
func (f *Fencer) On(ctx context.Context, o Order) error {
	op, ctx, err := f.begin(ctx, o, on)
	if err != nil {
		return err
	}
	var failed []LevelFailure
	for _, level := range slices.Backward(o.levels()) {
		if ctx.Err() != nil {
			break
		}
		if _, _, failure := op.level(ctx, level); failure != nil {
			failed = append(failed, *failure)
		}
	}
	return op.finish(context.Cause(ctx), failed)
}

// Wait waits until every handle is closed and every call that was left behind has
// returned. It is for the end of the process and of tests; no new operation is kept
// from starting meanwhile.
func (f *Fencer) Wait(ctx context.Context) error {
	f.mu.Lock()
	if f.running == 0 {
		f.mu.Unlock()
		return nil
	}
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	idle := f.idle
	f.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for fence devices: %w", context.Cause(ctx))
	}
}

// start runs fn in a goroutine that Wait waits for.
func (f *Fencer) start(fn func()) {
	f.mu.Lock()
	f.running++
	f.mu.Unlock()
	go func() {
		defer f.finish()
		fn()
	}()
}

func (f *Fencer) finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	if f.running == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

func (f *Fencer) turnsOf(device string) *turns {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.devices[device] == nil {
		f.devices[device] = &turns{fencer: f, log: f.log.With("device", device), users: map[*session]bool{}}
	}
	return f.devices[device]
}
