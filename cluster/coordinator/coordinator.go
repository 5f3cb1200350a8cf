// Package coordinator acts for the cluster while this node leads the replicated log:
// it observes the nodes, has the scheduler plan, commits what was planned, and
// carries out the fencing operations that are committed.
//
// It decides nothing by itself (package scheduler does), remembers nothing that
// matters (package state does) and is started anew with each term of office, so
// that a new coordinator goes on wherever the old one fell.
package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/scheduler"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// Log is the replicated log as far as a coordinator needs it.
type Log interface {
	// Propose commits a command; the result is what the state machine gave.
	Propose(ctx context.Context, command []byte) (result any, index uint64, err error)
	// Barrier proves by a committed entry that this node leads, and returns when all
	// before it is applied here.
	Barrier(ctx context.Context) (index uint64, err error)
	IsCoordinator() bool
	// Transfer hands the leadership to another voter.
	Transfer(ctx context.Context) error
}

// Fencer carries out fencing operations.
type Fencer interface {
	Off(ctx context.Context, o stonith.Order) (stonith.Proof, error)
	On(ctx context.Context, o stonith.Order) error
	// Check reads the target's devices, and changes nothing.
	Check(ctx context.Context, t stonith.Target) []stonith.Health
}

// Config is what a coordinator works with. All of it is safe for concurrent use.
type Config struct {
	Self          string
	Boot          string
	DetectionTime time.Duration
	FenceAction   state.FenceAction // against failed nodes
	// Machine is what this host says of its hardware.
	Machine state.Machine
	// Policy is when not to shoot, or not to switch on again.
	Policy scheduler.Policy
	// HealthInterval is how often each node reads the fence devices; 0 is never.
	HealthInterval time.Duration
	Seed           state.Configure // the configuration file's nodes and groups, and its text if there is one
	// Voters gives those whose votes count now; nil: all nodes.
	Voters func() []string
	// Forced gives the operator's word for a forced quorum that is not in the log yet, nil if there is none; ForceDone
	// is told once it is. Both may be nil.
	Forced    func() (*state.Force, error)
	ForceDone func() error
	// Shot gives the order against the other one of two nodes, which this one fenced before it went on alone, nil if there is
	// none; ShotDone is told once that is in the log. Both may be nil.
	Shot       func() (*state.Order, error)
	ShotDone   func() error
	Speaks     int // the newest version of the log's format that this daemon knows
	Replicated Log
	Fencer     Fencer
	// Elsewhere reaches the other nodes; nil if that cannot be, then this node does all by itself.
	Elsewhere Elsewhere
	// Line gives that of the cluster's history on which this node's log is; nil: there is but one.
	Line func() string
	// State gives the newest state that is applied here.
	State func() *state.State
	// Look gives what is known of every other configured node right now.
	Look func() map[string]Sighting
	// Fencing is the digest of what this node's file says feeds each node.
	Fencing string
	// Text is the digest of the configuration text that this node runs with. Outdated reports whether that, or another node's,
	// is not the text that the log has; nil: it never is.
	Text     string
	Outdated func(s *state.State, text string) bool
	// Unarmed says that this node works no fence device.
	Unarmed bool
	// Watchdog gives after how much silence a node's watchdog must have reset it, by this node's configuration; 0 where it
	// is none of the node's fencing levels. It may be nil.
	Watchdog func(node string) time.Duration
	// Levels gives a node's fence devices.
	Levels func(node string) [][]stonith.Device
	Log    *slog.Logger
}

// Coordinator acts while this node leads. Its methods are safe for concurrent use.
type Coordinator struct {
	cfg     Config
	wake    chan struct{}
	watch   *watch
	devices *devices

	mu      sync.Mutex
	leading bool              // a term of office is under way
	ticked  time.Time         // up to when this term's time is in the state's clock
	began   time.Time         // when it began
	hellos  map[string]heard  // by node; what each said last in this term
	riddles map[string]string // by node; what a new boot has to repeat before it is believed
	shots   map[uint64]*shot  // operations being carried out, or waiting for their next attempt
	talks   map[uint64]*talk  // operators who follow an operation
	settled bool
}

// New makes a coordinator; Run makes it act.
func New(cfg Config) *Coordinator {
	c := &Coordinator{
		cfg:     cfg,
		wake:    make(chan struct{}, 1),
		hellos:  map[string]heard{},
		riddles: map[string]string{},
		shots:   map[uint64]*shot{},
		talks:   map[uint64]*talk{},
		devices: newDevices(),
	}
	c.watch = newWatch(cfg)
	return c
}

// Wake tells the coordinator that something changed. It never blocks.
func (c *Coordinator) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// settleTimes is for how many detection times the first placement of groups waits for
// nodes that were not seen yet.
const settleTimes = 5

// Run acts whenever this node leads, until ctx ends. It returns when all that it
// started has ended.
func (c *Coordinator) Run(ctx context.Context) {
	// What this node sees is news for its log only, until it leads.
	idle := time.NewTicker(c.cfg.DetectionTime / 8)
	defer idle.Stop()
	for ctx.Err() == nil {
		c.watch.observe(c.cfg.Look())
		if c.cfg.Replicated.IsCoordinator() {
			c.lead(ctx)
		}
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-idle.C:
		}
	}
}

