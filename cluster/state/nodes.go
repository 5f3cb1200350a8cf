package state

import (
	"fmt"
	"reflect"
	"slices"
)

// configure makes the file's nodes and groups the cluster's. What may still hold
// something does not go: a node with an open need is refused, a held group is marked
// as removed until its grant has ended.
func (t *step) configure(c *Configure) error {
	if t.Cluster != "" && t.Cluster != c.Cluster {
		return fmt.Errorf("configure: this cluster is %q, not %q: %w", t.Cluster, c.Cluster, ErrConflict)
	}
	if c.From != 0 && c.From != t.Configured.Index {
		return fmt.Errorf("configure: it was judged against configuration %d, and %d is in force: %w", c.From, t.Configured.Index, ErrSuperseded)
	}
	if c.From != 0 && c.LastToken != t.LastToken {
		return fmt.Errorf("configure: it was judged when token %d was the newest, and that is %d by now: %w", c.LastToken, t.LastToken, ErrSuperseded)
	}
	if err := t.configureNodes(c.Nodes); err != nil {
		return err
	}
	if err := t.configureGroups(c.Groups); err != nil {
		return err
	}
	t.Cluster, t.Digest, t.Text, t.TwoNode = c.Cluster, c.Digest, c.Text, c.TwoNode
	if t.Format() > 1 {
		t.Configured = Configured{Index: t.index, By: clip(c.By, maxText), At: t.at}
	}
	return nil
}

func (t *step) configureNodes(nodes []ConfigNode) error {
	want := map[string]ConfigNode{}
	for _, n := range nodes {
		want[n.Name] = n
	}
	for _, name := range t.NodeNames() {
		if _, ok := want[name]; ok {
			continue
		}
		if held := t.Holds(name); len(held) > 0 || t.Nodes[name].Op != 0 {
			return fmt.Errorf("configure: node %s cannot be removed: it may hold %v: %w", name, held, ErrConflict)
		}
		if why := t.Nodes[name].Unclean; why != "" {
			return fmt.Errorf("configure: node %s cannot be removed: it needs fencing (%s): %w", name, why, ErrConflict)
		}
		if !t.cloned.nodes {
			t.Nodes = cloneOrMake(t.Nodes)
			t.cloned.nodes = true
		}
		delete(t.Nodes, name)
	}
	for _, c := range nodes {
		n := &Node{Name: c.Name}
		if old := t.Nodes[c.Name]; old != nil {
			*n = *old
		}
		if c.Role == Witness && len(t.Holds(c.Name)) > 0 {
			return fmt.Errorf("configure: node %s cannot become a witness while it may hold %v: %w", c.Name, t.Holds(c.Name), ErrConflict)
		}
		if o := t.OpenOperation(c.Name); c.Role == Witness && o != nil && o.Action == FenceRehearse {
			return fmt.Errorf("configure: node %s cannot become a witness while it is rehearsed (operation %d): %w", c.Name, o.ID, ErrConflict)
		}
		n.Role, n.Capacity = c.Role, c.Capacity
		n.Standby = n.Standby && n.Role == Member
		t.setNode(n)
	}
	return nil
}

func (t *step) configureGroups(groups []ConfigGroup) error {
	want := map[string]bool{}
	for _, c := range groups {
		want[c.Name] = true
		g := &Group{Name: c.Name}
		if old := t.Groups[c.Name]; old != nil {
			*g = *old
		}
		if !reflect.DeepEqual(g.Rules, c.Rules) {
			g.Missed = nil
		}
		g.Rules, g.Removed = c.Rules, false
		t.setGroup(g)
	}
	for _, name := range t.GroupNames() {
		if want[name] {
			continue
		}
		g, err := t.group(name)
		if err != nil {
			return err
		}
		g.Removed = true
		t.dropIfRemoved(g)
	}
	return nil
}

// dropIfRemoved forgets a group that is no longer configured and held by nobody.
func (t *step) dropIfRemoved(g *Group) {
	if g.Removed && g.Grant == nil && len(g.Found) == 0 {
		t.ownGroups()
		delete(t.Groups, g.Name)
	}
}

