package state

import (
	"fmt"
	"slices"
)

// Rules are what the configuration says of where and when a group runs.
type Rules struct {
	Prefer []string `json:"prefer,omitempty"` // members, best first; others follow
	Allow  []string `json:"allow,omitempty"`  // the only members that may run it; empty for all
	After  []string `json:"after,omitempty"`  // groups that must run, wherever, for this one to run
	With   []string `json:"with,omitempty"`   // groups on whose node this one runs
	Apart  []string `json:"apart,omitempty"`  // groups that are never on this one's node
	Weight int      `json:"weight,omitempty"` // what it takes of a node's capacity
	// Failback says when a running group goes back to a node that is preferred.
	Failback Failback `json:"failback,omitzero"`
	// FailureExpiry is after how many ms of State.Clock a failure no longer keeps the group from a node; 0 is never.
	FailureExpiry int64 `json:"failure_expiry,omitempty"`
}

// Failback is a part of the day; its zero value is never.
type Failback struct {
	Always bool `json:"always,omitempty"`
	// From and To are minutes since midnight, To not included; a window may go over midnight.
	From int `json:"from,omitempty"`
	To   int `json:"to,omitempty"`
}

// Contains reports whether a minute of the day, -1 if that is unknown, is one of failback.
func (f Failback) Contains(minute int) bool {
	switch {
	case f.Always:
		return true
	case minute < 0 || f.From == f.To:
		return false
	case f.From < f.To:
		return f.From <= minute && minute < f.To
	}
	return minute >= f.From || minute < f.To
}

// Allows reports whether the rules let a member run the group.
func (r Rules) Allows(node string) bool { return len(r.Allow) == 0 || slices.Contains(r.Allow, node) }

// Wish is an operator's wish of where a group should be. It is no rule: it ends.
type Wish struct {
	To   string `json:"to,omitempty"`   // the node where it should be; empty if it only should not be at From
	From string `json:"from,omitempty"` // the node where it should not be
	// Token is the last one of the cluster when the wish was made: later grants are of groups that followed it.
	Token uint64 `json:"token,omitempty"`
	// Restart says that the group should run under a later token.
	Restart bool `json:"restart,omitempty"`
	// Once ends the wish as soon as the group runs under a later token.
	Once  bool   `json:"once,omitempty"`
	Until int64  `json:"until"` // reading of State.Clock at which it ends in any case
	By    string `json:"by"`
}

