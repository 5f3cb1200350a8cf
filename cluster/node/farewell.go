package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
)

// Stop ends the daemon and leaves the groups as they are. A node that holds nothing takes its leave.
func (n *Node) Stop(ctx context.Context) error {
	d := max(n.Config.Cluster.DetectionTime, time.Second)
	if n.hush != nil {
		farewell, cancel := context.WithTimeout(ctx, farewellTimes*d)
		n.handOver(farewell)
		n.leave(farewell)
		cancel()
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return n.Halt(ctx)
}

// farewellTimes is for how many detection times a node that goes waits until it is heard that it does: there may
// be an election first.
const farewellTimes = 2

// Restart ends the daemon for a moment: the groups stay as they are, and the others hear that, and for how long at
// most, so that nobody misses this node meanwhile.
func (n *Node) Restart(ctx context.Context, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, max(n.Config.Cluster.DetectionTime, time.Second))
	defer cancel()
	if n.hush != nil {
		n.announce(ctx, reason)
		n.handOver(ctx)
	}
	return n.Halt(ctx)
}

// Depart has all groups leave this node in order, as far as that can be, and then ends the daemon: the host may be about
// to go down. It ends early when ctx does.
func (n *Node) Depart(ctx context.Context) error {
	if n.hush != nil {
		n.emptyOut(ctx)
	}
	return n.Stop(context.WithoutCancel(ctx))
}

// absence is for how long a daemon that restarts may be away: ten times what a restart takes on a slow machine.
func absence(detection time.Duration) time.Duration {
	return min(max(5*detection, 15*time.Second), time.Minute)
}

// announce says that this daemon restarts, where anybody would miss it.
func (n *Node) announce(ctx context.Context, reason string) {
	if len(n.replica.State().Holds(n.Self)) == 0 {
		return
	}
	quick, cancel := context.WithTimeout(ctx, n.Config.Cluster.DetectionTime/2)
	defer cancel()
	away := state.Away{Node: n.Self, Boot: n.Boot, Session: n.session, For: absence(n.Config.Cluster.DetectionTime).Milliseconds(), Reason: reason}
	if err := n.peers.report(quick, state.Command{Away: &away}); err != nil {
		n.Log.Info("the restart could not be announced: it has to be over within the detection time", "node", n.Self, "err", err)
	}
}

// handOver gives the leadership away where that is possible at once: the next coordinator acts without waiting for an
// election.
func (n *Node) handOver(ctx context.Context) {
	if !n.replicated.IsCoordinator() {
		return
	}
	quick, cancel := context.WithTimeout(ctx, n.Config.Cluster.DetectionTime/2)
	defer cancel()
	if err := n.replicated.Transfer(quick); err != nil {
		n.Log.Debug("leadership not handed over", "err", err)
	}
}

// leave takes this node out of the cluster, if it holds nothing: then it is not missed.
func (n *Node) leave(ctx context.Context) {
	// A hello after the farewell would join the node again.
	n.hush()
	<-n.hushed
	s := n.replica.State()
	me := s.Nodes[n.Self]
	if me == nil || !me.Up || me.Boot != n.Boot || len(s.Holds(n.Self)) > 0 {
		return
	}
	if err := n.waiveQuorum(); err != nil {
		n.Log.Error("no leave taken", "node", n.Self, "err", err)
		return
	}
	if err := n.takeLeave(ctx); err != nil {
		n.Log.Info("no leave taken", "node", n.Self, "err", err)
		return
	}
	n.handInVote(ctx)
	quick, cancel := context.WithTimeout(ctx, n.Config.Cluster.DetectionTime/2)
	defer cancel()
	if err := n.membership.Leave(quick); err != nil {
		n.Log.Debug("leave not gossiped", "err", err)
	}
}

// takeLeave says so, until it was heard. Where nobody was heard for long there is nobody to say it to.
func (n *Node) takeLeave(ctx context.Context) error {
	d := n.Config.Cluster.DetectionTime
	for {
		err := n.peers.report(ctx, state.Command{Leave: &state.Leave{Node: n.Self, Boot: n.Boot}})
		switch {
		case err == nil, errors.Is(err, state.ErrConflict), errors.Is(err, state.ErrSuperseded), errors.Is(err, state.ErrUnknown):
			return err
		case n.trust.silence() >= d || !sleep(ctx, d/16):
			return err
		}
	}
}

