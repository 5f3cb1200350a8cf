package consensus

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// What Fatal's error may wrap beside ErrStoreFailed.
var (
	// ErrStoreFull means that the disk has no room. It is a refusal: the node has no part in
	// the cluster any more, but nothing can land later, and the process may live on.
	ErrStoreFull = fmt.Errorf("%w: the disk is full", ErrStoreFailed)
	// ErrStoreHung means that a call of the disk did not return. It may do so at any time,
	// and write; the process must end.
	ErrStoreHung = fmt.Errorf("%w: the disk hangs", ErrStoreFailed)
)

// guard puts a deadline round every call of the stores. raft has none: a leader whose
// disk hangs keeps its leadership, and its heartbeats go on (hashicorp/raft#503).
//
// The first deadline missed is final, and so is the first error: after a failed sync nobody
// knows what is on disk. But the two are told apart. What was refused is over; what hangs
// may land later, behind raft's back, for as long as the process lives, and longer.
type guard struct {
	limit  time.Duration
	report func(error)              // called once
	wrote  func(took time.Duration) // is told of each write of entries; may be nil

	running atomic.Bool // raft runs: its goroutines may be ended, see giveUp
	mu      sync.Mutex
	err     error
}

func newGuard(limit time.Duration, report func(error)) *guard {
	return &guard{limit: limit, report: report}
}

// arm is called when raft runs: until then a failure is only an error of Start.
func (g *guard) arm() {
	g.running.Store(true)
	if err := g.failure(); err != nil {
		g.report(err)
	}
}

func (g *guard) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// fail makes an error final. The first one is reported.
func (g *guard) fail(err error) error {
	g.mu.Lock()
	if g.err != nil {
		defer g.mu.Unlock()
		return g.err
	}
	switch {
	case errors.Is(err, ErrStoreFailed):
		g.err = err
	case isFull(err):
		g.err = fmt.Errorf("%w: %w", ErrStoreFull, err)
	default:
		g.err = fmt.Errorf("%w: %w", ErrStoreFailed, err)
	}
	g.mu.Unlock()
	if g.running.Load() {
		g.report(g.err)
	}
	return g.err
}

// do runs one call of a store. f must not write to anything of the caller: it may go on
// after do returned.
func (g *guard) do(what string, f func() error) error {
	if err := g.failure(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		// A damaged file under a memory map shows as a fault or as a panic of bbolt.
		debug.SetPanicOnFault(true)
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("%w: %v", ErrDamaged, p)
			}
		}()
		done <- f()
	}()
	timer := time.NewTimer(g.limit)
	defer timer.Stop()
	select {
	case err := <-done:
		if err != nil && !harmless(err) {
			return g.fail(fmt.Errorf("%s: %w", what, err))
		}
		return err
	case <-timer.C:
		return g.fail(fmt.Errorf("%w: %s: no answer within %s", ErrStoreHung, what, g.limit))
	}
}

// harmless tells the answers of a store that is well: there is no such entry or value, or no
// room for one more snapshot, without which the log goes on.
func harmless(err error) bool {
	return errors.Is(err, raft.ErrLogNotFound) || errors.Is(err, errNotFound) || errors.Is(err, errNoRoom)
}

// giveUp ends the calling goroutine, which is one of raft's, after a final failure. raft
// panics when it can neither store its term nor read an entry, and would take the process
// with it before the caller could cut the network. Deferred calls run, so that raft's
// Shutdown does not wait for it.
func (g *guard) giveUp() {
	if g.running.Load() && g.failure() != nil {
		runtime.Goexit()
	}
}

// errNotFound is what raft expects of a stable store without a key: it compares the text.
var errNotFound = errors.New("not found")

// The keys under which raft keeps its term and its vote (its raft.go).
const (
	keyCurrentTerm   = "CurrentTerm"
	keyVoteTerm      = "LastVoteTerm"
	keyVoteCandidate = "LastVoteCand"
)

// logStore is what raft needs of a disk, apart from snapshots.
type logStore interface {
	raft.LogStore
	raft.StableStore
}

// guardedLog is a logStore behind the guard.
type guardedLog struct {
	guard     *guard
	store     logStore
	snapshots raft.SnapshotStore
}

// IsMonotonic tells raft to leave no gap between the log and a snapshot received.
func (s guardedLog) IsMonotonic() bool { return true }

// guarded runs a call that returns a value.
func guarded[T any](g *guard, what string, f func() (T, error)) (T, error) {
	var value T
	result := make(chan T, 1)
	err := g.do(what, func() error {
		v, err := f()
		result <- v
		return err
	})
	if err == nil {
		value = <-result
	}
	return value, err
}