// AimGroup says that a group that runs well is to go to a node, as soon as those that run after it have stopped; or, with
// no node, that it does not go after all. What was begun for a reason is not begun again because that reason looks
// different halfway.
type AimGroup struct {
	Group  string `json:"group"`
	Token  uint64 `json:"token"`
	Node   string `json:"node,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func (t *step) aim(c *AimGroup) error {
	g, err := t.group(c.Group)
	switch {
	case err != nil:
		return err
	case g.Grant == nil || g.Grant.Token != c.Token || g.Grant.Phase == Stopping:
		return fmt.Errorf("aim of %s with token %d: %w", c.Group, c.Token, ErrSuperseded)
	case c.Node == "":
		t.arrive(g, "")
		return nil
	}
	g.Aim, g.AimReason = c.Node, clip(c.Reason, maxNote)
	return nil
}

// Missed is a node for which a group left its own, and that it did not get to. It does not leave for it again before
// Until, a reading of State.Clock: what goes round in circles is nowhere most of the time.
type Missed struct {
	Node  string `json:"node"`
	Until int64  `json:"until"`
}

// missedFor is for how long: 1 hour.
const missedFor = 60 * 60 * 1000

// arrive notes whether the group came to where it was to go.
func (t *step) arrive(g *Group, node string) {
	switch {
	case g.Aim != "" && g.Aim != node:
		g.Missed = &Missed{Node: g.Aim, Until: t.Clock + missedFor}
	case g.Missed != nil && (g.Missed.Node == node || t.Clock >= g.Missed.Until):
		g.Missed = nil
	}
	g.Aim, g.AimReason = "", ""
}

// onceWithin bounds a wish that is for once: 10 minutes. A group that could not follow it for so long is not moved
// when nobody thinks of it any more.
const onceWithin = 10 * 60 * 1000

// longestWish bounds any other: 7 days.
const longestWish = 7 * 24 * 60 * 60 * 1000

// Enable says whether a group is to run at all.
type Enable struct {
	Group string `json:"group"`
	On    bool   `json:"on"`
	By    string `json:"by"`
}

// Maintain begins or ends maintenance of a node or a group, or, with neither, of the cluster.
type Maintain struct {
	Node  string `json:"node,omitempty"`
	Group string `json:"group,omitempty"`
	On    bool   `json:"on"`
	By    string `json:"by"`
}

// MoveGroup has a group go to a node, or away from one; with neither, an earlier wish ends.
type MoveGroup struct {
	Group string `json:"group"`
	To    string `json:"to,omitempty"`
	From  string `json:"from,omitempty"`
	// For is for how many ms the wish lasts; 0 is until the group runs again.
	For int64  `json:"for,omitempty"`
	By  string `json:"by"`
}

// RestartGroup has the holder of a group stop and start it, under a new token.
type RestartGroup struct {
	Group string `json:"group"`
	Token uint64 `json:"token"` // of the grant that is to end: a request that comes twice restarts once
	By    string `json:"by"`
}

// Expire says that a failure is old enough: it no longer keeps the group from the node.
type Expire struct {
	Group string `json:"group"`
	Node  string `json:"node"`
	Count int    `json:"count"` // which one: a further failure has another count
}

func (t *step) enable(c *Enable) error {
	g, err := t.group(c.Group)
	if err != nil {
		return err
	}
	g.Disabled, g.Missed = !c.On, nil
	if c.On {
		g.Halted = ""
	}
	return nil
}

func (t *step) maintain(c *Maintain) error {
	switch {
	case c.Node != "" && c.Group != "":
		return fmt.Errorf("maintenance of node %s or of group %s: %w", c.Node, c.Group, ErrConflict)
	case c.Node != "":
		n, err := t.node(c.Node)
		if err != nil {
			return err
		}
		n.Maintenance = c.On
		if !c.On {
			t.endWaits(c.Node)
		}
	case c.Group != "":
		g, err := t.group(c.Group)
		if err != nil {
			return err
		}
		g.Maintenance = c.On
	default:
		t.Maintenance = c.On
	}
	return nil
}

// endWaits lets the groups go that were lost with a node in maintenance: a later maintenance is not theirs.
func (t *step) endWaits(node string) {
	for _, name := range t.GroupNames() {
		if r := t.Groups[name].Released; r != nil && r.Maintained && r.Proof.Node == node {
			g, ended := *t.Groups[name], *r
			ended.Maintained = false
			g.Released = &ended
			t.setGroup(&g)
		}
	}
}

// Maintained says what keeps the cluster from touching a node, and from shooting it; empty if nothing does.
func (s *State) Maintained(node string) string {
	n := s.Nodes[node]
	switch {
	case s.Maintenance:
		return "the cluster is in maintenance"
	case n != nil && n.Maintenance:
		return node + " is in maintenance"
	}
	return ""
}

// GroupMaintained says what keeps the cluster from touching a group; empty if nothing does. A group that was lost with
// a node in maintenance waits for the end of that, as does one that is held there.
func (s *State) GroupMaintained(g *Group) string {
	switch {
	case s.Maintenance:
		return s.Maintained("")
	case g.Maintenance:
		return "it is in maintenance"
	case g.Grant != nil:
		return s.Maintained(g.Grant.Node)
	case g.Released != nil && g.Released.Maintained:
		return s.Maintained(g.Released.Proof.Node)
	}
	return ""
}

func (t *step) move(c *MoveGroup) error {
	g, err := t.group(c.Group)
	if err != nil {
		return err
	}
	for _, name := range t.GroupNames() { // one that it runs with may be what has to go
		o := t.Groups[name]
		leaves := o.Aim != "" && o.Grant != nil && o.Grant.Phase != Stopping
		if o.Missed == nil && !leaves {
			continue
		}
		o, err := t.group(name)
		if err != nil {
			return err
		}
		if o.Missed = nil; leaves {
			o.Aim, o.AimReason = "", ""
		}
		if name == c.Group {
			g = o
		}
	}
	switch {
	case c.To == "" && c.From == "":
		g.Wish = nil
		return nil
	case c.To == c.From:
		return fmt.Errorf("move %s to %s and away from it: %w", c.Group, c.To, ErrConflict)
	}
	for _, node := range []string{c.To, c.From} {
		if n := t.Nodes[node]; node != "" && (n == nil || n.Role != Member) {
			return fmt.Errorf("move %s: there is no member %q: %w", c.Group, node, ErrUnknown)
		}
	}
	if c.To != "" && !g.Allows(c.To) {
		return fmt.Errorf("move %s: the configuration does not allow it on %s (key allow): %w", c.Group, c.To, ErrConflict)
	}
	w := &Wish{To: c.To, From: c.From, Token: t.LastToken, Once: c.For <= 0, By: Kept(c.By)}
	w.Until = t.Clock + onceWithin
	if !w.Once {
		w.Until = t.Clock + min(c.For, longestWish)
	}
	if gr := g.Grant; w.Once && gr != nil && gr.Phase != Stopping && (w.To == gr.Node || w.To == "" && w.From != gr.Node) {
		w = nil // it is so already
	}
	g.Wish = w
	return nil
}

// restart leaves the stop to the scheduler: groups that run after this one go first.
func (t *step) restart(c *RestartGroup) error {
	g, err := t.group(c.Group)
	if err != nil {
		return err
	}
	gr := g.Grant
	switch why := t.GroupMaintained(g); {
	case gr == nil:
		return fmt.Errorf("restart %s: nobody holds it: %w", c.Group, ErrConflict)
	case gr.Token != c.Token:
		return fmt.Errorf("restart %s with token %d: %s holds it with token %d: %w", c.Group, c.Token, gr.Node, gr.Token, ErrSuperseded)
	case gr.Phase == Stopping:
		return fmt.Errorf("restart %s: it is being stopped (%s): %w", c.Group, gr.StopReason, ErrConflict)
	case why != "":
		return fmt.Errorf("restart %s: %s: %w", c.Group, why, ErrConflict)
	}
	g.Wish = &Wish{To: gr.Node, Token: t.LastToken, Restart: true, Once: true, Until: t.Clock + onceWithin, By: Kept(c.By)}
	return nil
}

func (t *step) expire(c *Expire) error {
	g, err := t.group(c.Group)
	if err != nil {
		return err
	}
	f, ok := g.Failures[c.Node]
	if !ok || f.Count != c.Count || f.Expired {
		return fmt.Errorf("failure %d of %s on %s: %w", c.Count, c.Group, c.Node, ErrSuperseded)
	}
	f.Expired = true
	g.Failures = cloneOrMake(g.Failures)
	g.Failures[c.Node] = f
	return nil
}
