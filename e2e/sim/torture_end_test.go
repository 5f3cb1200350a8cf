package sim

import (
	"time"

	"github.com/hamgr/hamgr/cluster/state"
)

// end heals everything, and demands that what can run does: all nodes are in, with the last configuration, and every group that can
// run runs once.
func (x *tale) end() {
	c := x.c()
	x.heals()
	c.speak(state.Version, c.Nodes...)
	for _, n := range c.Nodes {
		h := c.hosts[n]
		h.mu.Lock()
		old := h.process != nil && h.process.setup.Speaks < state.Version && h.process.setup.Speaks > 0
		h.mu.Unlock()
		if old {
			x.restart(n, time.Second)
		}
	}
	looked := time.Now()
	c.WaitFor(20*time.Minute, "all are up, run with the last configuration, and no order keeps anything", func() bool {
		x.follow()
		if time.Since(looked) > time.Minute {
			x.switchOn()
			looked = time.Now()
		}
		return c.up() == len(c.Nodes) && c.follow(c.Site.text()) && x.allOrdersEnded() && x.still() && !x.fencing()
	})
	c.WaitFor(15*time.Minute, "every group that was granted runs", func() bool { return x.grantedRun() })
	c.whole(healLimit, c.Nodes...)
	c.WaitFor(time.Minute, "these vote, and nobody else", func() bool { return c.votes(c.Nodes...) })
	c.WaitFor(20*time.Minute, "every group that has a place runs", func() bool { return x.placedRun() })
}

// switchOn is what only a person can do. Of two nodes, one that does not stop its groups is not shot while the other one's vote would be
// left alone: its order stands until it is rebooted. An operator's order may have been under way when all was healed; and an operation may have
// taken the last majority along, or each of two nodes the other one.
func (x *tale) switchOn() {
	c := x.c()
	quorate := c.Coordinator() != ""
	for _, n := range c.Nodes {
		s, off := c.State(), c.hosts[n].daemon() == nil
		last := s.Operations[lastOrder(s, n)]
		if last != nil && last.Phase == state.Ordered && s.TwoNode && quorate && !off {
			c.note("an operator reboots %s", n)
			c.Reboot(n, time.Second)
			return
		}
		if off && (!quorate || last != nil && !last.Open() && last.By != state.ByCluster) {
			c.note("an operator switches %s on", n)
			c.Boot(n)
		}
		if off && (!quorate || c.State().Nodes[n] == nil || c.State().Nodes[n].Left) {
			c.hosts[n].start()
		}
	}
}

// lastOrder is the newest operation against a node.
func lastOrder(s *state.State, n string) (newest uint64) {
	for id, o := range s.Operations {
		if o.Node == n {
			newest = max(newest, id)
		}
	}
	return newest
}

// fencing reports whether an operation is open.
func (x *tale) fencing() bool {
	for _, o := range x.c().State().Operations {
		if o.Open() {
			return true
		}
	}
	return false
}

func (x *tale) grantedRun() bool {
	c := x.c()
	for _, g := range c.Groups {
		if gr := c.State().Groups[g]; gr == nil || gr.Grant != nil && !c.active(g, gr.Grant) {
			return false
		}
	}
	return true
}

// placedRun reports whether every group runs that no rule and no room keep from it: one without rules, at least.
func (x *tale) placedRun() bool {
	c := x.c()
	for _, g := range c.Site.groups {
		bound := false
		for rule := range g.rules {
			bound = bound || rule != "prefer" && rule != "failback"
		}
		gr := c.State().Groups[g.name]
		if !bound && !x.narrow() && (gr == nil || gr.Grant == nil || !c.active(g.name, gr.Grant)) {
			return false
		}
	}
	return true
}

// narrow reports whether a node bounds what it holds.
func (x *tale) narrow() bool {
	for _, n := range x.c().Site.nodes {
		if n.role == "" && n.capacity > 0 {
			return true
		}
	}
	return false
}
