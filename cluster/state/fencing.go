package state

import (
	"fmt"
	"slices"
)

// order opens an operation. The verdict names the boot: one that is not the node's
// newest is refused.
func (t *step) order(c *Order) Result {
	n, err := t.node(c.Node)
	if err != nil {
		return Result{Err: err}
	}
	if err := t.mayOrder(n, c); err != nil {
		return Result{Err: fmt.Errorf("fence %s (%s): %w", c.Node, c.Action, err)}
	}
	if n.Op != 0 {
		open, err := t.operation(n.Op)
		if err != nil {
			return Result{Err: err}
		}
		if takesOver(c, open) {
			t.takeOver(n, open, c)
			return Result{Op: open.ID}
		}
		if open.CutsPower() {
			return Result{Op: open.ID, Err: fmt.Errorf("fence %s: operation %d (%s, %s) is under way: %w",
				c.Node, open.ID, open.Action, open.Phase, ErrConflict)}
		}
		t.close(open, Done, fmt.Sprintf("power on given up for operation %d", t.index))
	}
	n.Op = t.index
	lasting := n.Unclean != "" || c.By != ByCluster
	reason := clip(c.Reason, maxText)
	if c.Action == FenceOff || c.Action == FenceReboot {
		n.Unclean = reason
	}
	endQuarantine(n, c)
	t.LastOp = t.index
	t.setOperation(&Operation{
		ID: t.index, Node: c.Node, Boot: c.Boot, Action: c.Action, Level: c.Level,
		Reason: reason, By: clip(c.By, maxText), Phase: Ordered, Lasting: lasting, At: t.at, Clock: t.Clock,
	})
	return Result{Op: t.index}
}

func (t *step) mayOrder(n *Node, c *Order) error {
	switch {
	case c.Boot != n.Boot:
		return fmt.Errorf("in boot %q: its boot is %q: %w", c.Boot, n.Boot, ErrSuperseded)
	case c.By == ByCluster && t.Maintained(c.Node) != "":
		return fmt.Errorf("%s: %w", t.Maintained(c.Node), ErrConflict)
	case c.By == ByCluster && !n.Up:
		return fmt.Errorf("boot %q holds nothing any more: %w", c.Boot, ErrSuperseded)
	}
	switch c.Action {
	case FenceRehearse:
		return t.mayRehearse(n, c)
	case FenceOff, FenceReboot, FenceOn:
		if c.Level != 0 {
			return fmt.Errorf("only a rehearsal is of one level: %w", ErrConflict)
		}
		return nil
	}
	return fmt.Errorf("action: %w", ErrUnknown)
}

// mayRehearse holds a rehearsal to a node that loses nothing by it.
func (t *step) mayRehearse(n *Node, c *Order) error {
	held := t.Holds(n.Name)
	switch {
	case c.By == "" || c.By == ByCluster:
		return fmt.Errorf("it is for an operator to order: %w", ErrConflict)
	case c.Level < 0:
		return fmt.Errorf("level %d: %w", c.Level, ErrUnknown)
	case !n.Up:
		return fmt.Errorf("it is not in the cluster: %w", ErrConflict)
	case !n.Standby:
		return fmt.Errorf("it is not on standby: %w", ErrConflict)
	case len(held) > 0:
		return fmt.Errorf("it may hold %v: %w", held, ErrConflict)
	case n.Unclean != "":
		return fmt.Errorf("it needs fencing (%s): %w", n.Unclean, ErrConflict)
	}
	return nil
}

// takesOver reports whether the order is an operator's word on an operation of the cluster that has proven
// nothing yet. The two want the same; they differ in what holds them back.
func takesOver(c *Order, open *Operation) bool {
	return c.By != "" && c.By != ByCluster && open.By == ByCluster && open.CutsPower() &&
		(c.Action == FenceOff || c.Action == FenceReboot)
}

// takeOver makes the cluster's operation the operator's. Of the two actions the stricter one
// stands: to be left off.
func (t *step) takeOver(n *Node, o *Operation, c *Order) {
	o.By, o.Lasting = clip(c.By, maxText), true
	if c.Action == FenceOff {
		o.Action = FenceOff
	}
	endQuarantine(n, c)
	addNote(o, fmt.Sprintf("the cluster's order, taken over by %s: %s", c.By, c.Reason))
}

// endQuarantine forgets how often the node was fenced, where an operator wants it to run.
func endQuarantine(n *Node, c *Order) {
	if c.By != ByCluster && (c.Action == FenceOn || c.Action == FenceReboot) {
		n.Fenced = nil
	}
}

// callOff ends an operation whose cause is gone. A rehearsal has none: it can be called off
// until a command may have gone out.
func (t *step) callOff(c *CallOff) error {
	o, err := t.operation(c.Op)
	if err != nil {
		return err
	}
	if o.Phase != Ordered || o.Lasting && o.Action != FenceRehearse {
		return fmt.Errorf("call off operation %d: its cause stands, or a command may have gone out: %w", o.ID, ErrConflict)
	}
	n, err := t.node(o.Node)
	if err != nil {
		return err
	}
	n.Op, n.Unclean = 0, ""
	t.close(o, CalledOff, c.Reason)
	return nil
}

