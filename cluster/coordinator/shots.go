package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hamgr/hamgr/cluster/scheduler"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// shot is one operation that this coordinator carries out, or will try again.
type shot struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Pauses between attempts grow from the first to the last.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// startShot carries the operation out in the background, until it succeeds, is closed in
// the log, or the term of office ends.
func (c *Coordinator) startShot(ctx context.Context, o *state.Operation) {
	ctx, cancel := context.WithCancel(ctx)
	s := &shot{cancel: cancel, done: make(chan struct{})}
	c.mu.Lock()
	_, busy := c.shots[o.ID]
	if !busy {
		c.shots[o.ID] = s
	}
	c.mu.Unlock()
	if busy {
		cancel()
		return
	}
	go func() {
		defer close(s.done)
		defer cancel()
		c.attempt(ctx, *o)
		c.mu.Lock()
		if c.shots[o.ID] == s {
			delete(c.shots, o.ID)
		}
		c.mu.Unlock()
		c.Wake()
	}()
}

// attempt is one attempt at an operation. A failed one is recorded, and keeps the operation busy
// for a pause that grows with the failures, or until the target's watchdog proves it down.
func (c *Coordinator) attempt(ctx context.Context, o state.Operation) {
	var err error
	over := c.devices.shoot(ctx, deviceNames(c.cfg.Levels(o.Node)))
	if o.PowersOn() {
		err = c.powerOn(ctx, o)
	} else {
		err = c.powerOff(ctx, o)
	}
	over()
	if err == nil || ctx.Err() != nil || c.cameThrough(ctx, o) {
		return
	}
	c.cfg.Log.Error("fencing attempt failed", "node", o.Node, "boot", o.Boot, "op", o.ID, "action", o.Action, "executor", o.Executor, "attempt", o.Attempts, "err", err)
	failed := state.Command{ShotFailed: &state.ShotFailed{Op: o.ID, Executor: o.Executor, Error: c.withWatchdog(o, err.Error()), Devices: failedDevices(err)}}
	if _, err := c.commit(ctx, failed); err != nil && ctx.Err() == nil {
		c.cfg.Log.Warn("failed attempt not recorded", "op", o.ID, "err", err)
	}
	c.rest(ctx, o)
}

// cameThrough reports whether an attempt that ended with an error was committed as a success after all: the outcome
// of a commit may be unknown in time.
func (c *Coordinator) cameThrough(ctx context.Context, o state.Operation) bool {
	if c.barrier(ctx) != nil {
		return false
	}
	now := c.cfg.State().Operations[o.ID]
	return now == nil || !now.Open() || now.PowersOn() != o.PowersOn()
}

func retryPause(failures int) time.Duration {
	d := firstPause
	for range failures {
		if d *= 2; d >= lastPause {
			return lastPause
		}
	}
	return d
}

// powerOff obtains proof (b) and commits it.
func (c *Coordinator) powerOff(ctx context.Context, o state.Operation) error {
	proof, err := c.off(ctx, o)
	if err != nil {
		return err
	}
	if err := c.upToDate(o.Executor); err != nil {
		return err
	}
	if err := covers(c.cfg.Levels(o.Node), o, proof); err != nil {
		return err
	}
	if err := c.contradicted(ctx, o, proof); err != nil {
		return err
	}
	cmd := state.Command{ShotProven: &state.ShotProven{
		Op: o.ID, Executor: o.Executor, Evidence: evidence(proof),
		Devices: deviceResults(proof.Devices), Opinions: opinions(proof),
	}}
	if _, err := c.commit(ctx, cmd); err != nil {
		return fmt.Errorf("%s is off, but that was not committed: %w", o.Node, err)
	}
	c.cfg.Log.Warn("node proven off", "node", o.Node, "boot", o.Boot, "op", o.ID, "fence_level", proof.Level, "executor", o.Executor, "took", proof.Took.Round(time.Millisecond))
	return nil
}

