package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"
)

// sector is what a disk writes wholly or not at all.
const sector = 512

// crashOp is one call of the log store.
type crashOp struct {
	name string
	do   func(logStore) error
}

// voterLife is what raft does to the store of a voter that follows, is overwritten by a new leader, votes, stands for
// election, takes snapshots and is sent one.
func voterLife() []crashOp {
	var ops []crashOp
	add := func(name string, do func(logStore) error) { ops = append(ops, crashOp{name, do}) }
	term := func(n uint64) {
		add(fmt.Sprint("term ", n), func(s logStore) error { return s.SetUint64([]byte(keyCurrentTerm), n) })
	}
	vote := func(term uint64, candidate string) {
		add(fmt.Sprint("term of the vote ", term), func(s logStore) error { return s.SetUint64([]byte(keyVoteTerm), term) })
		add("vote for "+candidate, func(s logStore) error { return s.Set([]byte(keyVoteCandidate), []byte(candidate)) })
	}
	store := func(term, first, last uint64, size int) {
		add(fmt.Sprintf("store %d to %d of term %d", first, last, term), func(s logStore) error {
			entries := someEntries(first, last)
			for _, e := range entries {
				e.Term, e.Data = term, bytes.Repeat([]byte{byte(term), byte(e.Index)}, size)
			}
			return s.StoreLogs(entries)
		})
	}
	cut := func(first, last uint64) {
		add(fmt.Sprintf("delete %d to %d", first, last), func(s logStore) error { return s.DeleteRange(first, last) })
	}
	term(1)
	store(1, 1, 1, 100)
	term(2)
	vote(2, "alpha/1")
	for i := uint64(2); i < 8; i++ {
		store(2, i, i, 50)
	}
	store(2, 8, 80, 60)
	store(2, 81, 81, 5000) // pages that overflow
	term(3)
	vote(3, "beta/2")
	cut(60, 81) // a new leader
	store(3, 60, 63, 200)
	cut(60, 63) // and another one
	term(4)
	store(4, 60, 90, 30)
	cut(1, 50) // after a snapshot
	term(5)
	vote(5, "gamma/3")
	vote(6, "gamma/3")
	cut(51, 90) // after a snapshot from the leader
	store(6, 200, 230, 100)
	cut(230, 230)
	store(7, 230, 230, 1)
	return ops
}

// TestCrashAtEveryWrite takes the power away at every point of every call. What had returned is there; the call
// that had not happened wholly or not at all.
//
// bbolt writes the pages of a transaction in order, syncs, writes one meta page, and syncs (v1.5.0, tx.go: write,
// writeMeta); a file that grows is grown and synced before. So a crash leaves any of the page's sectors with the old meta
// page, or all of them with either meta page, or with one that is torn, where a disk tears sectors.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	s, path := newBolt(t)
	model := MemoryStores().log
	c := crash{t: t, random: rand.New(rand.NewPCG(3, 4)), copied: filepath.Join(t.TempDir(), "log.db")}
	for _, op := range voterLife() {
		c.op = op.name
		c.before, c.old = fileBytes(t, path), mustContent(t, model)
		if err := errors.Join(op.do(s), op.do(model)); err != nil {
			t.Fatalf("%s: %v", op.name, err)
		}
		c.after, c.new = fileBytes(t, path), mustContent(t, model)
		c.everywhere()
	}
	t.Logf("%d crashes: %d before, %d after the call, %d refused, all of them with a torn sector", c.images, c.olds, c.news, c.refused)
	if c.olds == 0 || c.news == 0 || c.refused == 0 || c.restarts == 0 {
		t.Error("the test does not test")
	}
}

// crash is one call, and what came of it so far.
type crash struct {
	t                  *testing.T
	random             *rand.Rand
	copied, op         string
	before, after      []byte
	old, new           content
	images, olds, news int
	refused, restarts  int
}