// lead is one term of office.
func (c *Coordinator) lead(ctx context.Context) {
	ctx, resign := context.WithCancel(ctx)
	defer c.endShots()
	defer resign()
	if err := c.barrier(ctx); err != nil {
		return // not elected for good; the next look tells
	}
	c.begin()
	defer c.end()
	var background sync.WaitGroup
	defer func() { resign(); background.Wait() }()
	background.Go(func() { c.watchDevices(ctx) })
	c.cfg.Log.Info("acting as coordinator", "node", c.cfg.Self)
	timer := time.NewTimer(0)
	defer timer.Stop()
	began := time.Now()
	for ctx.Err() == nil && c.cfg.Replicated.IsCoordinator() {
		if time.Since(began) > settleTimes*c.cfg.DetectionTime {
			c.setSettled(true)
		}
		if err := c.step(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Log.Warn("coordination interrupted", "err", err)
			if !pause(ctx, c.cfg.DetectionTime/20) {
				return
			}
		}
		timer.Reset(c.nextLook())
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
		}
	}
	c.cfg.Log.Info("no longer acting as coordinator", "node", c.cfg.Self)
}

// begin opens a term of office. What nodes said in an earlier one says nothing now.
func (c *Coordinator) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leading, c.settled, c.began = true, false, time.Now()
	c.ticked = c.began
	c.devices.forget()
	clear(c.hellos)
	clear(c.riddles)
}

// end closes it: nobody follows an operation here any more.
func (c *Coordinator) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leading = false
	for op, t := range c.talks {
		for _, f := range t.followers {
			close(f)
		}
		delete(c.talks, op)
	}
}

// nextLook is in what time something may be due that nobody wakes the coordinator for.
func (c *Coordinator) nextLook() time.Duration {
	wait := c.watch.next(c.cfg.Look())
	if ms := scheduler.Next(c.cfg.State(), c.view()); ms > 0 {
		wait = min(wait, time.Duration(ms)*time.Millisecond)
	}
	return wait
}

// maxRounds bounds how often one step plans anew because its own commits changed the
// state.
const maxRounds = 64

// step does what is due: it plans, commits and starts, until a plan brings nothing new.
func (c *Coordinator) step(ctx context.Context) error {
	if err := c.force(ctx); err != nil {
		return err
	}
	if err := c.upgrade(ctx); err != nil {
		return err
	}
	if err := c.configure(ctx); err != nil {
		return err
	}
	if err := c.shotBefore(ctx); err != nil {
		return err
	}
	for range maxRounds {
		s := c.cfg.State()
		c.endClosedShots(s)
		c.tellTalks(s)
		committed, err := c.carryOut(ctx, scheduler.Plan(s, c.view()))
		if err != nil || !committed {
			return err
		}
	}
	return errors.New("the plan does not come to an end")
}

// carryOut does what is planned, in its order; grants and stops that follow each other together.
func (c *Coordinator) carryOut(ctx context.Context, plan []scheduler.Action) (committed bool, err error) {
	for len(plan) > 0 {
		n := together(plan)
		done, errs := make([]bool, n), make([]error, n)
		var all sync.WaitGroup
		for i, a := range plan[:n] {
			all.Go(func() { done[i], errs[i] = c.do(ctx, a) })
		}
		all.Wait()
		for i, err := range errs {
			committed = committed || done[i]
			if err != nil {
				return committed, err
			}
		}
		plan = plan[n:]
	}
	return committed, nil
}

// mostTogether is how many commands are proposed at once: the log writes and sends as one what comes together, and a node
// may have held hundreds of groups.
const mostTogether = 64

// together is how many actions, from the first one on, may be committed in any order: grants and stops, each of which
// the state judges by itself.
func together(plan []scheduler.Action) int {
	n := slices.IndexFunc(plan, func(a scheduler.Action) bool {
		return a.Commit == nil || a.Commit.Grant == nil && a.Commit.Stop == nil
	})
	if n < 0 {
		n = len(plan)
	}
	return min(max(n, 1), mostTogether)
}

// do carries out one action and reports whether it changed the state.
func (c *Coordinator) do(ctx context.Context, a scheduler.Action) (committed bool, err error) {
	switch {
	case a.Commit != nil:
		return c.commitPlanned(ctx, a)
	case a.Execute != nil:
		c.startShot(ctx, a.Execute)
		return false, nil
	case a.HandOver:
		c.cfg.Log.Info("handing over", "node", c.cfg.Self, "reason", a.Reason)
		ctx, cancel := context.WithTimeout(ctx, c.cfg.DetectionTime)
		defer cancel()
		if err := c.cfg.Replicated.Transfer(ctx); err != nil {
			c.cfg.Log.Warn("not handed over", "node", c.cfg.Self, "err", err)
		}
		return false, nil
	}
	return false, nil
}