// handInVote waits, where there are two nodes and the other one needs this one's vote, until that one goes on without it.
func (n *Node) handInVote(ctx context.Context) {
	s := n.replica.State()
	if !s.TwoNode || len(s.Nodes) != 2 {
		return
	}
	for slices.Contains(n.voting(), n.Self) && !n.replicated.IsCoordinator() {
		if !sleep(ctx, n.Config.Cluster.DetectionTime/32) {
			n.Log.Warn("the other node may still count on this one's vote", "node", n.Self)
			return
		}
	}
}

// emptyOut returns when nothing that this node started runs on it any more, but for what is in maintenance. The cluster
// has the groups leave in its order; where it cannot be asked, this node stops them by itself.
func (n *Node) emptyOut(ctx context.Context) {
	d := n.Config.Cluster.DetectionTime
	began, said := time.Now(), false
	var waits []string
	for ctx.Err() == nil {
		if !said {
			err := n.peers.report(ctx, state.Command{Leaving: &state.Leaving{Node: n.Self, Boot: n.Boot, Session: n.session}})
			said = err == nil
			if errors.Is(err, state.ErrFormat) {
				n.Log.Warn("the groups stay here: not every node knows yet what a departure is", "node", n.Self, "err", err)
				return
			}
		}
		if silent := n.trust.silence(); silent >= quorumLossTimes*d || !said && time.Since(began) >= quorumLossTimes*d {
			n.groups.depart("hamgr is being stopped, and no coordinator is heard")
		}
		left := n.leftHere()
		if len(left) == 0 && (!said || len(n.unmaintained(n.replica.State().Holds(n.Self))) == 0 || n.groups.departs()) {
			return
		}
		if !slices.Equal(left, waits) {
			n.Log.Info("waiting for groups to leave", "node", n.Self, "groups", left)
			notify(n.Log, "STATUS=Waiting for groups to leave: "+strings.Join(left, ", "))
			waits = left
		}
		if !sleep(ctx, d/16) {
			n.Log.Warn("not everything has left in time", "node", n.Self, "groups", n.leftHere())
		}
	}
}

// resign says, in the background and until it was heard, that this node takes no groups any more, and then lets go of those
// that it has. Were they heard to have stopped before that, they could be granted to it again; and it would never see that
// grant, so that nobody could have them. If it is not heard for long, it lets go all the same.
func (n *Node) resign(why string) {
	late := time.AfterFunc(quorumLossTimes*n.Config.Cluster.DetectionTime, func() { n.groups.depart(why) })
	n.spawn(func() {
		defer late.Stop()
		for n.ctx.Err() == nil {
			err := n.peers.report(n.ctx, state.Command{Leaving: &state.Leaving{Node: n.Self, Boot: n.Boot, Session: n.session}})
			if err == nil || errors.Is(err, state.ErrFormat) {
				n.groups.depart(why)
				return
			}
			if !sleep(n.ctx, n.Config.Cluster.DetectionTime/16) {
				return
			}
		}
	})
}

// leftHere lists the groups of which something was started in this boot and is not stopped, but for those in maintenance.
func (n *Node) leftHere() []string {
	started, err := n.recalled()
	if err != nil {
		n.Log.Error("what was started in this boot cannot be listed", "err", err)
	}
	return n.unmaintained(started)
}

func (n *Node) unmaintained(groups []string) []string {
	s := n.replica.State()
	return slices.DeleteFunc(groups, func(name string) bool {
		g := s.Groups[name]
		return g != nil && s.GroupMaintained(g) != ""
	})
}

// DepartureBudget is how long it may take until all that runs here has stopped: one group after the other, in the
// worst case.
func (n *Node) DepartureBudget() time.Duration {
	budget := 8 * n.Config.Cluster.DetectionTime
	started, _ := n.recalled()
	for _, name := range started {
		g, _ := n.configured(name)
		for _, r := range g.Resources {
			budget += r.StopTimeout
		}
	}
	return budget
}
