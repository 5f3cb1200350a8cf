// Package consensus is the replicated log of the cluster: it commits commands on a majority
// of the voters and applies them in the same order everywhere. Its leader is the
// coordinator.
//
// It is built on hashicorp/raft and bbolt and is the only package that knows them. It adds
// what that library leaves to its user, each of it measured to be needed:
//
//   - A voter is its name and a random ID kept beside its log (identity.go). A connection
//     names the identity that it wants, so a wiped node never answers, votes or counts for
//     the voter it was.
//   - A cluster is formed by promises of a majority, never by one node alone (form.go).
//   - Every call of the stores has a deadline, and the first one missed is the last
//     (guard.go): a leader with a hung disk would otherwise lead for ever.
//   - Only a committed entry proves leadership: the leader commits a probe several times
//     per detection time and steps down when none came back (leadership.go).
//   - A follower that was cut off catches up at once when the cut heals (transport.go).
//   - Configured voters that are missing, or came back wiped, are added by the leader, one
//     change at a time, and who is no longer configured is removed (voters.go).
//   - A node becomes the only voter durably or not at all, and whom it dismissed by that is
//     told, and returns as a newcomer (alone.go, fork.go, dismissed.go).
//   - A data folder that is an older copy of itself is recognised (runs.go).
//
// It does not know what the commands mean, does not judge who is alive, and does not use the
// wall clock. DESIGN.md beside this file argues why two clusters cannot form.
package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/hamgr/hamgr/cluster/link"
)

// Errors that callers may test for.
var (
	// ErrConfig is wrapped by every refusal of a Config.
	ErrConfig = errors.New("invalid consensus configuration")
	// ErrNotCoordinator means that this node does not lead the log. Nothing happened.
	ErrNotCoordinator = errors.New("this node is not the coordinator")
	// ErrUnknownOutcome means that the command may or may not be committed, now or later.
	ErrUnknownOutcome = errors.New("the outcome of the command is unknown")
	// ErrStopped means that the log was stopped.
	ErrStopped = errors.New("the log is stopped")
	// ErrDamaged means that the data folder cannot be trusted: it is not what this node
	// wrote. The cure is to empty it; the node then returns under a new identity.
	ErrDamaged = errors.New("the stored log is damaged")
	// ErrStoreFailed means that the disk refused a call or let it hang. It is final.
	ErrStoreFailed = errors.New("the log store failed")
)

// FSM is the state that the log drives. Its methods are called from one goroutine at a
// time. Apply and Restore must be deterministic.
type FSM interface {
	// Apply executes a committed command. What it returns is given to the Propose that
	// brought it, if that was on this node.
	Apply(index uint64, command []byte) any
	// Snapshot returns the whole state.
	Snapshot() ([]byte, error)
	// Restore replaces the whole state.
	Restore(snapshot []byte) error
}

// Link is what consensus needs of cluster/link: streams by node name. Accepted
// connections have a method Peer() string, the verified name of the dialing node.
type Link interface {
	Dial(ctx context.Context, node string, p link.Protocol) (net.Conn, error)
	Listener(p link.Protocol) net.Listener
}

// Config is what Start needs.
type Config struct {
	Self   string   // this node's name, one of Voters
	Voters []string // every configured voter
	Dir    string   // the data folder; the log lives in Dir/raft
	Single bool     // form a cluster alone when the folder is empty; the operator's word
	Link   Link
	FSM    FSM
	// Parked gives the nodes that took their leave and are not to be counted on: while this node coordinates, they are
	// listed, and do not vote. nil: none ever is.
	Parked func() []string
	// Scratch makes a state machine for the replay that Alone needs; what it is told is told
	// again to FSM. nil: FSM itself is used, and then restored.
	Scratch func() FSM
	// DetectionTime sets every interval, see DeriveTiming.
	DetectionTime time.Duration
	Stores        *Stores // nil: files in Dir; tests use MemoryStores
	// Had is what this boot of the host saw of the log before, if it is known: a log that has less was
	// replaced by an older copy.
	Had Had
	// Fatal is called once, in a goroutine of its own, when a store failed. The log votes,
	// leads and acknowledges nothing any more. After ErrStoreHung the caller cuts the node
	// off the network and ends the process: an abandoned write may still reach the disk at
	// any time. After any other error the call has returned, and the process may live on:
	// to stop its groups in order, and to say why. It is called for ErrRolledBack, too.
	Fatal func(error)
	// Wrote is told how long each write of entries took until it was on the disk, in the order of the writes. nil: nobody
	// wants to know.
	Wrote func(took time.Duration)
	// Dismissed is called once, in a goroutine of its own, when this node learns that it was
	// dismissed while it runs. The log has ended by then. The caller stops it and may start it
	// again: Start sets the old data aside, and the node returns as a newcomer.
	Dismissed func(reason string)
	Log       *slog.Logger // nil: discard
}