func fileBytes(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustContent(t *testing.T, s logStore) content {
	t.Helper()
	c, err := contentOf(s)
	if err != nil {
		t.Fatal(err)
	}
	return c.plain()
}

// plain leaves out what the stores do not keep alike.
func (c content) plain() content {
	for i := range c.entries {
		e := c.entries[i]
		c.entries[i] = raft.Log{Index: e.Index, Term: e.Term, Type: e.Type, Data: append([]byte{}, e.Data...), Extensions: append([]byte{}, e.Extensions...)}
	}
	return c
}

// everywhere goes through the states that a crash in the call can leave.
func (c *crash) everywhere() {
	const page = 4096
	grown := append(bytes.Clone(c.before), make([]byte, max(0, len(c.after)-len(c.before)))...)
	var sectors []int // of the pages that changed, but for the meta page
	meta := -1
	for at := 0; at < len(c.after); at += sector {
		switch changed := !bytes.Equal(grown[at:at+sector], c.after[at:at+sector]); {
		case changed && at < 2*page && (meta >= 0 || at%page != 0):
			c.t.Fatalf("%s: more of the meta pages changed than the first sector of one", c.op)
		case changed && at < 2*page:
			meta = at
		case changed:
			sectors = append(sectors, at)
		}
	}
	if meta < 0 {
		c.t.Fatalf("%s: no meta page was written", c.op)
	}
	c.must(c.before, c.old)
	written := bytes.Clone(grown)
	for _, at := range sectors { // in order, and each torn
		copy(written[at:], c.after[at:at+c.random.IntN(sector)])
		c.must(written, c.old)
		copy(written[at:at+sector], c.after[at:])
		c.must(written, c.old)
	}
	for range 8 { // in any order
		some := bytes.Clone(grown)
		for _, at := range sectors {
			if c.random.IntN(2) == 0 {
				copy(some[at:at+sector], c.after[at:])
			}
		}
		c.must(some, c.old)
	}
	for n := 1; n < sector; n++ { // the meta page, byte by byte
		copy(written[meta:meta+n], c.after[meta:])
		c.either(written)
	}
	c.must(c.after, c.new)
}

// must checks that a crash left exactly that content.
func (c *crash) must(b []byte, want content) {
	c.t.Helper()
	got, err := c.restart(b)
	if err != nil {
		c.t.Fatalf("%s: %v", c.op, err)
	}
	if !reflect.DeepEqual(got, want) {
		c.t.Fatalf("%s: the crash left %s, not %s", c.op, got.brief(), want.brief())
	}
	if reflect.DeepEqual(want, c.old) {
		c.olds++
	} else {
		c.news++
	}
}

// either checks that a crash left what was before or what came after, or is refused.
func (c *crash) either(b []byte) {
	c.t.Helper()
	switch got, err := c.restart(b); {
	case errors.Is(err, ErrDamaged):
		c.refused++
	case err != nil:
		c.t.Fatalf("%s: %v", c.op, err)
	case reflect.DeepEqual(got, c.old):
		c.olds++
	case reflect.DeepEqual(got, c.new):
		c.news++
	default:
		c.t.Fatalf("%s: the crash left %s, neither %s nor %s", c.op, got.brief(), c.old.brief(), c.new.brief())
	}
}

func (c content) brief() string {
	return fmt.Sprintf("entries %d to %d, term %d, vote %d %q", c.first, c.last, c.term, c.voteTerm, c.vote)
}

// restart reads what a crash left as a start does; of many, one also goes on to be written.
func (c *crash) restart(b []byte) (content, error) {
	c.images++
	if c.images%97 == 0 {
		c.restarts++
		got, err := contentOfFile(c.t, c.copied, b)
		return got.plain(), err
	}
	read, err := parseBolt(b)
	if err != nil {
		return content{}, err
	}
	return contentOfBolt(read).plain(), nil
}

func contentOfBolt(read boltContent) content {
	t := read.tail()
	c := content{first: t.First, last: t.Last, vote: string(read.values[keyVoteCandidate])}
	for _, e := range read.entries {
		c.entries = append(c.entries, *e)
	}
	if b := read.values[keyCurrentTerm]; b != nil {
		c.term = uint64(b[7])
	}
	if b := read.values[keyVoteTerm]; b != nil {
		c.voteTerm = uint64(b[7])
	}
	return c
}

// TestHalfAVoteIsNone: raft stores the term of a vote, then the candidate. After a crash between the two it must not take
// the candidate of the term before for the one that it voted for.
func TestHalfAVoteIsNone(t *testing.T) {
	s, _ := newBolt(t)
	for name, s := range map[string]logStore{"file": s, "memory": MemoryStores().log} {
		if err := errors.Join(s.SetUint64([]byte(keyVoteTerm), 4), s.Set([]byte(keyVoteCandidate), []byte("alpha/1")), s.SetUint64([]byte(keyVoteTerm), 5)); err != nil {
			t.Fatal(err)
		}
		if v, err := s.Get([]byte(keyVoteCandidate)); !errors.Is(err, errNotFound) {
			t.Errorf("%s: in term 5 it has voted for %q, %v", name, v, err)
		}
	}
}

// TestCrashWhileAFileIsReplaced: the identity, the promise and the snapshots get their name when they are whole. At every
// byte, what was there before is there still.
func TestCrashWhileAFileIsReplaced(t *testing.T) {
	for _, former := range []string{"", `{"node":"alpha","id":"1"}`} {
		dir := t.TempDir()
		records := dirRecords(dir)
		if former != "" {
			if err := records.save(identityRecord, []byte(former)); err != nil {
				t.Fatal(err)
			}
		}
		whole := sealRecord([]byte(`{"node":"alpha","id":"2"}`))
		for n := range len(whole) + 1 {
			overwrite(t, dir, identityRecord+".tmp", whole[:n])
			if b, err := records.load(identityRecord); err != nil || string(b) != former {
				t.Fatalf("cut at %d: %q, %v", n, b, err)
			}
			if n < len(whole) { // had it got its name too early, that would be noticed
				if _, err := openRecord(whole[:n]); !errors.Is(err, ErrDamaged) {
					t.Fatalf("%d bytes of a record: %v", n, err)
				}
			}
		}
		if err := records.save(identityRecord, []byte("new")); err != nil {
			t.Fatal(err)
		}
		if b, err := records.load(identityRecord); err != nil || string(b) != "new" {
			t.Errorf("%q, %v", b, err)
		}
	}
}

// TestCrashBetweenSnapshotAndLog: a snapshot is stored, then the log is cut. At every byte of the snapshot and between the
// two, the node starts, and has every entry from the snapshot or from the log.
func TestCrashBetweenSnapshotAndLog(t *testing.T) {
	for _, received := range []bool{false, true} {
		index, first, last := uint64(50), uint64(1), uint64(80)
		if received {
			index = 120
		}
		dir := t.TempDir()
		s, err := openDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := loadIdentity(s, "alpha"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.log.SetUint64([]byte(keyCurrentTerm), 9), s.log.StoreLogs(someEntries(first, last)), s.close()); err != nil {
			t.Fatal(err)
		}
		c := raft.Configuration{Servers: []raft.Server{{ID: "alpha/1", Address: "alpha/1"}}}
		whole, err := encodeSnapshot(snapshotHead{Index: index, Term: 8, Configuration: raft.EncodeConfiguration(c), ConfigIndex: 1}, encodeImage(index, "id", nil))
		if err != nil {
			t.Fatal(err)
		}
		const name = "raft/snapshots/0000000000000001" + snapshotSuffix
		for n := 0; n <= len(whole); n += 1 + n/5 { // each is a start
			overwrite(t, dir, name+".tmp", whole[:n])
			if err := tryStart(dir); err != nil {
				t.Fatalf("%d bytes of the snapshot: %v", n, err)
			}
		}
		for n := range whole {
			if _, _, err := decodeSnapshot(whole[:n]); !errors.Is(err, ErrDamaged) {
				t.Fatalf("%d bytes of a snapshot: %v", n, err)
			}
		}
		overwrite(t, dir, name, whole) // it has its name, and the log is not cut yet
		if err := tryStart(dir); err != nil {
			t.Fatal(err)
		}
		if s, err = openDir(dir); err != nil {
			t.Fatal(err)
		}
		got := mustContent(t, s.log)
		if want := last; received {
			if got.last != 0 || got.term != 9 {
				t.Errorf("after a snapshot up to %d: %s", index, got.brief())
			}
		} else if got.first != 1 || got.last != want {
			t.Errorf("after a snapshot up to %d: %s", index, got.brief())
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
}
