package stonith

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// goal is what an operation wants of every plug.
type goal struct {
	verb           string // "off" or "on"
	want, opposite agents.PowerState
	// blind: the first command goes out also to a plug whose state is unknown.
	blind bool
	// twice: the state must last for the settle time.
	twice             bool
	ordered, readBack string // log messages
	do                func(agents.Agent, context.Context, string) error
}

var (
	off = goal{
		verb: "off", want: agents.Off, opposite: agents.On, blind: true, twice: true,
		ordered: "off ordered", readBack: "off read back", do: agents.Agent.Off,
	}
	on = goal{
		verb: "on", want: agents.On, opposite: agents.Off,
		ordered: "on ordered", readBack: "on read back", do: agents.Agent.On,
	}
)

// operation is one Off or On under way.
type operation struct {
	fencer    *Fencer
	order     Order
	goal      goal
	log       *slog.Logger
	end       context.CancelCauseFunc // ends the work on all devices
	commanded atomic.Bool
	observing sync.Mutex
}

// begin refuses what must not start; else it gives the context of all that follows,
// and finish or proof must be called.
func (f *Fencer) begin(ctx context.Context, o Order, g goal) (*operation, context.Context, error) {
	op := &operation{fencer: f, order: o, goal: g, log: f.log.With("node", o.Node, "op", o.Op)}
	ctx, op.end = context.WithCancelCause(ctx)
	err := f.admit(op)
	switch {
	case err != nil:
		op.end(err)
		return nil, nil, op.failure(err, nil)
	case o.Gate == nil:
		return nil, nil, op.finish(ErrNoGate, nil)
	case len(o.Levels) == 0:
		return nil, nil, op.finish(ErrNoDevices, nil)
	}
	return op, ctx, nil
}

// proof ends an operation whose last level succeeded. A newer operation may have
// powered the node on since the reads, so then they prove nothing any more.
func (op *operation) proof(level int, plugs []PlugProof, took time.Duration) (Proof, error) {
	defer op.end(nil)
	if err := op.fencer.dismiss(op); err != nil {
		return Proof{}, op.failure(err, nil)
	}
	return Proof{
		Node: op.order.Node, Boot: op.order.Boot, Op: op.order.Op,
		Level: level, Plugs: plugs, Took: took,
	}, nil
}

// finish ends an operation otherwise; nil means that nothing failed.
func (op *operation) finish(cause error, failed []LevelFailure) error {
	defer op.end(nil)
	stale := op.fencer.dismiss(op)
	if cause == nil {
		cause = stale
	}
	if cause == nil && failed == nil {
		return nil
	}
	return op.failure(cause, failed)
}

func (op *operation) failure(cause error, levels []LevelFailure) error {
	return &Failure{
		Node: op.order.Node, Action: op.goal.verb, Op: op.order.Op,
		Commanded: op.commanded.Load(), Cause: cause, Levels: levels,
	}
}

// level drives all devices of a level at once, each to its own end, so that nothing
// is left half done and untold. Its plugs have reached the goal if the failure is nil.
func (op *operation) level(ctx context.Context, level int) ([]PlugProof, *LevelFailure) {
	devices := op.order.Levels[level-1]
	if len(devices) == 0 {
		return nil, op.levelFailed(&LevelFailure{Level: level, Err: ErrNoDevices})
	}
	var (
		wg       sync.WaitGroup
		proofs   = make([][]PlugProof, len(devices))
		failures = make([]*DeviceFailure, len(devices))
	)
	for i, d := range devices {
		wg.Go(func() { proofs[i], failures[i] = op.device(ctx, level, d) })
	}
	wg.Wait()
	var plugs []PlugProof
	failure := &LevelFailure{Level: level}
	for i := range devices {
		plugs = append(plugs, proofs[i]...)
		if failures[i] != nil {
			failure.Devices = append(failure.Devices, *failures[i])
		}
	}
	if failure.Devices == nil {
		return plugs, nil
	}
	return nil, op.levelFailed(failure)
}

func (op *operation) levelFailed(failure *LevelFailure) *LevelFailure {
	op.observe(Step{Level: failure.Level, What: "level failed", Err: failure})
	return failure
}

// device drives the plugs of one device within the device's share of time, the wait
// for its turn included.
func (op *operation) device(ctx context.Context, level int, device Device) ([]PlugProof, *DeviceFailure) {
	ctx, cancel := context.WithTimeoutCause(ctx, device.Timeout, errOutOfTime)
	defer cancel()
	d := newDrive(op, level, device)
	if len(d.plugs) == 0 {
		return nil, d.failure(fmt.Errorf("no plug: %w", ErrNoDevices))
	}
	s, err := op.fencer.open(ctx, device, true, nil)
	if err != nil {
		d.plugs = nil // nothing was asked of them
		return nil, d.failure(err)
	}
	defer s.end()
	if err := d.run(ctx, s); err != nil {
		return nil, d.failure(err)
	}
	return d.proofs(), nil
}

// pass asks, immediately before a command, whether the order still stands. If it
// does not, the whole operation ends; ctx is the device's.
func (op *operation) pass(ctx context.Context) error {
	_, _, err := await(ctx, op.fencer, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, op.order.Gate(ctx)
	})
	if ctx.Err() != nil {
		return fmt.Errorf("gate: %w", context.Cause(ctx))
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrCalledOff, err)
		op.end(err)
	}
	return err
}

func (op *operation) observe(s Step) {
	if op.order.Observe == nil {
		return
	}
	op.observing.Lock()
	defer op.observing.Unlock()
	op.order.Observe(s)
}
