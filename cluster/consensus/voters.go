package consensus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// keepVoters makes the configured voters voters, and no others, while this node coordinates:
// who is missing, or came back under a new identity, is added, and who is no longer
// configured is removed. It runs until the log stops. It never removes a configured voter for being away;
// who took its leave and is parked keeps its place without the vote.
func (l *Log) keepVoters() {
	tick := time.NewTicker(l.timing.Probe)
	defer tick.Stop()
	k := &newcomers{targets: make(map[identity]uint64)}
	for {
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			return
		}
		if !l.IsCoordinator() {
			clear(k.targets)
			k.remarks = nil
			l.setRemarks(nil)
			continue
		}
		if err := l.changeOne(k); err != nil {
			l.log.Warn("voter not changed", "node", l.cfg.Self, "err", err)
		}
		l.setRemarks(k.remarks)
	}
}

func (l *Log) setRemarks(remarks map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remarks = maps.Clone(remarks)
}

// newcomers is what keepVoters remembers between two looks.
type newcomers struct {
	targets map[identity]uint64 // what a non-voter must have applied before it may vote
	remarks map[string]string   // why a node cannot be added
	former  map[string]string   // those of the look before
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
func (l *Log) changeOne(k *newcomers) error {
	k.former, k.remarks = k.remarks, make(map[string]string)
	parked := l.parked()
	if done, err := l.park(parked); done || err != nil {
		return err
	}
	commit := l.raft.CommitIndex()
	answers := l.askAll(l.ctx, l.questionable(), false)
	// Those who only lack the vote come first: they add to what the cluster can bear.
	for _, node := range l.cfg.Voters {
		a, answered := answers[node]
		id := identity{node, a.ID}
		s, listed := l.server(id)
		if !answered || !listed || s.Suffrage == raft.Voter || slices.Contains(parked, node) {
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
	own := l.standing()
	if own.cluster == "" {
		return nil
	}
	for _, node := range l.cfg.Voters {
		a, answered := answers[node]
		id := identity{node, a.ID}
		if !answered || l.listed(id) {
			continue
		}
		if text := own.unfit(id, a); text != "" {
			l.mark(k, node, text)
			continue
		}
		if done, err := l.replace(id); done || err != nil {
			return err
		}
	}
	return l.removeOne()
}

func (l *Log) parked() []string {
	if l.cfg.Parked == nil {
		return nil
	}
	return l.cfg.Parked()
}

// park takes the vote of one that took its leave. raft counts the new voters from the moment at which the leader has
// the change in its log, so that the one that goes need not be there any more to agree; the majorities before and
// after have this leader in common.
func (l *Log) park(parked []string) (done bool, err error) {
	for _, s := range l.raft.GetConfiguration().Configuration().Servers {
		id := parseIdentity(string(s.ID))
		if s.Suffrage != raft.Voter || id == l.id || !slices.Contains(parked, id.Node) {
			continue
		}
		return true, l.change("voter that left parked", id, l.raft.DemoteVoter(s.ID, 0, l.timing.Patience))
	}
	return false, nil
}

// unfit tells why an identity that answers cannot be added; empty when it can. An old log
// must not come near ours: raft would take it for a worse copy, and cut it; and with a higher
// term it would depose leader after leader.
func (own standing) unfit(id identity, a answer) string {
	switch {
	case a.Starting:
		return "is starting"
	case dismissed(own.forks, id):
		return "was dismissed, and has not set its data aside yet"
	case a.Formed && a.Cluster != own.cluster:
		return "belongs to another cluster; empty its data folder to let it join this one"
	case a.Formed && a.Line != lineOf(own.forks):
		return "is on another line of the cluster's history; move the data folder of the wrong one away"
	default:
		return ""
	}
}

// mark notes what is wrong with a node, and logs it once.
func (l *Log) mark(k *newcomers, node, text string) {
	if k.former[node] != text {
		l.log.Warn("voter not added", "node", node, "reason", text)
	}
	k.remarks[node] = text
}

// removeOne removes one server whose node is not configured, if that is safe now.
//
// It comes last: whoever is configured and can be added has been. It waits while one that
// answers still lacks its vote. A voter goes only if those who remain need no fewer votes than
// the configured ones would, and if enough of them answer to commit that and what follows; so
// the dead go before the living. This node itself is always configured, as far as it knows.
func (l *Log) removeOne() error {
	servers := l.raft.GetConfiguration().Configuration().Servers
	var leaving []raft.Server
	total, alive, pending := 0, 0, false
	for _, s := range servers {
		configured := slices.Contains(l.cfg.Voters, parseIdentity(string(s.ID)).Node)
		switch {
		case !configured && s.Suffrage != raft.Voter: // it counts for nothing
			return l.remove(s)
		case !configured:
			leaving = append(leaving, s)
		}
		if s.Suffrage == raft.Voter {
			total++
			if l.hears(s) {
				alive++
			}
		} else if l.hears(s) {
			pending = true
		}
	}
	slices.SortStableFunc(leaving, func(a, b raft.Server) int {
		switch heard := l.hears(a); {
		case heard == l.hears(b):
			return 0
		case heard:
			return 1
		default:
			return -1
		}
	})
	if pending || len(leaving) == 0 {
		return nil
	}
	first := leaving[0]
	if l.hears(first) {
		alive--
	}
	if q := quorum(total - 1); q < quorum(len(l.cfg.Voters)) || alive < q {
		return nil
	}
	return l.remove(first)
}

func (l *Log) remove(s raft.Server) error {
	return l.change("voter that is not configured removed", parseIdentity(string(s.ID)), l.raft.RemoveServer(s.ID, 0, l.timing.Patience))
}

// hears tells whether a server is this node, or answered its last heartbeat.
func (l *Log) hears(s raft.Server) bool {
	id := parseIdentity(string(s.ID))
	return id == l.id || id.ID != absent && l.transport.answers(s.Address)
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
