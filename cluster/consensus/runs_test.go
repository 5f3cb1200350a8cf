package consensus

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// onFiles gives a node real files.
func (n *node) onFiles() {
	n.stores, n.dir = nil, n.cluster.t.TempDir()
}

// onFilesOf starts three nodes of which one has real files, and waits until all vote.
func onFilesOf(t *testing.T) (*cluster, *node) {
	t.Helper()
	c := newCluster(t, time.Second, 3)
	old := c.nodes["clpha"]
	old.onFiles()
	c.startAll()
	c.allVote(4 * time.Second)
	return c, old
}

// copied copies the node's folder.
func (n *node) copied() string {
	n.cluster.t.Helper()
	to := n.cluster.t.TempDir() + "/copy"
	if err := os.CopyFS(to, os.DirFS(n.dir)); err != nil {
		n.cluster.t.Fatal(err)
	}
	return to
}

// A node's folder is copied, and the cluster, with the node, goes on. The copy is put back: the
// node must not vote as what it was.
func TestRestoredCopyDoesNotVote(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, old := onFilesOf(t)
		old.stop()
		copied := old.copied()
		old.start()
		c.coordinator(3 * time.Second).mustPropose("acknowledged")
		c.within(time.Second, "it has it", func() bool { return old.fsm.has("acknowledged") })
		id := old.log.id
		old.stop()
		whole := old.dir
		for again := range 4 { // the fourth attempt is no better than the first
			old.dir = copied
			err := old.try()
			if !errors.Is(err, ErrRolledBack) {
				t.Fatalf("attempt %d: started: %v", again, err)
			}
		}
		old.dir = whole
		old.start() // the true one is welcome
		if old.log.id != id {
			t.Error("another identity")
		}
		c.within(2*time.Second, "votes", func() bool { return old.log.Status().Role == RoleVoter && old.log.Status().Waiting == "" })
		c.coordinator(time.Second).mustPropose("after")
	})
}

// Nobody who knows better is there, but the host remembers how far this boot was.
func TestRestoredCopyIsKnownToItsBoot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, old := onFilesOf(t)
		copied := old.copied() // behind its back: what is in it is older
		c.coordinator(3 * time.Second).mustPropose("acknowledged")
		c.within(time.Second, "it has it", func() bool { return old.fsm.has("acknowledged") })
		s := old.log.Status()
		old.stop()
		whole := old.dir
		c.network.Isolate(old.name)
		old.dir = copied
		if err := old.try(remembering(s)); !errors.Is(err, ErrRolledBack) {
			t.Fatalf("started: %v", err)
		}
		s.ID = "another one" // of a voter that is gone
		old.dir = whole
		if err := old.try(remembering(s)); err != nil {
			t.Fatal(err)
		}
		c.network.HealAll()
		c.coordinator(3 * time.Second).mustPropose("after")
	})
}

// remembering is what a boot knows of a log.
func remembering(s Status) func(*Config) {
	return func(c *Config) { c.Had = Had{ID: s.ID, Applied: s.Applied} }
}

// Those who know better are away when it starts. It is found out as soon as one is heard, and
// though all is well by then.
func TestRestoredCopyIsFoundOutLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, old := onFilesOf(t)
		old.stop()
		copied := old.copied()
		old.start()
		c.coordinator(3 * time.Second)
		old.stop()
		old.dir = copied
		c.network.Isolate(old.name)
		old.start()
		time.Sleep(10 * time.Second)
		if s := old.log.Status(); s.Role != RoleVoter {
			t.Fatalf("%+v", s)
		}
		c.network.HealAll()
		c.within(2*time.Second, "found out", func() bool { return errors.Is(old.failedWith(), ErrRolledBack) })
		if s := old.log.Status(); s.Role != RoleFailed {
			t.Errorf("%+v", s)
		}
	})
}

func TestRunsAreCounted(t *testing.T) {
	r := MemoryStores().records
	id := identity{"a", "1"}
	if err := r.save(identityRecord, []byte(`{"node":"a","id":"1"}`)); err != nil { // of a program that did not count
		t.Fatal(err)
	}
	var last run
	for i := range uint64(2 * maxStarts) {
		next, err := beginRun(r, id)
		if err != nil || next.Number != i+1 || len(next.Starts) != int(min(i+1, maxStarts)) {
			t.Fatalf("%+v after %+v, %v", next, last, err)
		}
		if !next.follows(last.begun()) || last.follows(next.begun()) || !next.follows(next.begun()) || !next.follows(begun{}) {
			t.Errorf("%+v and %+v", last, next)
		}
		last = next
	}
	for back := range uint64(maxStarts) {
		if twin := (begun{last.Number - back, "other"}); last.follows(twin) {
			t.Errorf("starts of two copies are not told apart %d starts later", back)
		}
	}
}

func TestHeardRunsAreKept(t *testing.T) {
	r := MemoryStores().records
	newLog := func() *Log {
		h, err := loadHeard(r)
		if err != nil {
			t.Fatal(err)
		}
		return &Log{heard: h, stores: &Stores{records: r}, guard: newGuard(time.Minute, func(error) {})}
	}
	l := newLog()
	for i := range 2 * maxHeard {
		if _, err := l.hearRun(identity{"a", fmt.Sprint(i)}, run{5, []string{"r", "s"}}); err != nil {
			t.Fatal(err)
		}
	}
	l = newLog() // a restart
	last := identity{"a", fmt.Sprint(2*maxHeard - 1)}
	for _, tc := range []struct {
		says run
		want begun // what was known before
	}{
		{run{4, []string{"q", "r"}}, begun{5, "s"}},                // older
		{run{5, []string{"r", "t"}}, begun{5, "s"}},                // a twin
		{run{9, []string{"t", "u", "v", "w", "x"}}, begun{5, "s"}}, // a twin, later
		{run{}, begun{5, "s"}},
		{run{6, []string{"r", "s", "u"}}, begun{5, "s"}}, // the true one
		{run{6, []string{"r", "s", "u"}}, begun{6, "u"}},
	} {
		if got, err := l.hearRun(last, tc.says); err != nil || got != tc.want {
			t.Errorf("%+v: %+v, %v", tc.says, got, err)
		}
	}
	if n := len(l.heard.runs["a"]); n != maxHeard {
		t.Errorf("%d identities are kept", n)
	}
}
