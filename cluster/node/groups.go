package node

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
)

// groups keeps what runs on this node in step with the grants that this boot of it holds.
type groups struct {
	n      *Node
	wakeup chan struct{}

	mu       sync.Mutex
	runners  map[string]*runner // by group; one that is ending stays until it has ended
	letGo    map[string]uint64  // by group, the newest token whose stop was reported: it is never used again
	banished string             // why this node must let go of everything; empty if it need not
	leaves   string             // why it lets go of all but what is in maintenance; empty if it does not
}

func newGroups(n *Node) *groups {
	return &groups{n: n, wakeup: make(chan struct{}, 1), runners: map[string]*runner{}, letGo: map[string]uint64{}}
}

func (gs *groups) wake() {
	select {
	case gs.wakeup <- struct{}{}:
	default:
	}
}

// outcast stops everything: the cluster has proof that this boot is over, and may have
// granted the groups elsewhere already.
func (gs *groups) outcast(err error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.banished == "" {
		gs.n.Log.Error("this boot is proven over, yet it runs: letting go of everything", "node", gs.n.Self, "boot", gs.n.Boot, "err", err)
		gs.banished = err.Error()
	}
	gs.wake()
}

// depart stops everything but what is in maintenance, for good: nobody can be asked.
func (gs *groups) depart(why string) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.leaves = cmp.Or(gs.leaves, why)
	gs.wake()
}

// departs reports whether it does.
func (gs *groups) departs() bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.leaves != ""
}

// run reconciles until ctx ends. It returns when every runner has ended; the groups
// themselves go on.
func (gs *groups) run(ctx context.Context) {
	ticker := time.NewTicker(gs.n.Config.Cluster.DetectionTime / 4)
	defer ticker.Stop()
	for ctx.Err() == nil {
		gs.reconcile(ctx)
		gs.n.progress.beat(loopGroups)
		select {
		case <-ctx.Done():
		case <-gs.wakeup:
		case <-ticker.C:
		}
	}
	gs.n.progress.over(loopGroups)
	gs.mu.Lock()
	all := make([]*runner, 0, len(gs.runners))
	for _, r := range gs.runners {
		all = append(all, r)
	}
	gs.mu.Unlock()
	for _, r := range all {
		<-r.ended
	}
}

func (gs *groups) reconcile(ctx context.Context) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	s := gs.n.replica.State()
	lonely := gs.lonely()
	for name, r := range gs.runners {
		if r.over() {
			delete(gs.runners, name)
			gs.letGo[name] = max(gs.letGo[name], r.grant.Token)
			gs.n.probes.look()
			continue
		}
		r.maintained.set(maintained(s, r))
		if why := gs.mustEnd(s, r, lonely); why != "" {
			r.stop(why)
		}
	}
	gs.letGoRecalled(ctx, lonely)
	gs.n.dog.Excuse(gs.leftAlone(s))
	// Only what was committed before this node asked is known to be the present.
	if !gs.n.trust.now() || gs.banished != "" || gs.leaves != "" || lonely != "" {
		return
	}
	for _, name := range s.GroupNames() {
		gr := s.Groups[name].Grant
		if gr == nil || gr.Node != gs.n.Self || gr.Boot != gs.n.Boot || gs.runners[name] != nil {
			continue
		}
		// The report may be committed and just not applied here yet.
		if gr.Token <= gs.letGo[name] {
			continue
		}
		gr = gs.unlessStale(s, name, gr)
		if gr.Phase != state.Stopping && gs.n.aboutToChange(s) {
			if h, err := gs.n.recall(name); err == nil && h == nil {
				continue // what is not started yet starts as the new configuration says
			}
		}
		gs.launch(ctx, name, *gr, false)
	}
}

