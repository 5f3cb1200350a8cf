package consensus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"
)

// Refusals of Alone. Nothing happened.
var (
	// ErrNeverMember means that this node has no log: it was never part of a cluster.
	ErrNeverMember = errors.New("this node was never part of a cluster")
	// ErrNotVoter means that this node's configuration does not list it as a voter.
	ErrNotVoter = errors.New("this node is not a voter of its cluster")
	// ErrNotTwoVoters means that the cluster has other than two voters, and force was not given.
	ErrNotTwoVoters = errors.New("the cluster does not have exactly two voters")
	// ErrOnlyVoter means that this node is the only voter already.
	ErrOnlyVoter = errors.New("this node is the only voter already")
)

// errBecomesAlone ends a log after Alone.
var errBecomesAlone = fmt.Errorf("%w: this node becomes the only voter of its cluster when it starts again", ErrStopped)

// Alone is why a node goes on as the only voter of its cluster.
type Alone struct {
	Reason string // in words, kept in the log: the proof, or who forced it
	Forced bool   // an operator's word: any number of voters may be dismissed
}

// Alone makes this node the only voter of its cluster, for good: all other voters are
// dismissed. It is the caller who must know that none of them can act.
//
// It stores the decision and ends this log, no more. The caller stops it and starts it
// again; that Start, or any later one if it is cut short, carries the decision out (see
// finishAlone). So there is one way for both, and no moment at which a crash matters. If ctx ends
// first the error wraps ErrUnknownOutcome: the next Start tells.
//
// All entries that this node has become committed, also those that no majority had: a
// command whose Propose returned ErrUnknownOutcome, here or at the former coordinator, may be
// applied now. Entries that only dismissed voters had are lost; in a cluster of two they
// were never committed.
func (l *Log) Alone(ctx context.Context, a Alone) error {
	done := make(chan error, 1)
	go func() { done <- l.decideAlone(a) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("become the only voter: %w: %w", ErrUnknownOutcome, ctx.Err())
	}
}

func (l *Log) decideAlone(a Alone) error {
	if err := l.mayBeAlone(a); err != nil {
		return fmt.Errorf("become the only voter: %w", err)
	}
	_, cluster := l.fsm.position()
	d := decision{Line: randomID(), By: l.id, Cluster: cluster, Reason: a.Reason, Forced: a.Forced}
	if err := l.saveRecord(aloneRecord, d); err != nil {
		return fmt.Errorf("become the only voter: %w", err)
	}
	l.log.Warn("becomes the only voter", "node", l.cfg.Self, "reason", a.Reason, "forced", a.Forced)
	l.finish(errBecomesAlone)
	return nil
}

func (l *Log) mayBeAlone(a Alone) error {
	if err := l.failed(); err != nil {
		return err
	}
	if l.ctx.Err() != nil {
		return ErrStopped
	}
	if !l.formed() {
		return ErrNeverMember
	}
	s, listed := l.server(l.id)
	if !listed || s.Suffrage != raft.Voter {
		return ErrNotVoter
	}
	switch n := voters(l.raft.GetConfiguration().Configuration()); {
	case n == 1:
		return ErrOnlyVoter
	case n != 2 && !a.Forced:
		return fmt.Errorf("%w: it has %d", ErrNotTwoVoters, n)
	}
	return nil
}

func voters(c raft.Configuration) int {
	n := 0
	for _, s := range c.Servers {
		if s.Suffrage == raft.Voter {
			n++
		}
	}
	return n
}

// aloneRecord holds a decision from before anything is done until all of it is.
const aloneRecord = "alone"

// decision is the durable mark that this node becomes the only voter. Whom it dismisses is
// read from the log when nothing can be added to that any more.
type decision struct {
	Line    string   `json:"line"` // of the fork to come
	By      identity `json:"by"`
	Cluster string   `json:"cluster"`
	Reason  string   `json:"reason"`
	Forced  bool     `json:"forced"`
}

// reconsiderAlone asks the others before a decision is carried out that was made in an earlier boot of this host: while it was
// down somebody may have vouched for that, and forced the other one to go on. In the boot of the decision itself there is nothing
// to ask: nobody can have gone on without this node.
func (l *Log) reconsiderAlone() error {
	var d decision
	found, err := loadJSON(l.stores.records, aloneRecord, &d)
	if err != nil || !found || !l.past.formed || l.past.line() == d.Line || l.cfg.Had.ID == l.id.ID {
		return err
	}
	l.fsm.forks = l.past.forks
	return l.consult()
}

