package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/state"
)

var applies = flag.Int("applies", 1, "how many clusters have their configuration changed 50 times, at random")

// TestRandomChangesOfTheConfiguration changes a running cluster 50 times: nodes come and go, and so do addresses, groups, rules,
// resources and devices; the pace changes. Meanwhile daemons restart, and now and then the coordinator dies. What is refused
// changes nothing. What is accepted reaches every node, and nothing that runs is stopped, moved or shot for it.
func TestRandomChangesOfTheConfiguration(t *testing.T) {
	eachSeed(t, *applies, randomChanges)
}

func randomChanges(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	s := threeNodes()
	s.groups[0].rules, s.groups[1].rules = map[string]string{}, map[string]string{}
	run(t, Options{Site: s, Seed: seed, BootTime: 3 * time.Second, Spares: []string{"delta", "epsilon", "zeta"}}, func(t *testing.T, c *Cluster) {
		_, stop := c.keepLedger()
		defer stop()
		m := &mover{c: c, rng: rng}
		for i := range 50 {
			time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Second))))
			m.turn()
			if c.Problems() != nil || t.Failed() {
				return
			}
			if i%10 == 9 {
				m.settle()
			}
		}
		t.Logf("%d changes applied, %d refused, %d of unknown outcome; %d coordinators died", m.applied, m.refused, m.unknown, m.died)
		if m.applied < 10 || m.refused < 3 {
			t.Errorf("%d applied, %d refused: too few of one kind", m.applied, m.refused)
		}
	})
}

// mover changes a cluster's configuration.
type mover struct {
	c   *Cluster
	rng *rand.Rand

	said  string // what is wanted, in words
	hasty bool   // no change waits for anything

	applied, refused, unknown, died int
}

// settle waits until all nodes are in, and all that may run does.
func (m *mover) settle() {
	c := m.c
	for _, n := range c.Nodes {
		c.Boot(n)
	}
	c.WaitFor(5*time.Minute, "all are up, and run with the configuration", func() bool {
		return c.up() == len(c.Nodes) && c.follow(c.Site.text())
	})
	c.WaitFor(5*time.Minute, "every group that can run does", func() bool {
		s := c.State()
		for _, g := range c.Groups {
			if gr := s.Groups[g]; gr == nil || gr.Grant != nil && gr.Grant.Phase != state.Started {
				return false
			}
		}
		return true
	})
}

// turn applies one change, perhaps while something fails.
func (m *mover) turn() {
	c := m.c
	m.settle()
	time.Sleep(time.Duration(m.rng.Int64N(int64(2 * time.Second))))
	wanted := m.draw()
	before, events, started := c.State(), len(c.Storage.Events()), m.started()
	trouble := m.rng.IntN(8)
	at := c.Nodes[m.rng.IntN(len(c.Nodes))]
	first := c.Coordinator()
	switch trouble {
	case 0: // the coordinator's daemon restarts in the middle
		c.wg.Go(func() {
			time.Sleep(time.Duration(m.rng.Int64N(int64(50 * time.Millisecond))))
			c.RestartDaemon(first, 200*time.Millisecond)
		})
		if at == first {
			at = other(c, first, first)
		}
	case 1: // it dies
		c.Crash(first)
		m.died++
		if at == first {
			at = other(c, first, first)
		}
	}
	res, err := c.apply(at, wanted)
	why, known := refused(res, err)
	c.note("%s applies %q: applied %v, refused %q, %v", at, m.said, res.Applied, why, known)
	if !known { // the log tells
		m.unknown++
		time.Sleep(3 * c.Detection)
	}
	if after := c.State(); res.Applied || !known && after.Text == wanted.text() {
		m.applied++
		m.adopt(wanted)
	} else if m.refused++; after.Text != before.Text || after.Configured != before.Configured {
		c.t.Errorf("refused, and yet changed: %s", why)
	}
	if trouble == 1 {
		return
	}
	time.Sleep(3 * c.Detection)
	for _, e := range c.disturbed(events, started...) {
		if e.What != "starting" && e.What != "started" {
			c.t.Errorf("%q: %v\n%s", m.said, e, c.Report())
			return
		}
	}
	if c.State().LastOp != before.LastOp {
		c.t.Errorf("%q: somebody is to be fenced\n%s", m.said, c.Report())
	}
}

// started are the groups that run now.
func (m *mover) started() (all []string) {
	for name, g := range m.c.State().Groups {
		if g.Grant != nil {
			all = append(all, name)
		}
	}
	return all
}

// adopt has the test go by the new configuration: nodes that came are installed, and those that went are ended.
func (m *mover) adopt(s *site) {
	c := m.c
	old := c.Nodes
	c.adopt(s)
	for _, n := range s.names() {
		if !slices.Contains(old, n) {
			c.install(n)
		}
	}
	for _, n := range old {
		if !slices.Contains(s.names(), n) {
			time.Sleep(3 * c.Detection)
			if len(c.held(n)) > 0 {
				c.t.Errorf("%s was removed, and runs %v", n, c.held(n))
			}
			c.Crash(n)
		}
	}
}

// held is what is active on a host.
func (c *Cluster) held(host string) (all []string) {
	for _, h := range c.Storage.Active() {
		if h.Host == host {
			all = append(all, h.String())
		}
	}
	return all
}

