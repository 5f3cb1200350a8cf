package consensus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

func newBolt(t *testing.T) (*boltLog, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log.db")
	if err := createBolt(path, boltContent{}); err != nil {
		t.Fatal(err)
	}
	s, err := openBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	return s, path
}

func someEntries(first, last uint64) []*raft.Log {
	var all []*raft.Log
	for i := first; i <= last; i++ {
		all = append(all, &raft.Log{
			Index: i, Term: i/10 + 1, Type: raft.LogCommand,
			Data: bytes.Repeat([]byte{byte(i)}, int(i%50)), Extensions: bytes.Repeat([]byte{1}, int(i%2)),
		})
	}
	return all
}

// content is everything that a store holds.
type content struct {
	first, last uint64
	entries     []raft.Log
	term        uint64
	voteTerm    uint64
	vote        string
}

func contentOf(s logStore) (c content, err error) {
	c.first, _ = s.FirstIndex()
	c.last, _ = s.LastIndex()
	for i := c.first; i != 0 && i <= c.last; i++ {
		var e raft.Log
		if err := s.GetLog(i, &e); err != nil {
			return c, err
		}
		c.entries = append(c.entries, e)
	}
	if c.term, err = s.GetUint64([]byte(keyCurrentTerm)); err != nil && !errors.Is(err, errNotFound) {
		return c, err
	}
	if c.voteTerm, err = s.GetUint64([]byte(keyVoteTerm)); err != nil && !errors.Is(err, errNotFound) {
		return c, err
	}
	vote, err := s.Get([]byte(keyVoteCandidate))
	if err != nil && !errors.Is(err, errNotFound) {
		return c, err
	}
	c.vote = string(vote)
	return c, nil
}

// fill writes what a voter writes, in several transactions.
func fill(t *testing.T, s logStore) {
	t.Helper()
	for _, step := range []func() error{
		func() error { return s.SetUint64([]byte(keyCurrentTerm), 7) },
		func() error { return s.StoreLogs(someEntries(1, 200)) },
		func() error { return s.Set([]byte("LastVoteCand"), []byte("alpha/1")) },
		func() error { return s.DeleteRange(1, 60) },
		func() error { return s.DeleteRange(191, 200) },
		func() error { return s.StoreLog(someEntries(191, 191)[0]) },
		func() error { return s.SetUint64([]byte(keyCurrentTerm), 8) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBoltKeepsWhatItWasGiven(t *testing.T) {
	s, path := newBolt(t)
	if c, err := contentOf(s); err != nil || !reflect.DeepEqual(c, content{}) {
		t.Fatalf("new store holds %+v, %v", c, err)
	}
	fill(t, s)
	memory := MemoryStores().log
	fill(t, memory)
	want, err := contentOf(memory)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // now, and after a restart
		got, err := contentOf(s)
		if err != nil {
			t.Fatal(err)
		}
		if got.first != 61 || got.last != 191 || got.term != 8 || got.vote != "alpha/1" {
			t.Errorf("first %d, last %d, term %d, vote %s", got.first, got.last, got.term, got.vote)
		}
		for i := range got.entries {
			if got, want := got.entries[i], want.entries[i]; got.Index != want.Index || got.Term != want.Term ||
				!bytes.Equal(got.Data, want.Data) || !bytes.Equal(got.Extensions, want.Extensions) {
				t.Fatalf("got %+v, want %+v", got, want)
			}
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		if s, err = openBolt(path); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.close() })
	}
	var e raft.Log
	if err := s.GetLog(60, &e); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("a deleted entry: %v", err)
	}
	if err := s.StoreLogs(someEntries(193, 193)); err == nil {
		t.Error("a gap was stored")
	}
	if err := s.DeleteRange(100, 110); err == nil {
		t.Error("the middle was deleted")
	}
	if err := s.DeleteRange(1, 1000); err != nil {
		t.Error(err)
	}
	if err := s.StoreLogs(someEntries(500, 510)); err != nil {
		t.Errorf("after a snapshot: %v", err)
	}
}

