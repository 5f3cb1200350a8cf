package consensus

import (
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// transport is raft's network transport with two changes.
//
// It holds entries for a follower that does not answer, and sends them when the follower's
// heartbeats are answered again. raft itself would fail them and back off, up to ten
// seconds, and only a success resets that: a follower that was cut off for 14 s and more
// got its entries 0.02 to 10.5 s after the cut healed, though its heartbeats were answered
// long before.
//
// It can be muted: the leader that must give up has no other way to do so.
//
// Pipelining is off. A follower may stop being replicated after a stall with it
// (hashicorp/raft#612), and at this log's rate it gains nothing.
//
// Pre-vote works because the embedded transport has RequestPreVote.
type transport struct {
	*raft.NetworkTransport
	streams *streams
	pause   time.Duration             // between two looks whether holding on makes sense
	lead    atomic.Pointer[raft.Raft] // nil until raft runs
	muted   atomic.Bool

	done     chan struct{} // closed by Close
	doneOnce sync.Once

	mu    sync.Mutex // guards peers
	peers map[raft.ServerAddress]*reach
}

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil)
	_ raft.WithClose   = (*transport)(nil)

	errMuted = errors.New("leadership is being given up")
)

// reach is what the heartbeats tell of a peer.
type reach struct {
	down  bool          // the last heartbeat failed
	heard chan struct{} // closed by the next one that is answered
}

func newTransport(l *Log) *transport {
	s := newStreams(l.cfg.Link, l.id, func() (string, bool) { return l.fsm.line(), l.formed() }, l.timing.Patience)
	return &transport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: s, MaxPool: 3, MaxRPCsInFlight: 1, Timeout: l.timing.RPC, Logger: newLogger(l.log),
		}),
		streams: s, pause: l.timing.RPC, done: make(chan struct{}), peers: make(map[raft.ServerAddress]*reach),
	}
}

// Close ends the transport and every connection.
func (t *transport) Close() error {
	t.cut()
	err := t.NetworkTransport.Close()
	t.CloseStreams()
	return errors.Join(err, t.streams.Close())
}

// cut makes the node deaf and dumb at once, and does not wait for anything.
func (t *transport) cut() {
	t.doneOnce.Do(func() { close(t.done) })
	t.muted.Store(true)
	t.streams.cancel()
	for _, c := range t.streams.connections() {
		go c.Close() // TLS says goodbye first, which may take a while
	}
}

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if t.muted.Load() {
		return errMuted
	}
	if isHeartbeat(req) {
		return t.beat(id, to, req, resp)
	}
	for {
		if err := t.hold(id, to, req.Term); err != nil {
			return err
		}
		err := t.NetworkTransport.AppendEntries(id, to, req, resp)
		if err == nil || !t.wanted(id, req.Term) {
			return err
		}
		t.heartbeat(to, err) // wait for the next heartbeat before the next attempt
	}
}

// beat sends a heartbeat until it is answered, or nobody wants it any more. raft itself would let up to half its heartbeat
// timeout pass after one that failed, and for that long a follower that is back would hear of nobody.
func (t *transport) beat(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for {
		next := time.NewTimer(t.pause)
		err := t.NetworkTransport.AppendEntries(id, to, req, resp)
		t.heartbeat(to, err)
		if err == nil {
			next.Stop()
			return nil
		}
		select {
		case <-next.C:
		case <-t.done:
			next.Stop()
			return raft.ErrTransportShutdown
		}
		if !t.wanted(id, req.Term) {
			return err
		}
	}
}

// isHeartbeat recognises a heartbeat as raft's own transport does (its net_transport.go).
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}

// heartbeat notes whether a peer answers.
func (t *transport) heartbeat(to raft.ServerAddress, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.peer(to)
	r.down = err != nil
	if err == nil {
		close(r.heard)
		r.heard = make(chan struct{})
	}
}

// answers tells whether the last heartbeat to a peer was answered; true before the first.
func (t *transport) answers(to raft.ServerAddress) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.peer(to).down
}

// peer requires mu.
func (t *transport) peer(to raft.ServerAddress) *reach {
	r, known := t.peers[to]
	if !known {
		r = &reach{heard: make(chan struct{})}
		t.peers[to] = r
	}
	return r
}

// hold waits while a peer does not answer heartbeats: until it does, until nobody wants
// its entries any more, or until the end.
func (t *transport) hold(id raft.ServerID, to raft.ServerAddress, term uint64) error {
	for {
		t.mu.Lock()
		r := t.peer(to)
		down, heard := r.down, r.heard
		t.mu.Unlock()
		if !down {
			return nil
		}
		look := time.NewTimer(t.pause)
		select {
		case <-heard:
		case <-look.C:
			if !t.wanted(id, term) {
				return raft.ErrLeadershipLost
			}
		case <-t.done:
			look.Stop()
			return raft.ErrTransportShutdown
		}
		look.Stop()
	}
}

// wanted tells whether this node still leads in that term, and the peer is still one of
// its servers.
func (t *transport) wanted(id raft.ServerID, term uint64) bool {
	r := t.lead.Load()
	return r != nil && !t.muted.Load() && r.State() == raft.Leader && r.CurrentTerm() == term &&
		slices.ContainsFunc(r.GetConfiguration().Configuration().Servers, func(s raft.Server) bool { return s.ID == id })
}

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// InstallSnapshot implements raft.Transport. It waits for the peer before it begins: a
// snapshot that failed half way cannot be sent again.
func (t *transport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if t.muted.Load() {
		return errMuted
	}
	if err := t.hold(id, to, req.Term); err != nil {
		return err
	}
	return t.NetworkTransport.InstallSnapshot(id, to, req, resp, data)
}
