package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// grant gives a group to a node, with the next token. Nobody may hold the group any more:
// a grant ends only by a proof, so an empty Grant is the proof.
func (t *step) grant(c *GrantGroup) Result {
	g, err := t.group(c.Group)
	if err != nil {
		return Result{Err: err}
	}
	if err := t.mayGrant(g, c); err != nil {
		return Result{Err: fmt.Errorf("grant %s to %s: %w", c.Group, c.Node, err)}
	}
	t.arrive(g, c.Node)
	t.LastToken++
	g.Grant = &Grant{Node: c.Node, Boot: c.Boot, Token: t.LastToken, Phase: Granted, Reason: clip(c.Reason, maxNote), At: t.at}
	return Result{Token: t.LastToken}
}

func (t *step) mayGrant(g *Group, c *GrantGroup) error {
	n := t.Nodes[c.Node]
	switch {
	case n == nil:
		return fmt.Errorf("node %q: %w", c.Node, ErrUnknown)
	case g.Grant != nil:
		return fmt.Errorf("%s holds it with token %d: %w", g.Grant.Node, g.Grant.Token, ErrConflict)
	case len(g.Found) > 0:
		return fmt.Errorf("found active without a grant on %s: %w", keys(g.Found), ErrConflict)
	case g.Removed:
		return fmt.Errorf("no longer configured: %w", ErrConflict)
	case g.Disabled || g.Halted != "":
		return fmt.Errorf("it is to run nowhere: %w", ErrConflict)
	case t.GroupMaintained(g) != "":
		return fmt.Errorf("%s: %w", t.GroupMaintained(g), ErrConflict)
	case !g.Allows(c.Node):
		return fmt.Errorf("the configuration does not allow it there: %w", ErrConflict)
	case n.Role != Member:
		return fmt.Errorf("a %s holds no groups: %w", n.Role, ErrConflict)
	case !n.Up || n.Boot != c.Boot:
		return fmt.Errorf("not in the cluster in boot %q: %w", c.Boot, ErrSuperseded)
	case n.Unclean != "" || n.Op != 0:
		return fmt.Errorf("it is being fenced: %w", ErrConflict)
	case n.Aside() != "":
		return fmt.Errorf("it is %s: %w", n.Aside(), ErrConflict)
	case n.Maintenance:
		return fmt.Errorf("it is in maintenance: %w", ErrConflict)
	}
	return nil
}

func (t *step) stop(c *StopGroup) error {
	g, err := t.group(c.Group)
	if err != nil {
		return err
	}
	if g.Grant == nil || g.Grant.Token != c.Token {
		return fmt.Errorf("stop %s with token %d: %w", c.Group, c.Token, ErrSuperseded)
	}
	setPhase(g, Stopping, clip(c.Reason, maxNote))
	if c.Aim != "" {
		g.Aim = c.Aim
	}
	return nil
}

// reported finds the grant that a report speaks of.
func (t *step) reported(c *Report) (*Group, error) {
	g, err := t.group(c.Group)
	if err != nil {
		return nil, err
	}
	gr := g.Grant
	if gr == nil || gr.Token != c.Token || gr.Node != c.Node || gr.Boot != c.Boot {
		return nil, fmt.Errorf("report of %s on group %s with token %d: %w", c.Node, c.Group, c.Token, ErrSuperseded)
	}
	if n := t.Nodes[c.Node]; n == nil || n.Session != c.Session {
		// It may run what the earlier daemon of the node says that it stopped.
		return nil, fmt.Errorf("report of %s on group %s with token %d: %w", c.Node, c.Group, c.Token, ErrSession)
	}
	return g, nil
}

func (t *step) started(c *Report) error {
	g, err := t.reported(c)
	if err != nil {
		return err
	}
	if g.Grant.Phase == Granted {
		setPhase(g, Started, "")
	}
	if w := g.Wish; w != nil && w.Once && g.Grant.Token > w.Token && g.Grant.Phase == Started {
		g.Wish = nil
	}
	if g.Failures[c.Node].Expired {
		g.Failures = without(g.Failures, c.Node)
	}
	return nil
}

// stopped is proof (a): the holder says that this very grant is over. A need for fencing
// that is already committed stays: it speaks of the node, not of this group alone.
func (t *step) stopped(c *Report) error {
	g, err := t.reported(c)
	if err != nil {
		return err
	}
	release(g, Proof{Kind: CleanStop, Node: c.Node, Boot: c.Boot})
	t.dropIfRemoved(g)
	return nil
}

// failed says that the group cannot run there; the holder stops it.
func (t *step) failed(c *Report) error {
	g, err := t.reported(c)
	if err != nil {
		return err
	}
	// What is active elsewhere is no failure of this node: once that is settled the group may run here.
	if elsewhere := without(g.Found, c.Node); len(elsewhere) > 0 {
		setPhase(g, Stopping, fmt.Sprintf("found active without a grant on %s: %s", keys(elsewhere), Kept(c.Error)))
		return nil
	}
	f := Failure{Resource: Kept(c.Resource), Error: Kept(c.Error), Count: g.Failures[c.Node].Count + 1, At: t.at, Clock: t.Clock}
	g.Failures = cloneOrMake(g.Failures)
	g.Failures[c.Node] = f
	why := fmt.Sprintf("%s failed on %s: %s", f.Resource, c.Node, f.Error)
	setPhase(g, Stopping, why)
	switch c.Verdict {
	case Halt:
		g.Halted = why
	case Fence:
		return t.needFencing(c.Node, fmt.Sprintf("%s of group %s failed, and its on_fail is fence: %s", f.Resource, c.Group, f.Error))
	}
	return nil
}

// stopFailed says that the holder cannot let go: it needs fencing.
func (t *step) stopFailed(c *Report) error {
	if err := t.failed(c); err != nil {
		return err
	}
	return t.needFencing(c.Node, fmt.Sprintf("stop of group %s failed: %s: %s", c.Group, Kept(c.Resource), Kept(c.Error)))
}

// needFencing commits that only a proof makes the node clean again.
func (t *step) needFencing(node, why string) error {
	n, err := t.node(node)
	if err != nil {
		return err
	}
	n.Unclean = why
	if n.Op != 0 {
		o, err := t.operation(n.Op)
		if err != nil {
			return err
		}
		o.Lasting = true
	}
	return nil
}

func (t *step) clear(c *Clear) error {
	g, err := t.group(c.Group)
	if err != nil {
		return err
	}
	g.Halted, g.Missed = "", nil
	if c.Node == "" {
		g.Failures = nil
	} else {
		g.Failures = without(g.Failures, c.Node)
	}
	return nil
}

func setPhase(g *Group, p GrantPhase, reason string) {
	gr := *g.Grant
	gr.Phase, gr.StopReason = p, reason
	g.Grant = &gr
}

func release(g *Group, p Proof) {
	g.Released = &Release{Token: g.Grant.Token, Proof: p}
	g.Grant = nil
}

func keys(m map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