// mustEnd says why a runner has to stop its group; empty if it need not.
func (gs *groups) mustEnd(s *state.State, r *runner, lonely string) string {
	g := s.Groups[r.group.Name]
	switch {
	case gs.banished != "":
		return gs.banished
	case g == nil || g.Grant == nil || g.Grant.Token != r.grant.Token:
		return fmt.Sprintf("the grant with token %d is over", r.grant.Token)
	case g.Grant.Phase == state.Stopping:
		return g.Grant.StopReason
	case maintained(s, r) != "":
		return ""
	case gs.leaves != "":
		return gs.leaves
	}
	return lonely
}

// maintained says why the cluster leaves a runner's group alone; empty if it does not.
func maintained(s *state.State, r *runner) string {
	g := s.Groups[r.group.Name]
	if g == nil {
		return ""
	}
	return s.GroupMaintained(g)
}

// quorumLossTimes is for how many detection times a node goes on without hearing a coordinator.
// A coordinator that failed is followed within about one.
const quorumLossTimes = 2

// lonely says that this node has to let go because it hears no coordinator (S5), and others may have one. Of two nodes
// without a witness the one that holds goes on, as does the other one: neither can take over without proof that this
// one is off.
func (gs *groups) lonely() string {
	silent := gs.n.trust.silence()
	switch {
	case gs.n.Config.Cluster.OnQuorumLoss == "freeze" || silent < quorumLossTimes*gs.n.Config.Cluster.DetectionTime:
		return ""
	case gs.n.wasQuorate() && gs.n.known().TwoNode:
		return ""
	case gs.n.isolation.nobodyElse():
		return ""
	}
	return fmt.Sprintf("no coordinator heard for %s", silent.Round(time.Millisecond))
}

// letGoRecalled stops what an earlier daemon of this boot started, where that one would have let go by now: this one heard
// that its boot is over, or hears no coordinator at all.
func (gs *groups) letGoRecalled(ctx context.Context, lonely string) {
	why := cmp.Or(gs.banished, gs.leaves)
	if why == "" {
		if lonely == "" {
			return
		}
		if _, known := gs.n.replicated.Coordinator(); known {
			return // it is heard, and answers later
		}
		why = lonely
	}
	started, err := gs.n.recalled()
	if err != nil {
		gs.n.Log.Error("what was started in this boot cannot be listed", "err", err)
	}
	for _, name := range started {
		if gs.runners[name] != nil {
			continue
		}
		h, err := gs.n.recall(name)
		if err != nil || h == nil || h.Maintained && gs.banished == "" || h.Token <= gs.letGo[name] {
			continue
		}
		gs.launch(ctx, name, state.Grant{Node: gs.n.Self, Boot: gs.n.Boot, Token: h.Token, Phase: state.Stopping, StopReason: why}, true)
	}
}

// unlessStale has nothing started by a grant that is older than a forced quorum: on the history that was left behind the group
// may have had greater tokens since. What runs under it goes on.
func (gs *groups) unlessStale(s *state.State, name string, gr *state.Grant) *state.Grant {
	if gr.Phase == state.Stopping || !s.Stale(gr) {
		return gr
	}
	if h, err := gs.n.recall(name); err != nil || h != nil && h.Token == gr.Token {
		return gr
	}
	stop := *gr
	stop.Phase, stop.StopReason = state.Stopping, "quorum was forced since it was granted, and it does not run: it needs a new token"
	return &stop
}

func (gs *groups) launch(ctx context.Context, name string, gr state.Grant, recalled bool) {
	r := newRunner(gs.n, name, gr)
	r.recalled = recalled
	if gr.Phase == state.Stopping {
		r.stop(gr.StopReason)
	}
	r.maintained.set(maintained(gs.n.replica.State(), r))
	gs.runners[name] = r
	gs.n.spawn(func() {
		r.run(ctx)
		gs.wake()
	})
}

// runner gives the group's runner, or nil.
func (gs *groups) runner(group string) *runner {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.runners[group]
}

// drives reports whether the group is driven here by a grant. What is only being let go of may not be granted as far as the
// cluster knows, and stays found until it is gone.
func (gs *groups) drives(group string) bool {
	r := gs.runner(group)
	return r != nil && !r.recalled
}
