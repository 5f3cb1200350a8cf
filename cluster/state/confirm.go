package state

import "fmt"

// confirm is proof (f): an operator says that the node is down in this boot. It leaves an entry of its own
// in the history, so that nobody takes it for a fencing.
func (t *step) confirm(c *Confirm) Result {
	n, err := t.node(c.Node)
	if err != nil {
		return Result{Err: err}
	}
	switch {
	case c.By == "" || c.By == ByCluster:
		return Result{Err: fmt.Errorf("confirm that %s is down: it is for an operator to say: %w", c.Node, ErrConflict)}
	case c.Boot != n.Boot:
		return Result{Err: fmt.Errorf("confirm that %s is down in boot %q: its boot is %q: %w", c.Node, c.Boot, n.Boot, ErrSuperseded)}
	}
	said := append([]string{fmt.Sprintf("%s confirmed it by hand: %s", c.By, c.Reason)}, c.Evidence...)
	p := Proof{Kind: OperatorWord, Node: n.Name, Boot: n.Boot, Op: t.index, Evidence: clipLines(said, maxEvidence)}
	t.endBoot(n, p)
	t.closeByWord(n, c, p)
	note := "an operator's word, no fencing"
	if c.Force {
		note += "; forced"
	}
	t.LastOp = t.index
	o := &Operation{
		ID: t.index, Node: n.Name, Boot: n.Boot, Action: FenceConfirm, Reason: clip(c.Reason, maxText), By: clip(c.By, maxText),
		Lasting: true, Proof: &p, At: t.at, Clock: t.Clock,
	}
	t.close(o, Done, note)
	return Result{Op: t.index}
}

// closeByWord ends what was to switch the node off; a power-on alone stays.
func (t *step) closeByWord(n *Node, c *Confirm, p Proof) {
	o, err := t.operation(n.Op)
	if err != nil || o.Action == FenceOn {
		return
	}
	n.Op = 0
	if o.Proof == nil {
		o.Proof = &p
	}
	t.close(o, Done, fmt.Sprintf("ended by the word of %s, no fencing (operation %d)", c.By, t.index))
}