// commitPlanned commits what the scheduler planned. A refusal by the state is no error: the state
// moved on since the plan was made, and the next plan knows it.
func (c *Coordinator) commitPlanned(ctx context.Context, a scheduler.Action) (bool, error) {
	if o := a.Commit.Order; o != nil && c.view().Nodes[o.Node].Gone == "" {
		if n := c.cfg.State().Nodes[o.Node]; n == nil || n.Unclean == "" {
			return false, nil // it was heard again since the plan was made
		}
	}
	res, err := c.commit(ctx, *a.Commit)
	if err != nil {
		if refused(res) {
			c.cfg.Log.Debug("plan refused", "reason", a.Reason, "err", err)
			return false, nil
		}
		return false, err
	}
	c.logCommitted(*a.Commit, res, a.Reason)
	return true, nil
}

// commit proposes a command. An error of the state is returned with the state's
// result; without a result the outcome may be unknown.
func (c *Coordinator) commit(ctx context.Context, cmd state.Command) (*state.Result, error) {
	if have := c.cfg.State().Format(); cmd.Upgrade == nil && cmd.Needs() > have {
		return nil, fmt.Errorf("commit: it needs version %d of the log's format, and the cluster keeps to %d until every node runs a newer hamgr: %w", cmd.Needs(), have, state.ErrFormat)
	}
	cmd.At, cmd.Elapsed = time.Now().UnixMilli(), c.tick()
	b, err := cmd.Encode()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DetectionTime)
	defer cancel()
	got, _, err := c.cfg.Replicated.Propose(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	res, ok := got.(state.Result)
	if !ok {
		return nil, fmt.Errorf("commit: the state machine answered %T", got)
	}
	return &res, res.Err
}

// refused tells a deterministic refusal by the state from a commit that did not come about.
func refused(res *state.Result) bool { return res != nil && res.Err != nil }

func (c *Coordinator) barrier(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DetectionTime)
	defer cancel()
	_, err := c.cfg.Replicated.Barrier(ctx)
	return err
}

func (c *Coordinator) setSettled(v bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled = v
}

// logCommitted writes the one line that each decision leaves.
func (c *Coordinator) logCommitted(cmd state.Command, res *state.Result, reason string) {
	log := c.cfg.Log
	switch {
	case cmd.Order != nil:
		log.Warn("fencing ordered", "node", cmd.Order.Node, "boot", cmd.Order.Boot, "op", res.Op, "action", cmd.Order.Action, "by", cmd.Order.By, "reason", reason)
	case cmd.CallOff != nil:
		log.Info("fencing called off", "op", cmd.CallOff.Op, "reason", reason)
	case cmd.Shoot != nil:
		log.Info("fencing started", "op", cmd.Shoot.Op, "executor", cmd.Shoot.Executor, "reason", reason)
	case cmd.PoweredOn != nil:
		log.Info("counted as powered on", "op", cmd.PoweredOn.Op, "reason", reason)
	case cmd.Standby != nil:
		log.Info("standby changed", "node", cmd.Standby.Node, "standby", cmd.Standby.On, "by", cmd.Standby.By)
	case cmd.Confirm != nil:
		log.Warn("an operator says that the node is down", "node", cmd.Confirm.Node, "boot", cmd.Confirm.Boot, "by", cmd.Confirm.By, "force", cmd.Confirm.Force, "reason", cmd.Confirm.Reason)
	case cmd.Enable != nil:
		log.Info("group enabled or disabled", "group", cmd.Enable.Group, "enabled", cmd.Enable.On, "by", cmd.Enable.By)
	case cmd.Maintain != nil:
		log.Warn("maintenance begins or ends", "node", cmd.Maintain.Node, "group", cmd.Maintain.Group, "maintenance", cmd.Maintain.On, "by", cmd.Maintain.By)
	case cmd.Move != nil:
		log.Info("group to be moved", "group", cmd.Move.Group, "node", cmd.Move.To, "from", cmd.Move.From, "for_ms", cmd.Move.For, "by", cmd.Move.By)
	case cmd.Restart != nil:
		log.Info("group to be restarted", "group", cmd.Restart.Group, "token", cmd.Restart.Token, "by", cmd.Restart.By)
	case cmd.Clear != nil:
		log.Info("failures cleared", "group", cmd.Clear.Group, "node", cmd.Clear.Node)
	case cmd.Aim != nil:
		log.Info("group to leave once others have stopped", "group", cmd.Aim.Group, "node", cmd.Aim.Node, "reason", reason)
	case cmd.Expire != nil:
		log.Info("failure expired", "group", cmd.Expire.Group, "node", cmd.Expire.Node, "reason", reason)
	case cmd.Grant != nil:
		log.Info("group granted", "group", cmd.Grant.Group, "node", cmd.Grant.Node, "token", res.Token, "reason", reason)
	case cmd.Stop != nil:
		log.Info("group to be stopped", "group", cmd.Stop.Group, "token", cmd.Stop.Token, "reason", reason)
	}
}

// pause waits, and reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