// finishAlone carries out what Alone decided, if it did, before raft starts, and tells
// whether there was something to do. It may be cut short at any point and done again:
//
//  1. raft.RecoverCluster writes one snapshot with everything that the log has, the
//     configuration {self}, and the fork (see forking). That is the deed: before it, this
//     node is what it was, after it, the only voter;
//  2. it then deletes the log. What a crash left of it is deleted here, lest a newcomer
//     gets the entries from before the fork in place of the snapshot;
//  3. the result is read back, and only if it is right the decision is struck out.
//
// The order of snapshots is by number, not by clock (snapshots.go): raft's own store would
// prefer an old one from a clock that was ahead, after the log is gone.
func (l *Log) finishAlone() (done bool, err error) {
	var d decision
	if found, err := loadJSON(l.stores.records, aloneRecord, &d); err != nil || !found {
		return false, err
	}
	if d.By != l.id || d.Line == "" || !l.past.formed {
		return false, fmt.Errorf("%w: %s was to become the only voter, and there is the log of %s", ErrDamaged, d.By, l.id)
	}
	if l.past.line() != d.Line {
		if n := voters(l.past.servers); n != 2 && !d.Forced {
			l.log.Warn("does not become the only voter", "node", l.cfg.Self, "reason", fmt.Sprintf("the cluster has %d voters by now", n))
			return false, l.stores.records.save(aloneRecord, nil)
		}
		if err := l.recoverAlone(d); err != nil {
			return false, fmt.Errorf("become the only voter: %w", err)
		}
	}
	if err := l.stores.cutBehindSnapshot(); err != nil {
		return false, fmt.Errorf("become the only voter: %w", err)
	}
	if l.past, err = l.stores.past(); err != nil {
		return false, err
	}
	if alone := l.past.servers.Servers; len(alone) != 1 || string(alone[0].ID) != l.id.String() || l.past.line() != d.Line {
		return false, fmt.Errorf("%w: this node should be the only voter, and the log says %v", ErrDamaged, alone)
	}
	if err := l.stores.records.save(aloneRecord, nil); err != nil {
		return false, err
	}
	l.log.Warn("is the only voter", "node", l.cfg.Self, "reason", d.Reason, "forced", d.Forced)
	return true, nil
}

// recoverAlone writes the snapshot of the new line, and deletes the log.
func (l *Log) recoverAlone(d decision) error {
	f := fork{Line: d.Line, After: l.past.line(), By: l.id, Reason: d.Reason, Forced: d.Forced}
	for _, id := range l.past.everyone {
		if id != l.id {
			f.Dismissed = append(f.Dismissed, id)
		}
	}
	replay := l.cfg.FSM // NewRaft restores the snapshot into it, and so replaces what it is given here
	if l.cfg.Scratch != nil {
		replay = l.cfg.Scratch()
	}
	self := raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(l.id.String()), Address: raft.ServerAddress(l.id.String())}
	store := guardedLog{l.guard, l.stores.log, l.stores.snapshots}
	// The configuration of raft is made anew for it: it may be written to.
	return raft.RecoverCluster(l.raftConfig(), forking{newMachine(replay), f}, store, store,
		guardedSnapshots{l.guard, l.stores.snapshots}, nil, raft.Configuration{Servers: []raft.Server{self}})
}

// forking is the throwaway state machine of recoverAlone. It puts the fork into the very
// snapshot that holds the new configuration, so that there is never one without the other,
// and everybody who ever has the log of the new line has the fork.
type forking struct {
	*machine
	fork fork
}

// Snapshot implements raft.FSM.
func (f forking) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	f.forks = append(f.forks, f.fork)
	f.mu.Unlock()
	return f.machine.Snapshot()
}

// cutBehindSnapshot deletes what the newest snapshot covers.
func (s *Stores) cutBehindSnapshot() error {
	list, err := s.snapshots.List()
	if err != nil || len(list) == 0 {
		return err
	}
	first, err := s.log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.log.LastIndex()
	if err != nil || last == 0 || first > list[0].Index {
		return err
	}
	return s.log.DeleteRange(first, min(last, list[0].Index))
}

// past is what the stores tell of a log before raft runs.
type past struct {
	formed   bool
	last     uint64             // entry, in the log or covered by a snapshot
	cluster  string             // its ID, as far as the log tells
	forks    []fork             // from the newest snapshot: nothing else brings any
	servers  raft.Configuration // the newest, committed or not
	everyone []identity         // all that any configuration in the log lists
}

func (p past) line() string { return lineOf(p.forks) }

// past reads it.
func (s *Stores) past() (p past, err error) {
	list, err := s.snapshots.List()
	if err != nil {
		return p, err
	}
	var covered uint64
	if len(list) > 0 {
		covered = list[0].Index
		image, err := s.newestImage(list[0].ID)
		if err != nil {
			return p, err
		}
		p.cluster, p.forks, p.formed = image.cluster, image.forks, true
		p.see(list[0].Configuration, true)
	}
	first, err := s.log.FirstIndex()
	if err != nil {
		return p, err
	}
	last, err := s.log.LastIndex()
	if err != nil {
		return p, err
	}
	p.formed, p.last = p.formed || last > 0, max(last, covered)
	for i := first; i != 0 && i <= last; i++ {
		var e raft.Log
		if err := s.log.GetLog(i, &e); err != nil {
			return p, err
		}
		switch {
		case e.Type == raft.LogConfiguration:
			p.see(raft.DecodeConfiguration(e.Data), i > covered)
		case len(e.Extensions) > 0 && e.Extensions[0] == internalFound && p.cluster == "":
			p.cluster = string(e.Data)
		}
	}
	return p, nil
}

func (p *past) see(c raft.Configuration, newest bool) {
	if newest {
		p.servers = c
	}
	for _, s := range c.Servers {
		if id := parseIdentity(string(s.ID)); id.ID != absent && !slices.Contains(p.everyone, id) {
			p.everyone = append(p.everyone, id)
		}
	}
}

// saveRecord stores a value while raft runs.
func (l *Log) saveRecord(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return l.guard.do("store the record "+name, func() error { return l.stores.records.save(name, b) })
}

// loadJSON reads a record. One that was struck out is empty.
func loadJSON(r records, name string, v any) (found bool, err error) {
	b, err := r.load(name)
	if err != nil || len(b) == 0 {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("%w: the record %s cannot be read", ErrDamaged, name)
	}
	return true, nil
}
