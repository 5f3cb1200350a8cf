package consensus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// formed tells whether this node has a log, and so belongs to a cluster.
func (l *Log) formed() bool {
	if !l.runs() {
		return l.past.formed
	}
	return l.raft.LastIndex() > 0
}

// listed tells whether an identity is in this node's configuration.
func (l *Log) listed(id identity) bool {
	_, found := l.server(id)
	return found
}

func (l *Log) server(id identity) (raft.Server, bool) {
	for _, s := range l.raft.GetConfiguration().Configuration().Servers {
		if string(s.ID) == id.String() {
			return s, true
		}
	}
	return raft.Server{}, false
}

// knowsCluster tells whether another voter said that it belongs to one.
func (l *Log) knowsCluster() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.answers {
		if a.Formed {
			return true
		}
	}
	return false
}

// form brings an empty node into a cluster: it waits to be added to one that exists, or
// helps to form one. In a node that has a log it watches for having been left out. It
// runs until the log stops.
func (l *Log) form() {
	pause := time.NewTimer(0)
	defer pause.Stop()
	var quorate, orphan time.Time // since when a majority is empty; no leader is known
	for {
		select {
		case <-pause.C:
		case <-l.ctx.Done():
			return
		}
		if l.formed() {
			l.askUnheard()
			orphan = l.watchConfiguration(orphan)
			pause.Reset(l.timing.Probe)
			continue
		}
		answers := l.askAll(l.ctx, l.cfg.Voters, false)
		l.mu.Lock()
		for node, a := range answers {
			l.answers[node] = a
		}
		l.mu.Unlock()
		waiting, ready := l.judge(answers)
		switch {
		case !ready:
			quorate = time.Time{}
		case quorate.IsZero():
			quorate = time.Now()
		}
		// With all voters there is nothing to wait for; with a majority, give the rest a moment.
		if ready && (l.cfg.Single || len(answers) == len(l.cfg.Voters)-1 || time.Since(quorate) >= l.timing.Patience/2) {
			waiting = l.found(answers)
		}
		l.setWaiting(waiting)
		pause.Reset(l.timing.Retry)
	}
}

func (l *Log) setWaiting(s string) {
	l.mu.Lock()
	changed := l.waiting != s
	l.waiting = s
	l.mu.Unlock()
	if !changed {
		return
	}
	if s != "" {
		l.log.Info("waiting for a cluster", "node", l.cfg.Self, "reason", s)
	}
	l.notify()
}

// judge tells what an empty node waits for, and whether it is the one to form the cluster.
func (l *Log) judge(answers map[string]answer) (waiting string, ready bool) {
	empty, silent := []string{l.cfg.Self}, []string{}
	for _, node := range l.cfg.Voters {
		a, answered := answers[node]
		switch {
		case node == l.cfg.Self:
		case !answered:
			silent = append(silent, node)
		case a.Formed:
			return fmt.Sprintf("waits for the coordinator of the cluster that %s belongs to", node), false
		default:
			empty = append(empty, node)
		}
	}
	l.promising.Lock()
	promised := l.promised
	l.promising.Unlock()
	if promised != nil && promised.To != l.id {
		if a, ok := answers[promised.To.Node]; ok && a.ID != promised.To.ID {
			return fmt.Sprintf("has given its promise to %s, and %s came back without its data as %s; empty this node's data folder if the cluster never formed",
				promised.To, a.Node, a.ID), false
		}
		return fmt.Sprintf("has given its promise to %s; waits for %s to form the cluster", promised.To, promised.To.Node), false
	}
	if l.cfg.Single {
		return "forms a cluster alone", true
	}
	if missing := quorum(len(l.cfg.Voters)) - len(empty); missing > 0 {
		return fmt.Sprintf("waits for %d more empty %s of %s%s", missing, plural(missing, "voter"), strings.Join(l.cfg.Voters, ", "), without(silent)), false
	}
	if first := slices.Min(empty); first != l.cfg.Self {
		return fmt.Sprintf("waits for %s, the first of the empty voters by name, to form the cluster", first), false
	}
	return "forms the cluster as soon as the others had a moment to answer" + without(silent), true
}

func quorum(voters int) int { return voters/2 + 1 }

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func without(silent []string) string {
	switch len(silent) {
	case 0:
		return ""
	case 1:
		return "; " + silent[0] + " does not answer"
	default:
		return "; " + strings.Join(silent, ", ") + " do not answer"
	}
}

// found collects promises, gives its own last, and makes the first entry of the log. Its
// own comes last, so that a node which finds no majority can still promise another.
func (l *Log) found(answers map[string]answer) (waiting string) {
	promisers, refusals := []identity{}, []string{}
	if !l.cfg.Single {
		asked := make([]string, 0, len(answers))
		for node := range answers {
			asked = append(asked, node)
		}
		for _, a := range l.askAll(l.ctx, asked, true) {
			if a.Refused == "" {
				promisers = append(promisers, identity{a.Node, a.ID})
			} else {
				refusals = append(refusals, a.Refused)
			}
		}
		if missing := quorum(len(l.cfg.Voters)) - 1 - len(promisers); missing > 0 {
			slices.Sort(refusals)
			return fmt.Sprintf("waits for %d more %s to form the cluster: %s", missing, plural(missing, "promise"), strings.Join(refusals, "; "))
		}
	}
	if refused := l.promise(l.id, l.cfg.Voters); refused != "" {
		return "cannot form the cluster: " + refused
	}
	if err := l.bootstrap(append(promisers, l.id)); err != nil {
		return "cannot form the cluster: " + err.Error()
	}
	return ""
}