// draw makes another configuration of the present one.
func (m *mover) draw() *site {
	for {
		s := m.c.Site.clone()
		m.said = ""
		for range 1 + m.rng.IntN(2) {
			m.mutate(s)
		}
		if s.text() != m.c.Site.text() {
			return s
		}
	}
}

func (m *mover) say(format string, args ...any) { m.said += fmt.Sprintf(format, args...) + "; " }

func (m *mover) mutate(s *site) {
	rng := m.rng
	node := &s.nodes[rng.IntN(len(s.nodes))]
	group := &siteGroup{rules: map[string]string{}}
	if len(s.groups) > 0 {
		group = &s.groups[rng.IntN(len(s.groups))]
	}
	switch rng.IntN(13) {
	case 0:
		i := rng.IntN(3)
		name := []string{"delta", "epsilon", "zeta"}[i]
		if slices.Contains(s.names(), name) {
			return
		}
		n := siteNode{name: name, number: 4 + i, links: []int{0, 1}, devices: 1}
		if rng.IntN(3) == 0 {
			n.role = "witness"
		}
		s.nodes = append(s.nodes, n)
		m.say("node %s added, %s", name, n.role)
	case 1:
		if len(s.nodes) > 3 {
			name := node.name
			s.nodes = slices.DeleteFunc(s.nodes, func(n siteNode) bool { return n.name == name })
			for i := range s.groups {
				delete(s.groups[i].rules, "prefer")
				delete(s.groups[i].rules, "allow")
			}
			m.say("node %s removed", name)
		}
	case 2, 3:
		node.links = [][]int{{0}, {1}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}}[rng.IntN(6)]
		m.say("%s on links %v", node.name, node.links)
	case 4:
		s.detection = []time.Duration{time.Second, 1500 * time.Millisecond, 2 * time.Second, 3 * time.Second}[rng.IntN(4)]
		m.say("detection time %s", s.detection)
	case 5:
		name := fmt.Sprintf("more%d", rng.IntN(4))
		if s.group(name) == nil {
			s.groups = append(s.groups, siteGroup{name, []string{m.disk()}, map[string]string{}})
			m.say("group %s added, on %v", name, s.group(name).disks)
		}
	case 6:
		name := group.name
		s.groups = slices.DeleteFunc(s.groups, func(g siteGroup) bool { return g.name == name })
		for i := range s.groups {
			for _, rule := range []string{"after", "with", "apart"} {
				delete(s.groups[i].rules, rule)
			}
		}
		m.say("group %s removed", name)
		if !m.hasty && rng.IntN(2) == 0 && m.c.State().Groups[name] != nil { // in order
			m.disable(name)
		}
	case 7:
		disk := m.disk()
		if !slices.Contains(group.disks, disk) {
			group.disks = append(group.disks, disk)
			m.say("%s gets %s", group.name, disk)
		}
	case 8:
		if len(group.disks) > 1 {
			i := rng.IntN(len(group.disks))
			m.say("%s loses %s", group.name, group.disks[i])
			group.disks = slices.Delete(group.disks, i, i+1)
		}
	case 9, 10:
		m.rule(s, group)
	case 11:
		if node.role == "" {
			node.capacity = rng.IntN(5)
			m.say("%s has capacity %d", node.name, node.capacity)
		}
	case 12:
		if node.role == "" {
			node.devices = 3 - node.devices
			m.say("%s has %d devices", node.name, node.devices)
		}
	}
}

func (m *mover) disk() string { return fmt.Sprintf("sd%c", 'a'+m.rng.IntN(8)) }

// rule changes one rule of a group.
func (m *mover) rule(s *site, g *siteGroup) {
	if g.name == "" {
		return
	}
	var members []string
	for _, n := range s.nodes {
		if n.role == "" {
			members = append(members, n.name)
		}
	}
	a, b := members[m.rng.IntN(len(members))], members[m.rng.IntN(len(members))]
	some := fmt.Sprintf("[%q]", a)
	if a != b {
		some = fmt.Sprintf("[%q, %q]", a, b)
	}
	key := []string{"prefer", "allow", "apart", "with", "after", "weight", "failback"}[m.rng.IntN(7)]
	value := some
	switch key {
	case "apart", "with", "after":
		o := s.groups[m.rng.IntN(len(s.groups))].name
		if o == g.name {
			return
		}
		value = fmt.Sprintf("[%q]", o)
	case "weight":
		value = fmt.Sprint(1 + m.rng.IntN(3))
	case "failback":
		value = []string{`"never"`, `"always"`}[m.rng.IntN(2)]
	}
	if m.rng.IntN(3) == 0 {
		delete(g.rules, key)
		value = "none"
	} else {
		g.rules[key] = value
	}
	m.say("%s: %s %s", g.name, key, value)
}

// disable has an operator stop a group, and waits for it.
func (m *mover) disable(group string) {
	c := m.c
	ctx := c.t.Context()
	if _, err := c.Operator(c.Coordinator()).Change(ctx, api.ChangeRequest{Verb: api.ChangeDisable, Group: group, By: "anna"}); err != nil {
		return
	}
	c.WaitFor(time.Minute, group+" is stopped", func() bool { g := c.State().Groups[group]; return g == nil || g.Grant == nil })
	m.say("%s was disabled before", group)
}
