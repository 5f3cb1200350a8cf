package consensus

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestEntriesAfterASnapshotComeTwice: a follower gets a snapshot and the first entries after it, and its answer is lost. The
// leader sends the entries again, after the snapshot's last one, which is in no log any more. Refused, it would send
// the snapshot again, and so on for ever, while the follower applies nothing.
func TestEntriesAfterASnapshotComeTwice(t *testing.T) {
	_, follower := raft.NewInmemTransport("follower")
	_, leader := raft.NewInmemTransport("leader")
	leader.Connect("follower", follower)
	follower.Connect("leader", leader)
	stores := MemoryStores()
	g := newGuard(time.Second, func(err error) { t.Error(err) })
	conf := raft.DefaultConfig()
	conf.LocalID = "follower"
	conf.Logger = newLogger(slog.New(slog.DiscardHandler))
	log := guardedLog{g, stores.log, stores.snapshots}
	r, err := raft.NewRaft(conf, newMachine(&history{}), log, log, guardedSnapshots{g, stores.snapshots}, follower)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Shutdown().Error() }()

	const at = 10
	servers := raft.Configuration{Servers: []raft.Server{{ID: "leader", Address: "leader"}, {ID: "follower", Address: "follower"}}}
	state, err := (&history{}).Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.NewBuffer(encodeImage(at, "", state))
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("leader"), Addr: []byte("leader")}
	var installed raft.InstallSnapshotResponse
	err = leader.InstallSnapshot("follower", "follower", &raft.InstallSnapshotRequest{
		RPCHeader: header, SnapshotVersion: raft.SnapshotVersionMax, Term: 2, Leader: []byte("leader"),
		LastLogIndex: at, LastLogTerm: 2, Configuration: raft.EncodeConfiguration(servers), ConfigurationIndex: 1, Size: int64(data.Len()),
	}, &installed, data)
	if err != nil || !installed.Success {
		t.Fatalf("install: %+v %v", installed, err)
	}
	send := func(prev, term uint64, entries ...*raft.Log) bool {
		t.Helper()
		var resp raft.AppendEntriesResponse
		err := leader.AppendEntries("follower", "follower", &raft.AppendEntriesRequest{
			RPCHeader: header, Term: 2, PrevLogEntry: prev, PrevLogTerm: term, Entries: entries,
		}, &resp)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Success
	}
	first := []*raft.Log{{Index: at + 1, Term: 2, Type: raft.LogNoop}, {Index: at + 2, Term: 2, Type: raft.LogNoop}}
	for range 2 {
		if !send(at, 2, first...) {
			t.Fatal("entries after the snapshot are refused")
		}
	}
	if send(at, 1, first...) {
		t.Error("entries that follow another term's entry are taken")
	}
	if send(at-1, 2, first...) {
		t.Error("entries that follow one before the snapshot are taken")
	}
	if last := r.LastIndex(); last != at+2 {
		t.Errorf("the log ends with %d", last)
	}
}

// TestEdgeIsNoEntry: what stands for the last entry of a snapshot is never stored.
func TestEdgeIsNoEntry(t *testing.T) {
	stores := MemoryStores()
	sink, err := stores.snapshots.Create(raft.SnapshotVersionMax, 5, 2, raft.Configuration{}, 1, nil)
	if err == nil {
		err = sink.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	s := guardedLog{newGuard(time.Second, func(error) {}), stores.log, stores.snapshots}
	var e raft.Log
	if err := s.GetLog(5, &e); err != nil || e.Index != 5 || e.Term != 2 || e.Type != edgeOfLog {
		t.Fatalf("%+v %v", e, err)
	}
	for _, other := range []uint64{4, 6} {
		if err := s.GetLog(other, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d: %v", other, err)
		}
	}
	if err := s.StoreLogs([]*raft.Log{&e}); err == nil {
		t.Error("it was stored as an entry")
	}
}