func (s guardedLog) FirstIndex() (uint64, error) {
	return guarded(s.guard, "read the first index", s.store.FirstIndex)
}

func (s guardedLog) LastIndex() (uint64, error) {
	return guarded(s.guard, "read the last index", s.store.LastIndex)
}

func (s guardedLog) GetLog(index uint64, entry *raft.Log) error {
	got, err := guarded(s.guard, "read an entry", func() (raft.Log, error) {
		var e raft.Log
		err := s.store.GetLog(index, &e)
		return e, err
	})
	if errors.Is(err, raft.ErrLogNotFound) {
		got, err = s.edge(index)
	}
	if err == nil {
		*entry = got
		return nil
	}
	s.guard.giveUp()
	return err
}

// edgeOfLog is the type of what stands for the last entry of a snapshot, which raft neither applies nor sends.
const edgeOfLog = raft.LogType(255)

// edge gives the index and the term of the newest snapshot's last entry, where the log begins after it. A follower whose
// answer to the first entries after a snapshot was lost gets them again, and has to compare their predecessor; raft 1.8.0
// looks for that in the log alone, refuses them, and gets the snapshot again, without end.
//
// For nothing else is the entry asked: what is applied lies behind the snapshot, and a leader that would send
// the entry has to know the one before it, too.
func (s guardedLog) edge(index uint64) (raft.Log, error) {
	newest, err := guardedSnapshots{s.guard, s.snapshots}.List()
	if err != nil {
		return raft.Log{}, err
	}
	if len(newest) == 0 || newest[0].Index != index || index <= 1 {
		return raft.Log{}, raft.ErrLogNotFound
	}
	return raft.Log{Index: index, Term: newest[0].Term, Type: edgeOfLog}, nil
}

func (s guardedLog) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

func (s guardedLog) StoreLogs(entries []*raft.Log) error {
	own := make([]*raft.Log, len(entries)) // the caller goes on with its own at a deadline
	for i, e := range entries {
		c := *e
		if c.Type == edgeOfLog {
			return fmt.Errorf("entry %d is only the edge of a snapshot", c.Index)
		}
		own[i] = &c
	}
	if s.guard.wrote != nil {
		began := time.Now()
		defer func() { s.guard.wrote(time.Since(began)) }()
	}
	return s.guard.do("store entries", func() error { return s.store.StoreLogs(own) })
}

func (s guardedLog) DeleteRange(first, last uint64) error {
	return s.guard.do("delete entries", func() error { return s.store.DeleteRange(first, last) })
}

func (s guardedLog) Set(key, value []byte) error {
	return s.guard.do("store "+string(key), func() error { return s.store.Set(key, value) })
}

func (s guardedLog) SetUint64(key []byte, value uint64) error {
	err := s.guard.do("store "+string(key), func() error { return s.store.SetUint64(key, value) })
	if err != nil && string(key) == keyCurrentTerm {
		s.guard.giveUp()
	}
	return err
}

func (s guardedLog) Get(key []byte) ([]byte, error) {
	return guarded(s.guard, "read "+string(key), func() ([]byte, error) { return s.store.Get(key) })
}

func (s guardedLog) GetUint64(key []byte) (uint64, error) {
	return guarded(s.guard, "read "+string(key), func() (uint64, error) { return s.store.GetUint64(key) })
}

// guardedSnapshots is a snapshot store behind the guard: a follower receives snapshots in
// raft's main goroutine.
type guardedSnapshots struct {
	guard *guard
	store raft.SnapshotStore
}

func (s guardedSnapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := guarded(s.guard, "create a snapshot", func() (raft.SnapshotSink, error) {
		return s.store.Create(v, index, term, c, ci, t)
	})
	if err != nil {
		return nil, err
	}
	return guardedSink{sink, s.guard}, nil
}

func (s guardedSnapshots) List() ([]*raft.SnapshotMeta, error) {
	return guarded(s.guard, "list snapshots", s.store.List)
}

func (s guardedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	type opened struct {
		meta *raft.SnapshotMeta
		r    io.ReadCloser
	}
	o, err := guarded(s.guard, "open a snapshot", func() (opened, error) {
		meta, r, err := s.store.Open(id)
		return opened{meta, r}, err
	})
	return o.meta, o.r, err
}

// guardedSink guards the end of a snapshot, which syncs; what is written before stays in
// memory.
type guardedSink struct {
	raft.SnapshotSink
	guard *guard
}

func (s guardedSink) Close() error { return s.guard.do("store a snapshot", s.SnapshotSink.Close) }
