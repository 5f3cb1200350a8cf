package consensus

import (
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// progress is what the leader knows of its own commits. Heartbeats prove nothing: a leader
// whose followers' disks hang gets its heartbeats answered, and even raft's VerifyLeader
// says that all is well. Only a committed entry does.
type progress struct {
	term    uint64    // the term that the rest speaks of
	since   time.Time // when this node was first seen leading in it
	last    time.Time // when a commit of it last came back, zero for never
	next    time.Time // when the next probe is due
	probing bool      // a probe is in flight
	given   bool      // leadership was given up
}

// IsCoordinator tells whether this node leads the log and has proven it: an entry of its
// term was committed within the detection time.
func (l *Log) IsCoordinator() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.coordinates(time.Now())
}

// coordinates requires mu.
func (l *Log) coordinates(now time.Time) bool {
	p := l.progress
	return l.failed() == nil && l.ctx.Err() == nil && l.raft.State() == raft.Leader && !p.given &&
		p.term == l.raft.CurrentTerm() && !p.last.IsZero() && now.Sub(p.last) < l.timing.Patience
}

// Coordinator names the node that leads the log as far as this one knows; ok is false
// when it knows of none. A leader that has not proven itself does not name itself.
func (l *Log) Coordinator() (node string, ok bool) {
	address, _ := l.raft.LeaderWithID()
	node, _, _ = strings.Cut(string(address), "/")
	if node == "" || node == l.cfg.Self && !l.IsCoordinator() {
		return "", false
	}
	return node, true
}

// Progress is when a commit of this leader last came back; zero when none did or when this
// node does not lead.
func (l *Log) Progress() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.raft.State() != raft.Leader || l.progress.term != l.raft.CurrentTerm() {
		return time.Time{}
	}
	return l.progress.last
}

// Changes has something to receive after Coordinator, IsCoordinator or the term changed.
func (l *Log) Changes() <-chan struct{} { return l.changes }

func (l *Log) notify() {
	select {
	case l.changes <- struct{}{}:
	default:
	}
}

func (l *Log) wake() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// view is what Changes watches.
type view struct {
	coordinator string
	self        bool
	term        uint64
}

// watch follows raft's state until the log stops: it sends the probes, gives up what
// makes no progress, and announces changes.
func (l *Log) watch() {
	observed := make(chan raft.Observation, 16)
	observer := raft.NewObserver(observed, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.RaftState, raft.LeaderObservation:
			return true
		}
		return false
	})
	l.raft.RegisterObserver(observer)
	defer l.raft.DeregisterObserver(observer)
	tick := time.NewTimer(0)
	defer tick.Stop()
	var old view
	for {
		l.lead()
		old = l.announce(old)
		tick.Reset(l.next())
		select {
		case <-observed:
		case <-l.poke:
		case <-tick.C:
		case <-l.ctx.Done():
			return
		}
	}
}

// next is when a look is due at the latest; raft's own changes come by themselves.
func (l *Log) next() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := l.timing.Patience / 4
	if l.leads {
		now := time.Now()
		if !l.progress.probing {
			wait = min(wait, l.progress.next.Sub(now))
		}
		if left := l.timing.Patience - now.Sub(later(l.progress.since, l.progress.last)); left > 0 {
			wait = min(wait, left)
		}
	}
	return max(wait, time.Millisecond)
}

// lead does what the leader owes between two looks.
func (l *Log) lead() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setPace(l.raft.State() == raft.Leader)
	if l.raft.State() != raft.Leader {
		l.transport.muted.Store(false)
		return
	}
	now := time.Now()
	if term := l.raft.CurrentTerm(); term != l.progress.term {
		l.progress = progress{term: term, since: now, next: now}
		l.transport.muted.Store(false)
	}
	p := &l.progress
	if !p.probing && !now.Before(p.next) {
		p.probing, p.next = true, now.Add(l.timing.Probe)
		term := p.term
		l.wg.Go(func() { l.probe(term) })
	}
	if latest := later(p.since, p.last); !p.given && now.Sub(latest) >= l.timing.Patience {
		// The library cannot be told to step down, and a hand-over needs a commit; but it
		// gives up by itself when it hears no majority for its lease.
		p.given = true
		l.transport.muted.Store(true)
		l.log.Warn("leadership given up", "node", l.cfg.Self, "term", p.term,
			"reason", "nothing was committed for "+now.Sub(latest).Round(time.Millisecond).String())
	}
}

// setPace takes the library's two uses of one number apart: a follower waits for a
// heartbeat that long, and a leader sends one every 10 to 20 % of it, which is far more often
// than its lease needs. It requires mu.
func (l *Log) setPace(leads bool) {
	if leads == l.leads {
		return
	}
	l.leads = leads
	pace := l.raft.ReloadableConfig()
	pace.HeartbeatTimeout, pace.ElectionTimeout = l.timing.Heartbeat, l.timing.Election
	if leads {
		pace.HeartbeatTimeout, pace.ElectionTimeout = l.timing.Lead, l.timing.Lead
	}
	if err := l.raft.ReloadConfig(pace); err != nil {
		l.log.Error("pace not changed", "node", l.cfg.Self, "err", err)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// probe commits one entry of our own. The first in a cluster's life gives it its ID.
func (l *Log) probe(term uint64) {
	entry := raft.Log{Extensions: []byte{internalProbe}}
	if _, cluster := l.fsm.position(); cluster == "" {
		entry = raft.Log{Extensions: []byte{internalFound}, Data: []byte(randomID())}
	}
	// Not commit itself: raft may end without an answer, and Stop waits for this.
	if _, _, err := l.apply(l.ctx, entry); err != nil {
		l.log.Debug("probe failed", "node", l.cfg.Self, "term", term, "err", err)
	}
	l.mu.Lock()
	if l.progress.term == term {
		l.progress.probing = false
	}
	l.mu.Unlock()
	l.wake()
}

// committed notes that an entry which was proposed in term came back. An answer that
// belongs to a term before counts for nothing.
//
// Followers hear that an entry is committed with the next one, or up to twice Timing.Commit
// later. So a command is followed by a probe at once: a takeover on another node
// waits for it.
func (l *Log) committed(term uint64, command bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.progress.term != term {
		return
	}
	l.progress.last = time.Now()
	if command {
		l.progress.next = l.progress.last
		l.wake()
	}
}

// announce compares with what was announced last.
func (l *Log) announce(old view) view {
	now := view{self: l.IsCoordinator(), term: l.raft.CurrentTerm()}
	now.coordinator, _ = l.Coordinator()
	if now == old {
		return old
	}
	if now.self && (!old.self || now.term != old.term) {
		l.log.Info("became coordinator", "node", l.cfg.Self, "term", now.term)
	}
	if old.self && !now.self {
		l.log.Info("no longer coordinator", "node", l.cfg.Self, "term", old.term)
	}
	l.notify()
	return now
}