// Had is how far a log was.
type Had struct {
	ID      string `json:"id"`      // of the voter, as in Status
	Applied uint64 `json:"applied"` // an entry that it had applied, as in Status
}

func (c *Config) validate() error {
	switch {
	case c.Link == nil:
		return fmt.Errorf("%w: no link", ErrConfig)
	case c.FSM == nil:
		return fmt.Errorf("%w: no state machine", ErrConfig)
	case c.Stores == nil && c.Dir == "":
		return fmt.Errorf("%w: no data folder", ErrConfig)
	case c.DetectionTime < minDetection:
		return fmt.Errorf("%w: detection time %s, at least %s", ErrConfig, c.DetectionTime, minDetection)
	case !slices.Contains(c.Voters, c.Self):
		return fmt.Errorf("%w: %q is not among the voters %v", ErrConfig, c.Self, c.Voters)
	}
	c.Voters = slices.Sorted(slices.Values(c.Voters))
	for i, v := range c.Voters {
		if !validName(v) || i > 0 && v == c.Voters[i-1] {
			return fmt.Errorf("%w: voter %q is not a name, or named twice", ErrConfig, v)
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Log is this node's part of the replicated log. Its methods may be called from any
// goroutine.
type Log struct {
	cfg       Config
	log       *slog.Logger
	timing    Timing
	id        identity
	run       run
	heard     *heard
	proposals atomic.Int64 // that raft has not answered yet
	past      past         // what the stores told before raft ran
	returned  string       // why this Start set the data aside, if it did
	stores    *Stores
	guard     *guard
	transport *transport
	join      net.Listener
	fsm       *machine
	raft      *raft.Raft

	changes chan struct{} // buffered 1: coalesced
	poke    chan struct{} // buffered 1: wakes watch
	failure atomic.Pointer[error]
	started chan struct{} // closed when raft runs

	mu       sync.Mutex // guards what follows
	progress progress
	leads    bool   // the pace is a leader's, see setPace
	waiting  string // why there is no cluster to work in, in words
	removed  bool   // others say that this node was removed
	stranded bool   // those that still have a vote are no majority
	answers  map[string]answer
	unheard  map[string]bool   // voters that did not answer since the start
	remarks  map[string]string // on nodes, while this node coordinates

	promising sync.Mutex // held while a promise is judged and stored
	promised  *promise   // guarded by promising

	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	stopOnce sync.Once
	stopped  chan struct{}
	endOnce  sync.Once
	ending   raft.Future // of raft's Shutdown, which only the first call waits for
}

// Start opens the stores and takes part: it returns once the node listens, whether or
// not there is a cluster yet (see Status). Damaged stores are an error; the node never
// starts empty in their place, unless its cluster dismissed it. Before a node with a log
// may vote it asks the others what they know of it, for Timing.Ask at most. ctx bounds the
// opening only.
func Start(ctx context.Context, cfg Config) (*Log, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l, err := open(ctx, cfg)
	if errors.Is(err, ErrDismissed) { // it is marked now: what was is set aside
		l, err = open(ctx, cfg)
	}
	return l, err
}

// open is one attempt to start.
func open(ctx context.Context, cfg Config) (*Log, error) {
	returned, err := setAside(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", cfg.Self, err)
	}
	stores, err := openStores(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", cfg.Self, err)
	}
	l := &Log{
		cfg: cfg, log: cfg.Log, timing: DeriveTiming(cfg.DetectionTime), stores: stores,
		returned: returned, fsm: newMachine(cfg.FSM), answers: make(map[string]answer), unheard: make(map[string]bool),
		changes: make(chan struct{}, 1), poke: make(chan struct{}, 1),
		started: make(chan struct{}), stopped: make(chan struct{}),
	}
	for _, node := range cfg.Voters {
		l.unheard[node] = node != cfg.Self
	}
	if returned != "" {
		l.log.Warn("old data set aside", "node", cfg.Self, "reason", returned)
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.guard = newGuard(max(l.timing.StoreDeadline, stores.patience), l.fail)
	l.guard.wrote = cfg.Wrote
	if err := beside(ctx, l.begin, func() { _ = l.Stop(context.Background()) }); err != nil {
		if failed := l.guard.failure(); failed != nil {
			err = failed // raft gives only its text, v1.8.0
		}
		return nil, fmt.Errorf("start the log of %s: %w", cfg.Self, err)
	}
	return l, nil
}

// begin starts, or leaves nothing running.
func (l *Log) begin() error {
	err := l.start()
	if err == nil {
		return nil
	}
	l.cancel()
	if l.join != nil {
		_ = l.join.Close()
	}
	l.wg.Wait()
	_ = l.stores.close()
	return err
}

// start builds everything on top of the open stores.
func (l *Log) start() (err error) {
	if l.id, err = loadIdentity(l.stores, l.cfg.Self); err != nil {
		return err
	}
	if l.run, err = beginRun(l.stores.records, l.id); err != nil {
		return err
	}
	if l.heard, err = loadHeard(l.stores.records); err != nil {
		return err
	}
	if l.promised, err = loadPromise(l.stores.records); err != nil {
		return err
	}
	if err := l.stores.mend(); err != nil {
		return err
	}
	if l.past, err = l.stores.past(); err != nil {
		return err
	}
	if had := l.cfg.Had; had.ID == l.id.ID && l.past.last < had.Applied {
		return fmt.Errorf("%w (its log ends with entry %d, and had entry %d in this boot)", ErrRolledBack, l.past.last, had.Applied)
	}
	if err := l.reconsiderAlone(); err != nil {
		return err
	}
	becameAlone, err := l.finishAlone()
	if err != nil {
		return err
	}
	l.fsm.forks = l.past.forks
	if l.past.formed {
		// Nodes that start at the same time ask each other before they do anything else.
		l.serveJoins()
		// Who goes on alone has just been assured that the others are off, and goes on at once.
		if !becameAlone {
			if err := l.consult(); err != nil {
				return err
			}
		}
	}
	l.transport = newTransport(l)
	if l.raft, err = l.newRaft(); err != nil {
		_ = l.transport.Close()
		return err
	}
	l.transport.lead.Store(l.raft)
	close(l.started)
	l.guard.arm()
	if l.join == nil {
		l.serveJoins()
	}
	l.wg.Go(l.watch)
	l.wg.Go(l.form)
	l.wg.Go(l.keepVoters)
	return nil
}

func (l *Log) serveJoins() {
	l.join = l.cfg.Link.Listener(link.Join)
	l.wg.Go(l.answerJoins)
}

// newRaft starts the library on the guarded stores. It panics where a store fails under it,
// which Start turns into an error.
func (l *Log) newRaft() (r *raft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	store := guardedLog{l.guard, l.stores.log, l.stores.snapshots}
	return raft.NewRaft(l.raftConfig(), l.fsm, store, store, guardedSnapshots{l.guard, l.stores.snapshots}, l.transport)
}

func (l *Log) raftConfig() *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(l.id.String())
	conf.HeartbeatTimeout = l.timing.Heartbeat
	conf.ElectionTimeout = l.timing.Election
	conf.LeaderLeaseTimeout = l.timing.Lease
	conf.CommitTimeout = l.timing.Commit
	conf.SnapshotInterval = snapshotInterval
	conf.SnapshotThreshold = snapshotThreshold
	conf.TrailingLogs = trailingLogs
	conf.ShutdownOnRemove = false // a removed voter must stay and say so
	conf.NoLegacyTelemetry = true
	conf.Logger = newLogger(l.log)
	return conf
}

// runs tells whether raft was started.
func (l *Log) runs() bool {
	select {
	case <-l.started:
		return true
	default:
		return false
	}
}

// finish ends the node's part for good, for the first reason that is given. First nothing of
// the log goes out or comes in any more, then the library is told to end. The link below is
// the caller's, and carries on until it is told otherwise.
func (l *Log) finish(err error) (first bool) {
	if !l.failure.CompareAndSwap(nil, &err) {
		return false
	}
	l.transport.cut()
	l.cancel()
	l.endRaft() // not waited for: it may wait for us
	l.notify()
	return true
}

// fail is called once, when a store failed. Only when all has ended is that made known; also
// where something else ended it before.
func (l *Log) fail(err error) {
	l.finish(err)
	l.log.Error("log store failed", "node", l.cfg.Self, "err", err)
	if l.cfg.Fatal != nil {
		go l.cfg.Fatal(err)
	}
}

func (l *Log) endRaft() raft.Future {
	if !errors.Is(l.failed(), ErrStoreHung) { // then nothing is applied any more, and no moment to lose
		l.drain() // before the lock: whoever comes second must not wait for it
	}
	l.endOnce.Do(func() { l.ending = l.raft.Shutdown() })
	return l.ending
}

// drain gives what is committed a moment to be applied: a proposal that is on its way from the one to the other when
// raft ends is never answered by it, v1.8.0, and who waits for that would for ever.
func (l *Log) drain() {
	for range 20 {
		if l.proposals.Load() == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// failed returns the error that ended the log, or nil.
func (l *Log) failed() error {
	if err := l.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Stop ends the node's part: it steps down without a word (see Transfer), waits for every
// goroutine and closes the stores. Where the disk hangs it returns when ctx ends.
func (l *Log) Stop(ctx context.Context) error {
	l.stopOnce.Do(func() {
		l.cancel()
		go l.shutdown()
	})
	select {
	case <-l.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the log of %s: %w", l.cfg.Self, ctx.Err())
	}
}

func (l *Log) shutdown() {
	defer close(l.stopped)
	_ = l.join.Close()
	l.transport.cut()
	_ = l.endRaft().Error()
	_ = l.transport.Close()
	l.wg.Wait()
	if err := l.stores.close(); err != nil {
		l.log.Warn("log store not closed", "node", l.cfg.Self, "err", err)
	}
	l.notify()
}