// join takes a node in. A new boot is proof (c): what the old kernel ran died with it.
func (t *step) join(c *Join) error {
	n, err := t.node(c.Node)
	if err != nil {
		return err
	}
	switch {
	case c.Boot == "":
		return fmt.Errorf("join of %s without a boot ID: %w", c.Node, ErrConflict)
	case slices.Contains(n.Ended, c.Boot):
		return fmt.Errorf("join of %s in boot %s: %w", c.Node, c.Boot, ErrBootEnded)
	}
	if err := n.late(c); err != nil {
		return err
	}
	if n.Boot != c.Boot {
		t.endBoot(n, Proof{Kind: NewBoot, Node: n.Name, Boot: n.Boot})
		t.closeByNewBoot(n)
		n.Boot = c.Boot
	}
	if n.Session != c.Session || n.Boot != c.Boot {
		n.Away, n.Leaving = nil, false
	}
	n.Up, n.Left, n.Session, n.Watchdog = true, false, c.Session, c.Watchdog.Kept()
	if c.Machine != (Machine{}) {
		n.Machine = c.Machine.Kept()
	}
	t.noteFound(c)
	return nil
}

// Kept is the machine as the state keeps it: firmware may call itself what is no text, or has no end.
func (m Machine) Kept() Machine { return Machine{UUID: Kept(m.UUID), Serial: Kept(m.Serial)} }

// endBoot voids all that the node held in its current boot, by the proof.
func (t *step) endBoot(n *Node, p Proof) {
	for _, name := range t.GroupNames() {
		old := t.Groups[name]
		held := old.Grant != nil && old.Grant.Node == n.Name
		_, found := old.Found[n.Name]
		if !held && !found {
			continue
		}
		g := *old
		t.setGroup(&g)
		if held {
			release(&g, p)
			g.Released.Maintained = n.Maintenance
		}
		if found {
			g.Found = without(g.Found, n.Name)
		}
		t.dropIfRemoved(&g)
	}
	if n.Boot != "" && !slices.Contains(n.Ended, n.Boot) {
		n.Ended = append(slices.Clone(n.Ended), n.Boot)
		if extra := len(n.Ended) - keepBoots; extra > 0 {
			n.Ended = n.Ended[extra:]
		}
	}
	n.Up, n.Unclean, n.Away, n.Leaving, n.Watchdog = false, "", nil, false, nil
}

// noteFound records what the node found active without holding a grant of this boot.
func (t *step) noteFound(c *Join) {
	for _, name := range t.GroupNames() {
		old := t.Groups[name]
		detail, found := c.Found[name]
		detail = Kept(detail)
		if gr := old.Grant; gr != nil && gr.Node == c.Node && gr.Boot == c.Boot {
			found = false
		}
		was, known := old.Found[c.Node]
		if found == known && detail == was {
			continue
		}
		g := *old
		t.setGroup(&g)
		if found {
			g.Found = cloneOrMake(g.Found)
			g.Found[c.Node] = detail
		} else {
			g.Found = without(g.Found, c.Node)
		}
		t.dropIfRemoved(&g)
	}
}

func (t *step) leave(c *Leave) error {
	n, err := t.node(c.Node)
	if err != nil {
		return err
	}
	if n.Boot != c.Boot || !n.Up {
		return fmt.Errorf("leave of %s in boot %s: %w", c.Node, c.Boot, ErrSuperseded)
	}
	if held := t.Holds(c.Node); len(held) > 0 || n.Op != 0 || n.Unclean != "" {
		return fmt.Errorf("leave of %s: it may still hold %v: %w", c.Node, held, ErrConflict)
	}
	n.Up, n.Left, n.Away, n.Leaving = false, true, nil, false
	return nil
}

// standby is an operator's word on whether the node may hold groups. What it holds now is the
// scheduler's to stop.
func (t *step) standby(c *Standby) error {
	n, err := t.node(c.Node)
	if err != nil {
		return err
	}
	if n.Role != Member {
		return fmt.Errorf("standby of %s: a %s holds no groups anyway: %w", c.Node, n.Role, ErrConflict)
	}
	if o := t.OpenOperation(c.Node); !c.On && o != nil && o.Action == FenceRehearse && o.CutsPower() {
		return fmt.Errorf("end standby of %s: operation %d (%s, %s) is under way: %w", c.Node, o.ID, o.Action, o.Phase, ErrConflict)
	}
	n.Standby = c.On
	return nil
}

func without[V any](m map[string]V, key string) map[string]V {
	if _, ok := m[key]; !ok {
		return m
	}
	c := cloneOrMake(m)
	delete(c, key)
	if len(c) == 0 {
		return nil
	}
	return c
}
