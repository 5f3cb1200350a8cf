package state

import (
	"fmt"
	"maps"
)

// Result is what a command did. Err is deterministic: it is the same on every node, and
// the state is then unchanged but for Applied and Clock.
type Result struct {
	Token uint64 // of the grant that was made
	Op    uint64 // of the operation that was opened or taken over, or that is in the way
	Err   error
}

// maxElapsed bounds what one command adds to the clock: 24 hours.
const maxElapsed = 24 * 60 * 60 * 1000

// keepBoots is how many ended boots of a node are remembered.
const keepBoots = 16

// Apply gives the state after the command at this index of the log.
func Apply(old *State, index uint64, c Command) (*State, Result) {
	next := *old
	t := &step{State: &next, index: index, at: c.At}
	t.pass(c)
	res := t.run(c)
	if res.Err != nil {
		unchanged := *old
		unchanged.Applied, unchanged.Clock = index, next.Clock // time passes for a refused command too
		return &unchanged, res
	}
	return &next, res
}

// pass takes the command's place in the log, and its time.
func (t *step) pass(c Command) {
	t.Applied = t.index
	t.Clock += min(max(c.Elapsed, 0), maxElapsed)
}

// step is a state in the making: the maps and entries that it hands out for writing are
// its own copies.
type step struct {
	*State
	index  uint64
	at     int64
	cloned struct{ nodes, groups, ops bool }
}

func (t *step) run(c Command) Result {
	if err := t.speaks(c); err != nil {
		return Result{Err: err}
	}
	switch {
	case c.Configure != nil:
		return Result{Err: t.configure(c.Configure)}
	case c.Join != nil:
		return Result{Err: t.join(c.Join)}
	case c.Leave != nil:
		return Result{Err: t.leave(c.Leave)}
	case c.Order != nil:
		return t.order(c.Order)
	case c.CallOff != nil:
		return Result{Err: t.callOff(c.CallOff)}
	case c.Shoot != nil:
		return Result{Err: t.shoot(c.Shoot)}
	case c.ShotFailed != nil:
		return Result{Err: t.shotFailed(c.ShotFailed)}
	case c.ShotProven != nil:
		return Result{Err: t.shotProven(c.ShotProven)}
	case c.PoweredOn != nil:
		return Result{Err: t.poweredOn(c.PoweredOn)}
	case c.Grant != nil:
		return t.grant(c.Grant)
	case c.Stop != nil:
		return Result{Err: t.stop(c.Stop)}
	case c.Started != nil:
		return Result{Err: t.started(c.Started)}
	case c.Stopped != nil:
		return Result{Err: t.stopped(c.Stopped)}
	case c.Failed != nil:
		return Result{Err: t.failed(c.Failed)}
	case c.StopFailed != nil:
		return Result{Err: t.stopFailed(c.StopFailed)}
	case c.Clear != nil:
		return Result{Err: t.clear(c.Clear)}
	case c.Tick != nil:
		return Result{}
	case c.Standby != nil:
		return Result{Err: t.standby(c.Standby)}
	case c.Confirm != nil:
		return t.confirm(c.Confirm)
	case c.Enable != nil:
		return Result{Err: t.enable(c.Enable)}
	case c.Maintain != nil:
		return Result{Err: t.maintain(c.Maintain)}
	case c.Move != nil:
		return Result{Err: t.move(c.Move)}
	case c.Restart != nil:
		return Result{Err: t.restart(c.Restart)}
	case c.Aim != nil:
		return Result{Err: t.aim(c.Aim)}
	case c.Expire != nil:
		return Result{Err: t.expire(c.Expire)}
	case c.Away != nil:
		return Result{Err: t.away(c.Away)}
	case c.Leaving != nil:
		return Result{Err: t.leaving(c.Leaving)}
	case c.Upgrade != nil:
		return Result{Err: t.upgrade(c.Upgrade)}
	case c.Force != nil:
		return Result{Err: t.force(c.Force)}
	}
	return Result{Err: fmt.Errorf("command without content: %w", ErrUnknown)}
}

// node gives a copy of the node to write to.
func (t *step) node(name string) (*Node, error) {
	n := t.Nodes[name]
	if n == nil {
		return nil, fmt.Errorf("node %q: %w", name, ErrUnknown)
	}
	c := *n
	t.setNode(&c)
	return &c, nil
}

func (t *step) setNode(n *Node) {
	if !t.cloned.nodes {
		t.Nodes = cloneOrMake(t.Nodes)
		t.cloned.nodes = true
	}
	t.Nodes[n.Name] = n
}

// group gives a copy of the group to write to; its maps are still shared.
func (t *step) group(name string) (*Group, error) {
	g := t.Groups[name]
	if g == nil {
		return nil, fmt.Errorf("group %q: %w", name, ErrUnknown)
	}
	c := *g
	t.setGroup(&c)
	return &c, nil
}

func (t *step) setGroup(g *Group) {
	t.ownGroups()
	t.Groups[g.Name] = g
}

func (t *step) ownGroups() {
	if !t.cloned.groups {
		t.Groups = cloneOrMake(t.Groups)
		t.cloned.groups = true
	}
}

// operation gives a copy of an open operation to write to.
func (t *step) operation(id uint64) (*Operation, error) {
	o := t.Operations[id]
	if o == nil {
		return nil, fmt.Errorf("operation %d: %w", id, ErrUnknown)
	}
	if !o.Open() {
		return nil, fmt.Errorf("operation %d is %s: %w", id, o.Phase, ErrSuperseded)
	}
	c := *o
	t.setOperation(&c)
	return &c, nil
}

func (t *step) setOperation(o *Operation) {
	t.ownOperations()
	t.Operations[o.ID] = o
}

func (t *step) ownOperations() {
	if !t.cloned.ops {
		t.Operations = cloneOrMake(t.Operations)
		t.cloned.ops = true
	}
}

func cloneOrMake[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}
