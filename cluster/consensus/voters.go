package consensus

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// keepVoters makes the configured voters voters, while this node coordinates: who is
// missing, or came back under a new identity, is added. It runs until the log stops.
//
// It never removes a voter for being away, nor one that is no longer configured: that is
// the operator's to order.
func (l *Log) keepVoters() {
	tick := time.NewTicker(l.timing.Probe)
	defer tick.Stop()
	k := newcomers{targets: make(map[identity]uint64), warned: make(map[identity]bool)}
	for {
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			return
		}
		if !l.IsCoordinator() {
			clear(k.targets)
			clear(k.warned)
			continue
		}
		if err := l.changeOne(k); err != nil {
			l.log.Warn("voter not changed", "node", l.cfg.Self, "err", err)
		}
	}
}

// newcomers is what keepVoters remembers between two looks.
type newcomers struct {
	targets map[identity]uint64 // what a non-voter must have applied before it may vote
	warned  map[identity]bool   // those of another cluster
}

// questionable lists the configured voters that must be asked who they are: those that do
// not vote, and those that do not answer under the identity that is listed. When all is
// well there are none, and nobody is asked anything.
func (l *Log) questionable() []string {
	votes := make(map[string]bool)
	for _, s := range l.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter && l.transport.answers(s.Address) {
			votes[parseIdentity(string(s.ID)).Node] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(l.cfg.Voters), func(node string) bool { return votes[node] })
}

// changeOne makes at most one change of the configuration, and waits for it.
//
// The guard against a change that raced ours is that raft takes one at a time and that this
// loop is the only source: GetConfiguration's index, which would be the library's own
// guard, is always 0 in v1.8.0.
func (l *Log) changeOne(k newcomers) error {
	commit := l.raft.CommitIndex()
	answers := l.askAll(l.ctx, l.questionable(), false)
	// Those who only lack the vote come first: they add to what the cluster can bear.
	for _, node := range l.cfg.Voters {
		a, answered := answers[node]
		id := identity{node, a.ID}
		s, listed := l.server(id)
		if !answered || !listed || s.Suffrage == raft.Voter {
			continue
		}
		target, known := k.targets[id]
		if !known {
			k.targets[id] = commit
			continue
		}
		if a.Applied >= target {
			delete(k.targets, id)
			return l.change("voter added", id, l.raft.AddVoter(s.ID, s.Address, 0, l.timing.Patience))
		}
	}
	_, cluster := l.fsm.position()
	if cluster == "" {
		return nil
	}
	for _, node := range l.cfg.Voters {
		a, answered := answers[node]
		id := identity{node, a.ID}
		if !answered || l.listed(id) {
			continue
		}
		if a.Formed && a.Cluster != cluster {
			if !k.warned[id] {
				l.log.Warn("voter belongs to another cluster", "node", node, "reason", "empty its data folder to let it join this one")
			}
			k.warned[id] = true
			continue
		}
		if done, err := l.replace(id); done || err != nil {
			return err
		}
	}
	return nil
}

// replace adds an identity without a vote, after the one that the node had before is
// removed. That one can never answer again, so its vote is no loss; but the fewer voters are
// listed, the smaller the quorum. So a voter is removed only when the one before it has its
// successor: of an odd number of voters the quorum then stays what it is configured to be.
// done is false when this one must wait.
func (l *Log) replace(id identity) (done bool, err error) {
	servers := l.raft.GetConfiguration().Configuration().Servers
	pending := slices.ContainsFunc(servers, func(s raft.Server) bool { return s.Suffrage != raft.Voter })
	for _, s := range servers {
		old := parseIdentity(string(s.ID))
		if old.Node != id.Node {
			continue
		}
		if s.Suffrage == raft.Voter && pending {
			return false, nil
		}
		if err := l.change("voter removed", old, l.raft.RemoveServer(s.ID, 0, l.timing.Patience)); err != nil {
			return true, err
		}
	}
	return true, l.change("non-voter added", id, l.raft.AddNonvoter(raft.ServerID(id.String()), raft.ServerAddress(id.String()), 0, l.timing.Patience))
}

func (l *Log) change(what string, id identity, f raft.IndexFuture) error {
	ctx, cancel := context.WithTimeout(l.ctx, l.timing.Patience)
	defer cancel()
	if err := await(ctx, f); err != nil {
		return fmt.Errorf("%s %s: %w", what, id, err)
	}
	l.log.Info(what, "node", id.Node, "index", f.Index())
	return nil
}