func TestDataFolderIsForOneProcess(t *testing.T) {
	dir := t.TempDir()
	s, err := openDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openDir(dir); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("opened twice: %v", err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if s, err = openDir(dir); err != nil {
		t.Fatalf("after the first one closed it: %v", err)
	}
	_ = s.close()
}

// Whatever one byte is changed to: the store says that it is damaged, or it holds exactly
// what was written.
func TestFlippedByteIsNoticed(t *testing.T) {
	t.Parallel()
	s, path := newBolt(t)
	fill(t, s)
	want, err := contentOf(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	copied := filepath.Join(t.TempDir(), "log.db")
	noticed, harmless := 0, 0
	for at := 0; at < len(good); at += 1 + random.IntN(240) {
		bad := bytes.Clone(good)
		bad[at] ^= byte(1 + random.IntN(255))
		got, err := contentOfFile(t, copied, bad)
		switch {
		case errors.Is(err, ErrDamaged):
			noticed++
		case err != nil:
			// bbolt's own words: good enough, it does not start
			noticed++
		case !reflect.DeepEqual(got, want):
			t.Fatalf("byte %d changed: the store went on with first %d, last %d, term %d, vote %q", at, got.first, got.last, got.term, got.vote)
		default:
			harmless++
		}
	}
	t.Logf("%d of %d noticed, the rest in free space", noticed, noticed+harmless)
	if noticed == 0 || harmless == 0 {
		t.Error("the test does not test")
	}
}

// contentOfFile opens a file made of those bytes, reads it and writes one entry.
func contentOfFile(t *testing.T, path string, b []byte) (content, error) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := openBolt(path)
	if err != nil {
		return content{}, err
	}
	defer s.close()
	c, err := contentOf(s)
	if err != nil {
		return c, err
	}
	return c, newGuard(time.Minute, func(error) {}).do("write", func() error { return s.StoreLogs(someEntries(c.last+1, c.last+1)) })
}

func TestTruncatedFileIsNoticed(t *testing.T) {
	s, path := newBolt(t)
	fill(t, s)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pages := int(binary.NativeEndian.Uint64(good[metaPagesAt:]))
	for _, size := range []int{0, 1, 100, 4096, 8192, 4*4096 - 1, pages*4096/2 + 5, (pages - 1) * 4096, pages*4096 - 1} {
		copied := filepath.Join(t.TempDir(), "log.db")
		if _, err := contentOfFile(t, copied, good[:size]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut to %d of %d bytes: %v", size, len(good), err)
		}
	}
}

func TestNothingStartsEmptyInPlaceOfItsLog(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, dir string){
		"log gone":              func(t *testing.T, dir string) { remove(t, dir, "raft/log.db") },
		"log empty":             func(t *testing.T, dir string) { overwrite(t, dir, "raft/log.db", nil) },
		"identity gone":         func(t *testing.T, dir string) { remove(t, dir, "identity") },
		"identity empty":        func(t *testing.T, dir string) { overwrite(t, dir, "identity", nil) },
		"identity garbled":      func(t *testing.T, dir string) { flip(t, dir, "identity", 40) },
		"promise garbled":       func(t *testing.T, dir string) { flip(t, dir, "promise", 40) },
		"snapshot garbled":      func(t *testing.T, dir string) { flip(t, dir, snapshotName(t, dir), 60) },
		"snapshot cut":          func(t *testing.T, dir string) { overwrite(t, dir, snapshotName(t, dir), []byte(snapshotMagic)) },
		"snapshots gone":        func(t *testing.T, dir string) { removeAll(t, dir, "raft/snapshots") },
		"log of another, older": func(t *testing.T, dir string) { overwrite(t, dir, "raft/log.db", make([]byte, 32768)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := loadIdentity(prepare(t, dir), "alpha"); err != nil {
				t.Fatalf("unharmed: %v", err)
			}
			harm(t, dir)
			for range 2 { // and a second attempt must not find it mended by the first
				if err := tryStart(dir); !errors.Is(err, ErrDamaged) {
					t.Errorf("started: %v", err)
				}
			}
		})
	}
}