func (t *step) shoot(c *Shoot) error {
	o, err := t.operation(c.Op)
	if err != nil {
		return err
	}
	if c.Executor == "" || c.Executor == o.Node {
		return fmt.Errorf("operation %d: %q cannot fence %s: %w", o.ID, c.Executor, o.Node, ErrConflict)
	}
	if why := t.Maintained(o.Node); why != "" && o.Phase == Ordered && o.By == ByCluster {
		return fmt.Errorf("operation %d: %s: %w", o.ID, why, ErrConflict)
	}
	o.Executor = c.Executor
	o.Attempts++
	if o.Phase == Ordered {
		o.Phase, o.ShotClock = Shooting, t.Clock
	}
	return nil
}

// attempted finds the operation that an executor speaks of. Who was replaced as its executor is not
// believed: what it saw may lie before what the present one did.
func (t *step) attempted(op uint64, executor string) (*Operation, error) {
	o, err := t.operation(op)
	if err != nil {
		return nil, err
	}
	switch {
	case o.Phase == Ordered:
		return nil, fmt.Errorf("operation %d is %s, no attempt was committed: %w", o.ID, o.Phase, ErrConflict)
	case o.Executor != executor:
		return nil, fmt.Errorf("operation %d is %s's now, not %s's: %w", o.ID, o.Executor, executor, ErrSuperseded)
	}
	return o, nil
}

func (t *step) shotFailed(c *ShotFailed) error {
	o, err := t.attempted(c.Op, c.Executor)
	if err != nil {
		return err
	}
	o.Error = clip(c.Error, maxText)
	o.Failures++
	record(o, Attempt{Executor: c.Executor, At: t.at, Error: c.Error, Devices: c.Devices, Opinions: c.Opinions})
	if o.Action == FenceRehearse && o.Phase == Shooting {
		// It is in nobody's way, so it is not tried for ever; but it may be off.
		o.Action = FenceOn
		addNote(o, "rehearsal failed: "+c.Error)
	}
	return nil
}

// shotProven is proof (b): from here on what the target held in that boot is void.
func (t *step) shotProven(c *ShotProven) error {
	o, err := t.attempted(c.Op, c.Executor)
	if err != nil {
		return err
	}
	switch {
	case o.Action == FenceOn:
		return fmt.Errorf("operation %d is to switch on: %w", o.ID, ErrConflict)
	case o.Phase != Shooting:
		return fmt.Errorf("operation %d is %s, not %s: %w", o.ID, o.Phase, Shooting, ErrConflict)
	case c.Kind != "" && c.Kind != Watchdog:
		return fmt.Errorf("operation %d: %q is no proof of a shot: %w", o.ID, c.Kind, ErrConflict)
	case len(c.Evidence) == 0:
		return fmt.Errorf("operation %d: proof without evidence: %w", o.ID, ErrConflict)
	}
	n, err := t.node(o.Node)
	if err != nil {
		return err
	}
	if n.Boot != o.Boot {
		return fmt.Errorf("operation %d fenced boot %q, %s is in %q: %w", o.ID, o.Boot, o.Node, n.Boot, ErrSuperseded)
	}
	kind := PowerOff
	if c.Kind != "" {
		kind = c.Kind
		if err := t.mayExpire(n, o); err != nil {
			return err
		}
	}
	p := Proof{Kind: kind, Node: o.Node, Boot: o.Boot, Op: o.ID, Evidence: clipLines(c.Evidence, maxEvidence)}
	o.Proof, o.Error = &p, ""
	record(o, Attempt{Executor: c.Executor, At: t.at, Proven: true, Devices: c.Devices, Opinions: c.Opinions})
	t.endBoot(n, p)
	if o.By == ByCluster && kind == PowerOff {
		n.Fenced = append(slices.Clone(n.Fenced), t.Clock)
		n.Fenced = n.Fenced[max(0, len(n.Fenced)-keepFenced):]
	}
	if kind == Watchdog { // nobody switched anything off, and the host comes back by itself
		n.Op = 0
		t.close(o, Done, "its watchdog must have reset it; nothing was read off")
		return nil
	}
	t.rehearsed(n, o, c.Devices)
	if o.Action != FenceOff {
		o.Phase = ProvenOff
		return nil
	}
	n.Op = 0
	t.close(o, Done, "")
	return nil
}

func (t *step) poweredOn(c *PoweredOn) error {
	o, err := t.operation(c.Op)
	if err != nil {
		return err
	}
	if o.Phase != ProvenOff && (o.Action != FenceOn || o.Phase != Shooting) {
		return fmt.Errorf("operation %d is %s: power on is not its turn: %w", o.ID, o.Phase, ErrConflict)
	}
	n, err := t.node(o.Node)
	if err != nil {
		return err
	}
	n.Op = 0
	o.Error = ""
	note := "powered on"
	if c.Reason != "" {
		note = c.Reason
	}
	t.close(o, Done, note)
	return nil
}

// closeByNewBoot ends the node's operation because the boot that it names is over, by
// proof (c).
func (t *step) closeByNewBoot(n *Node) {
	if n.Op == 0 {
		return
	}
	o, err := t.operation(n.Op)
	n.Op = 0
	if err != nil {
		return
	}
	if o.Proof == nil && o.Action != FenceOn {
		o.Proof = &Proof{Kind: NewBoot, Node: n.Name, Boot: o.Boot}
	}
	note := "the node came back with a new boot"
	if o.Action == FenceRehearse && o.Phase != ProvenOff {
		note += ": the rehearsal proved nothing"
	}
	t.close(o, Done, note)
}