// off has the operation's executor switch the node off.
func (c *Coordinator) off(ctx context.Context, o state.Operation) (stonith.Proof, error) {
	if o.Executor == c.cfg.Self {
		return c.cfg.Fencer.Off(ctx, c.orderFor(o))
	}
	if c.cfg.Elsewhere == nil {
		return stonith.Proof{}, fmt.Errorf("operation %d is %s's: no way to it", o.ID, o.Executor)
	}
	c.tell(o.ID, Progress{Op: o.ID, Phase: o.Phase, Text: o.Executor + " is to do it"})
	var proof stonith.Proof
	err := c.delegate(ctx, o, func(ctx context.Context) (err error) {
		proof, err = c.cfg.Elsewhere.Off(ctx, o, machine(c.cfg.State(), o.Node))
		return err
	})
	return proof, err
}

// delegate has the operation's executor do its part. It gives up on one that fails itself, or that takes longer
// than all devices together may.
func (c *Coordinator) delegate(ctx context.Context, o state.Operation, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := min(stonith.Budget(c.cfg.Levels(o.Node)), longestAttempt) + delegateTimes*c.cfg.DetectionTime
	ctx, stop := context.WithTimeoutCause(ctx, patience, errExecutorHangs)
	defer stop()
	go c.guardExecutor(ctx, o.Executor, cancel)
	err := do(ctx)
	if why := context.Cause(ctx); err != nil && (errors.Is(why, errExecutorGone) || errors.Is(why, errExecutorHangs)) {
		return fmt.Errorf("%s: %w: %w", o.Executor, why, err)
	}
	return err
}

// delegateTimes is for how many detection times beyond the devices' own time an executor is waited for: it asks
// back, and the answer takes its way.
const delegateTimes = 3

// longestAttempt keeps what is added to a budget from overflowing.
const longestAttempt = 24 * time.Hour

var (
	errExecutorGone  = errors.New("the executor does not answer any more")
	errExecutorHangs = errors.New("the executor gives no result")
)

// guardExecutor gives up on an executor that fails itself: the next attempt is another node's. What
// it had begun is harmless: each of its commands needs this node's word.
func (c *Coordinator) guardExecutor(ctx context.Context, executor string, giveUp context.CancelCauseFunc) {
	for pause(ctx, c.cfg.DetectionTime/4) {
		if c.view().Nodes[executor].Gone != "" {
			giveUp(errExecutorGone)
			return
		}
	}
}

// failedDevices gives what a failed attempt did, device by device.
func failedDevices(err error) []state.DeviceResult {
	var failure *stonith.Failure
	if !errors.As(err, &failure) {
		return nil
	}
	return deviceResults(failure.Devices)
}

func deviceResults(results []stonith.DeviceResult) []state.DeviceResult {
	var all []state.DeviceResult
	for _, r := range results {
		all = append(all, state.DeviceResult{
			Level: r.Level, Device: r.Device, Plug: r.Plug, State: r.State.String(), Detail: r.Detail, WasOff: r.WasOff,
			Commands: r.Commands, TookMS: r.TookMS, Trouble: string(r.Trouble), Error: r.Error,
		})
	}
	return all
}