// prepare makes a data folder with all that a voter has, and leaves it closed.
func prepare(t *testing.T, dir string) *Stores {
	t.Helper()
	s, err := openDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loadIdentity(s, "alpha"); err != nil {
		t.Fatal(err)
	}
	fill(t, s.log)
	c := raft.Configuration{Servers: []raft.Server{{ID: "alpha/1", Address: "alpha/1"}}}
	sink, err := s.snapshots.Create(1, 100, 8, c, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write(encodeImage(100, "id", nil)); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.records.save(promiseRecord, []byte(`{"to":{"node":"alpha","id":"1"}}`)); err != nil {
		t.Fatal(err)
	}
	if err := s.mend(); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	s, err = openDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	if got, err := s.used(); err != nil || !got {
		t.Fatalf("used: %v, %v", got, err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	return &Stores{log: MemoryStores().log, snapshots: s.snapshots, records: s.records}
}

// tryStart does what Start does with a data folder.
func tryStart(dir string) error {
	s, err := openDir(dir)
	if err != nil {
		return err
	}
	defer s.close()
	if _, err := loadIdentity(s, "alpha"); err != nil {
		return err
	}
	if _, err := loadPromise(s.records); err != nil {
		return err
	}
	return s.mend()
}

func snapshotName(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "raft/snapshots/*"+snapshotSuffix))
	if err != nil || len(found) != 1 {
		t.Fatalf("snapshots %v, %v", found, err)
	}
	return strings.TrimPrefix(found[0], dir)
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func removeAll(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func overwrite(t *testing.T, dir, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func flip(t *testing.T, dir, name string, at int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 4
	overwrite(t, dir, name, b)
}

func TestDataFolderBelongsToOneNode(t *testing.T) {
	dir := t.TempDir()
	prepare(t, dir)
	s, err := openDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if _, err := loadIdentity(s, "beta"); !errors.Is(err, ErrConfig) {
		t.Errorf("beta took alpha's data: %v", err)
	}
}

func TestSnapshotsAreNumberedNotDated(t *testing.T) {
	dir := t.TempDir()
	s, err := openSnapshots(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := raft.Configuration{Servers: []raft.Server{{ID: "alpha/1", Address: "alpha/1", Suffrage: raft.Nonvoter}}}
	for i := range 4 {
		sink, err := s.Create(1, 7, 3, c, 2, nil) // the same term and index each time
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(sink, "state %d", i)
		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
		// A file from "the future" must not win.
		if err := os.Chtimes(s.path(uint64(i+1)), time.Now(), time.Now().Add(-time.Duration(i)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	given, err := s.Create(1, 9, 3, c, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(given.Cancel(), given.Close()); err != nil {
		t.Fatal(err)
	}
	overwrite(t, dir, "0000000000000009.snapshot.tmp", []byte("half"))
	if s, err = openSnapshots(dir); err != nil {
		t.Fatal(err)
	}
	list, err := s.List()
	if err != nil || len(list) != snapshotsKept {
		t.Fatalf("list %v, %v", list, err)
	}
	meta, r, err := s.Open(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil || b.String() != "state 3" || meta.Size != 7 {
		t.Errorf("newest is %q, %+v, %v", b.String(), meta, err)
	}
	if meta.Index != 7 || meta.Term != 3 || meta.ConfigurationIndex != 2 || !reflect.DeepEqual(meta.Configuration, c) {
		t.Errorf("%+v", meta)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != snapshotsKept {
		t.Errorf("files %v", left)
	}
}

// The whole log on real files, killed and started again.
func TestClusterOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		for _, n := range c.nodes {
			n.stores, n.dir = nil, filepath.Join(t.TempDir(), "hamgr")
		}
		c.startAll()
		for round := range 3 {
			leader := c.coordinator(3 * time.Second)
			for i := range 20 {
				leader.mustPropose(fmt.Sprint(round, "-", i))
			}
			index := leader.mustPropose("end")
			for _, n := range c.nodes {
				if err := n.log.WaitApplied(t.Context(), index); err != nil {
					t.Fatal(err)
				}
				if got := len(n.fsm.entries()); got != (round+1)*21 {
					t.Errorf("round %d: %s applied %d", round, n.name, got)
				}
				if round == 1 {
					if err := n.log.raft.Snapshot().Error(); err != nil {
						t.Error(err)
					}
				}
			}
			c.mustAgree()
			for _, n := range c.nodes {
				n.stop()
			}
			if round == 1 { // wiped for real
				removeAll(t, c.nodes["blpha"].dir, ".")
			}
			c.startAll()
		}
		c.allVote(3 * time.Second)
	})
}
