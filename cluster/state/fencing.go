package state

import (
	"fmt"
	"maps"
	"slices"
)

// order opens an operation. The verdict names the boot: one that is not the node's
// newest is refused.
func (t *step) order(c *Order) Result {
	n, err := t.node(c.Node)
	if err != nil {
		return Result{Err: err}
	}
	if c.Boot != n.Boot {
		return Result{Err: fmt.Errorf("fence %s in boot %q: its boot is %q: %w", c.Node, c.Boot, n.Boot, ErrSuperseded)}
	}
	if c.By == ByCluster && !n.Up {
		return Result{Err: fmt.Errorf("fence %s: boot %q holds nothing any more: %w", c.Node, c.Boot, ErrSuperseded)}
	}
	if n.Op != 0 {
		open, err := t.operation(n.Op)
		if err != nil {
			return Result{Err: err}
		}
		if open.Phase != ProvenOff && open.Action != FenceOn {
			return Result{Op: open.ID, Err: fmt.Errorf("fence %s: operation %d (%s, %s) is under way: %w",
				c.Node, open.ID, open.Action, open.Phase, ErrConflict)}
		}
		t.close(open, Done, fmt.Sprintf("power on given up for operation %d", t.index))
	}
	n.Op = t.index
	lasting := n.Unclean != "" || c.By != ByCluster
	if c.Action != FenceOn {
		n.Unclean = c.Reason
	}
	t.LastOp = t.index
	t.setOperation(&Operation{
		ID: t.index, Node: c.Node, Boot: c.Boot, Action: c.Action,
		Reason: c.Reason, By: c.By, Phase: Ordered, Lasting: lasting, At: t.at,
	})
	return Result{Op: t.index}
}

func (t *step) callOff(c *CallOff) error {
	o, err := t.operation(c.Op)
	if err != nil {
		return err
	}
	if o.Phase != Ordered || o.Lasting {
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
	o.Executor = c.Executor
	o.Attempts++
	if o.Phase == Ordered {
		o.Phase = Shooting
	}
	return nil
}

func (t *step) shotFailed(c *ShotFailed) error {
	o, err := t.operation(c.Op)
	if err != nil {
		return err
	}
	if o.Executor != c.Executor {
		return fmt.Errorf("operation %d is %s's now, not %s's: %w", o.ID, o.Executor, c.Executor, ErrSuperseded)
	}
	o.Error = c.Error
	o.Failures++
	return nil
}

// shotProven is proof (b): from here on what the target held in that boot is void.
func (t *step) shotProven(c *ShotProven) error {
	o, err := t.operation(c.Op)
	if err != nil {
		return err
	}
	switch {
	case o.Action == FenceOn:
		return fmt.Errorf("operation %d is to switch on: %w", o.ID, ErrConflict)
	case o.Phase != Shooting:
		return fmt.Errorf("operation %d is %s, not %s: %w", o.ID, o.Phase, Shooting, ErrConflict)
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
	p := Proof{Kind: PowerOff, Node: o.Node, Boot: o.Boot, Op: o.ID, Evidence: c.Evidence}
	o.Proof, o.Error = &p, ""
	t.endBoot(n, p)
	if o.Action == FenceReboot {
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
	t.close(o, Done, "powered on")
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
	t.close(o, Done, "the node came back with a new boot")
}

func (t *step) close(o *Operation, phase OpPhase, note string) {
	o.Phase, o.Note, o.EndedAt = phase, note, t.at
	t.setOperation(o)
	var closed []uint64
	for _, id := range slices.Sorted(maps.Keys(t.Operations)) {
		if !t.Operations[id].Open() {
			closed = append(closed, id)
		}
	}
	for len(closed) > keepOperations {
		delete(t.Operations, closed[0])
		closed = closed[1:]
	}
}