// opinions are the lines of a proof on what the node's other devices said meanwhile.
func opinions(p stonith.Proof) []string {
	var lines []string
	for _, o := range p.Opinions {
		line := o.Device
		if o.Plug != "" {
			line += " plug " + o.Plug
		}
		if o.Error != "" {
			line += ": no answer: " + o.Error
		} else {
			line += ": reads " + o.State.String()
			if o.Detail != "" {
				line += " (" + o.Detail + ")"
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func evidence(p stonith.Proof) []string {
	var lines []string
	for _, plug := range p.Plugs {
		line := plug.Device
		if plug.Plug != "" {
			line += " plug " + plug.Plug
		}
		line += ": read " + plug.Detail + " twice"
		if plug.WasOff {
			line += ", was off before"
		}
		lines = append(lines, line)
	}
	return lines
}

// powerOn ends an operation by switching its node on.
func (c *Coordinator) powerOn(ctx context.Context, o state.Operation) error {
	if err := c.drained(ctx, o); err != nil {
		return err
	}
	var err error
	if o.Executor == c.cfg.Self || c.cfg.Elsewhere == nil {
		err = c.cfg.Fencer.On(ctx, c.orderFor(o))
	} else {
		err = c.delegate(ctx, o, func(ctx context.Context) error {
			return c.cfg.Elsewhere.On(ctx, o, machine(c.cfg.State(), o.Node))
		})
	}
	if err != nil {
		return err
	}
	if _, err := c.commit(ctx, state.Command{PoweredOn: &state.PoweredOn{Op: o.ID}}); err != nil {
		return fmt.Errorf("%s is on, but that was not committed: %w", o.Node, err)
	}
	c.cfg.Log.Info("node powered on", "node", o.Node, "op", o.ID)
	return nil
}

// drained waits until no off of an earlier executor can be on its way any more: of one that was given leave and
// then lost. The executor itself sees to its own.
func (c *Coordinator) drained(ctx context.Context, o state.Operation) error {
	if o.Attempts > 1 && !pause(ctx, longest(c.cfg.Levels(o.Node))) {
		return ctx.Err()
	}
	return nil
}

func (c *Coordinator) orderFor(o state.Operation) stonith.Order {
	return stonith.Order{
		Target: stonith.Target{
			Node: o.Node, Boot: o.Boot, Levels: c.cfg.Levels(o.Node), Machine: machine(c.cfg.State(), o.Node),
		},
		Op:      o.ID,
		Level:   o.Level,
		Gate:    func(ctx context.Context) error { return c.Stands(ctx, o, c.cfg.Self) },
		Observe: func(s stonith.Step) { c.follow(o, s) },
	}
}

// Stands is asked before each command to a device: it proves that this node still leads and that
// the operation is still the one that was committed, against the same boot, and the executor's.
func (c *Coordinator) Stands(ctx context.Context, o state.Operation, executor string) error {
	if err := c.barrier(ctx); err != nil {
		return fmt.Errorf("leadership is not certain: %w", err)
	}
	s := c.cfg.State()
	now := s.Operations[o.ID]
	switch {
	case now == nil || !now.Open() || now.PowersOn() != o.PowersOn() || now.Node != o.Node:
		return fmt.Errorf("operation %d is over", o.ID)
	case now.Executor != executor:
		return fmt.Errorf("operation %d is %s's now", o.ID, now.Executor)
	case o.Phase == state.Shooting && s.Nodes[o.Node].Boot != o.Boot:
		return fmt.Errorf("%s is in boot %s, not in %s", o.Node, s.Nodes[o.Node].Boot, o.Boot)
	}
	if err := c.upToDate(executor); err != nil {
		return err
	}
	if why := scheduler.Obstacle(s, c.view(), now); why != "" {
		return errors.New(why)
	}
	return nil
}

// endClosedShots stops what is carried out for operations that are over.
func (c *Coordinator) endClosedShots(s *state.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for op, shot := range c.shots {
		if o := s.Operations[op]; o == nil || !o.Open() {
			shot.cancel()
		}
	}
}

// endShots ends the term of office: it returns when nothing is carried out any more.
func (c *Coordinator) endShots() {
	c.mu.Lock()
	var all []*shot
	for _, s := range c.shots {
		s.cancel()
		all = append(all, s)
	}
	c.mu.Unlock()
	for _, s := range all {
		<-s.done
	}
}

// follow passes a step on to the operators who wait for the operation.
func (c *Coordinator) follow(o state.Operation, s stonith.Step) {
	c.tell(o.ID, Progress{Op: o.ID, Phase: o.Phase, Text: s.String(), Step: &s})
}