// bootstrap writes the first configuration. Voters that gave no promise are in it under an
// identity that nobody has: they count for the quorum, as configured voters do, until
// the leader replaces them by who they turn out to be.
func (l *Log) bootstrap(promisers []identity) error {
	var c raft.Configuration
	for _, node := range l.cfg.Voters {
		id := identity{node, absent}
		if i := slices.IndexFunc(promisers, func(p identity) bool { return p.Node == node }); i >= 0 {
			id = promisers[i]
		} else if l.cfg.Single {
			continue
		}
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id.String()), Address: raft.ServerAddress(id.String())})
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.timing.Patience)
	defer cancel()
	if err := await(ctx, l.raft.BootstrapCluster(c)); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
		return err
	} else if err != nil && !l.formed() {
		return errors.New("the data folder holds a term or vote without a log; empty it")
	}
	l.log.Info("cluster formed", "node", l.cfg.Self, "voters", len(promisers))
	return nil
}

// watchConfiguration tells a node that has a log, but hears of no leader, when the others
// went on without it: raft would never let it know. Followers lag, so it takes their
// word only after some time without a leader. It returns since when there is none.
func (l *Log) watchConfiguration(since time.Time) time.Time {
	if address, _ := l.raft.LeaderWithID(); address != "" {
		l.setStanding(false, false)
		l.setWaiting("")
		return time.Time{}
	}
	if since.IsZero() {
		return time.Now()
	}
	_, cluster := l.fsm.position()
	own := l.standing()
	removed := false
	answers := l.askAll(l.ctx, l.cfg.Voters, false)
	waiting := "waits for a coordinator" + without(l.silent(answers))
	stranded := own.stranded(answers)
	if stranded != "" {
		waiting = stranded
	}
	for _, node := range l.cfg.Voters {
		a, ok := answers[node]
		switch {
		case !ok || !a.Formed || time.Since(since) < 3*l.timing.Patience:
		case cluster != "" && a.Cluster != "" && a.Cluster != cluster:
			waiting = fmt.Sprintf("%s belongs to another cluster; the data folder of one of them must be emptied", node)
		case own.judgeLine(l.id, a) == besides:
			waiting = otherLine(node)
		case a.Gone && a.Applied >= l.raft.AppliedIndex():
			removed = true
			waiting = fmt.Sprintf("%s no longer lists this node as %s: it was removed; empty its data folder to let it return", node, l.id)
		}
	}
	if len(answers) == 0 && l.isRemoved() {
		return since // what was said still holds: strangers are answered now and then only
	}
	l.setStanding(removed, stranded != "")
	l.setWaiting(waiting)
	return since
}

// stranded says why the voters that are left can never be a majority again: the others are back with empty data folders, and
// cannot be taken in by a minority. Empty where they may be, as soon as all of them are heard.
func (own standing) stranded(answers map[string]answer) string {
	total, empty := voters(own.servers), []string{}
	for _, s := range own.servers.Servers {
		id := parseIdentity(string(s.ID))
		if a, ok := answers[id.Node]; ok && s.Suffrage == raft.Voter && a.ID != id.ID && !a.Formed && !a.Starting {
			empty = append(empty, id.Node)
		}
	}
	left := total - len(empty)
	if len(empty) == 0 || left >= quorum(total) {
		return ""
	}
	return fmt.Sprintf("%s came back with an empty data folder, and so without a vote: of %d voters %d can vote, and %d are needed", strings.Join(empty, ", "), total, left, quorum(total))
}

func (l *Log) isRemoved() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.removed
}

func otherLine(node string) string {
	return fmt.Sprintf("%s is on another line of this cluster's history; move the data folder of the wrong one away", node)
}

func (l *Log) setStanding(removed, stranded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removed, l.stranded = removed, stranded
}

// askUnheard asks those who did not answer when this node started: they may know that it was
// dismissed, or has forgotten what it did.
func (l *Log) askUnheard() {
	var nodes []string
	l.mu.Lock()
	for node, unheard := range l.unheard {
		if unheard {
			nodes = append(nodes, node)
		}
	}
	l.mu.Unlock()
	if len(nodes) > 0 {
		l.askAll(l.ctx, nodes, false)
	}
}

func (l *Log) silent(answers map[string]answer) []string {
	var silent []string
	for _, node := range l.cfg.Voters {
		if _, ok := answers[node]; !ok && node != l.cfg.Self {
			silent = append(silent, node)
		}
	}
	return silent
}
