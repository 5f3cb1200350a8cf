package stonith

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

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
	before    []*operation            // those that must be over first
	commanded atomic.Bool
	observing sync.Mutex
	results   []DeviceResult // of the levels that are over
}

// begin refuses what must not start; else it gives the context of all that follows,
// and finish or proof must be called.
func (f *Fencer) begin(ctx context.Context, o Order, g goal) (*operation, context.Context, error) {
	op := &operation{fencer: f, order: o, goal: g, log: f.log.With("node", o.Node, "op", o.Op)}
	ctx, op.end = context.WithCancelCause(ctx)
	if err := f.admit(op); err != nil {
		op.end(err)
		return nil, nil, op.failure(err, nil)
	}
	if err := op.sound(); err != nil {
		return nil, nil, op.finish(err, nil)
	}
	if err := f.drain(ctx, op); err != nil {
		return nil, nil, op.finish(err, nil)
	}
	return op, ctx, nil
}

// sound refuses an order that cannot be carried out.
func (op *operation) sound() error {
	switch o := op.order; {
	case o.Gate == nil:
		return ErrNoGate
	case len(o.Levels) == 0:
		return ErrNoDevices
	case len(o.levels()) == 0:
		return fmt.Errorf("level %d: %w", o.Level, ErrNoDevices)
	}
	return nil
}

// proof ends an operation whose last level succeeded. A newer operation may have
// powered the node on since the reads, so then they prove nothing any more.
func (op *operation) proof(p Proof) (Proof, error) {
	defer op.end(nil)
	if err := op.fencer.dismiss(op); err != nil {
		return Proof{}, op.failure(err, nil)
	}
	p.Node, p.Boot, p.Op, p.Devices = op.order.Node, op.order.Boot, op.order.Op, op.results
	return p, nil
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
		Commanded: op.commanded.Load(), Cause: cause, Levels: levels, Devices: op.results,
	}
}

// level drives all devices of a level at once, each to its own end, so that nothing
// is left half done and untold. Its plugs have reached the goal if the failure is nil; off was
// then contradicted by none of the node's other devices.
func (op *operation) level(ctx context.Context, level int) ([]PlugProof, []Opinion, *LevelFailure) {
	devices := op.order.Levels[level-1]
	failure := &LevelFailure{Level: level}
	if len(devices) == 0 {
		failure.Err = ErrNoDevices
		return nil, nil, op.levelFailed(failure)
	}
	second := op.consult(ctx, level)
	defer second.end()
	driving, cancel := context.WithTimeoutCause(ctx, longest(devices), errOutOfTime)
	defer cancel()
	var wg sync.WaitGroup
	drives := make([]*drive, len(devices))
	for i, d := range devices {
		drives[i] = newDrive(op, level, d, second)
		wg.Go(func() { drives[i].drive(driving) })
	}
	wg.Wait()
	for _, d := range drives {
		if d.failed != nil {
			failure.Devices = append(failure.Devices, *d.failed)
		}
	}
	var opinions []Opinion
	var against string
	switch {
	case failure.Devices != nil:
	case op.goal.twice && !second.together():
		failure.Err = errApart
	default:
		opinions, against, failure.Err = second.judge(ctx)
	}
	var plugs []PlugProof
	for _, d := range drives {
		plugs = append(plugs, d.proofs()...)
		op.results = append(op.results, d.results(against)...)
	}
	if failure.Devices != nil || failure.Err != nil {
		return nil, nil, op.levelFailed(failure)
	}
	return plugs, opinions, nil
}

func (op *operation) levelFailed(failure *LevelFailure) *LevelFailure {
	op.log.Warn("level failed", "fence_level", failure.Level, "action", op.goal.verb, "err", failure)
	op.observe(Step{Level: failure.Level, What: "level failed", Err: failure})
	return failure
}

// pass asks, immediately before a command, whether the order still stands. If it
// does not, the whole operation ends; ctx is the device's.
func (op *operation) pass(ctx context.Context) error {
	_, _, err := await(ctx, op.fencer, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, op.order.Gate(ctx)
	})
	if cause := context.Cause(ctx); cause == errOutOfTime {
		return errGateSilent // which is no trouble of the device
	} else if cause != nil {
		return fmt.Errorf("gate: %w", cause)
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
