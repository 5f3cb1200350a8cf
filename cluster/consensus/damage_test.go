package consensus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// livedFile is the log file of a voter that has lived, without its reserve, and what it holds.
func livedFile(t testing.TB) ([]byte, content) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log.db")
	if err := createBolt(path, boltContent{}); err != nil {
		t.Fatal(err)
	}
	s, err := openBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range voterLife()[:20] { // with many entries
		if err := op.do(s); err != nil {
			t.Fatal(err)
		}
	}
	c, err := contentOf(s)
	if err = errors.Join(err, s.close()); err != nil {
		t.Fatal(err)
	}
	b, err := readUsed(path)
	if err != nil {
		t.Fatal(err)
	}
	return b, c.plain()
}

// checkDamaged reads a damaged file: it is refused as damaged, or the damage was in free space.
func checkDamaged(t *testing.T, what string, b []byte, want content) (refused bool) {
	t.Helper()
	read, err := parseBolt(b)
	switch {
	case errors.Is(err, ErrDamaged):
		return true
	case err != nil:
		t.Fatalf("%s: %v", what, err)
	case !reflect.DeepEqual(contentOfBolt(read).plain(), want):
		t.Fatalf("%s: it went on with %s, not %s", what, contentOfBolt(read).brief(), want.brief())
	}
	return false
}

func TestDamagedPagesAreNoticed(t *testing.T) {
	const page = 4096
	good, want := livedFile(t)
	random := rand.New(rand.NewPCG(5, 6))
	refused := 0
	for at := 0; at < len(good); at += page {
		for name, harm := range map[string]func([]byte){
			"zeroed":                      func(b []byte) { clear(b) },
			"noise":                       func(b []byte) { noise(random, b) },
			"its first sector zeroed":     func(b []byte) { clear(b[:sector]) },
			"its last sectors noise":      func(b []byte) { noise(random, b[sector:]) },
			"replaced by the page before": func(b []byte) { copy(b, good[max(0, at-page):]) },
			"head zeroed":                 func(b []byte) { clear(b[:pageHead]) },
			"full of records":             func(b []byte) { b[pageCountAt], b[pageCountAt+1] = 0xff, 0xff },
			"overflowing":                 func(b []byte) { binary.NativeEndian.PutUint32(b[pageOverflowAt:], 1<<31) },
		} {
			bad := bytes.Clone(good)
			harm(bad[at : at+page])
			if checkDamaged(t, name, bad, want) {
				refused++
			}
		}
		if at > 0 && !checkDamaged(t, "cut off", good[:at], want) {
			t.Errorf("cut to %d bytes it went on", at)
		}
	}
	if refused < 20 {
		t.Errorf("%d refused: the test does not test", refused)
	}
}

func noise(random *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(random.Uint32())
	}
}

// TestRingOfPagesEnds: one wrong bit can make a page its own child. bbolt would follow it until memory is out.
func TestRingOfPagesEnds(t *testing.T) {
	good, want := livedFile(t)
	rings := 0
	for at := 2 * 4096; at < len(good); at += 4096 {
		if binary.NativeEndian.Uint16(good[at+pageFlagsAt:]) != branchPage {
			continue
		}
		bad := bytes.Clone(good)
		copy(bad[at+pageHead+8:], good[at:at+8]) // the first child is the page itself
		if checkDamaged(t, "ring", bad, want) {
			rings++
		}
	}
	if rings == 0 {
		t.Error("no branch page in use: the test does not test")
	}
}

func FuzzBoltFile(f *testing.F) {
	good, want := livedFile(f)
	f.Add([]byte{0, 0, 0, 0}, false)
	f.Add([]byte{64, 0, 1, 0}, true)  // transaction
	f.Add([]byte{32, 0, 1, 0}, true)  // root
	f.Add([]byte{24, 0, 16, 0}, true) // page size
	f.Add([]byte{10, 32, 255, 1}, false)
	f.Fuzz(func(t *testing.T, patch []byte, sealed bool) {
		b := bytes.Clone(good)
		for ; len(patch) >= 4; patch = patch[4:] { // where, two bytes of what
			at := int(binary.LittleEndian.Uint16(patch)) % (len(b) - 1)
			b[at], b[at+1] = b[at]^patch[2], b[at+1]^patch[3]
		}
		for at := 0; sealed && at <= 4096; at += 4096 { // as if bbolt itself had written it
			sum := fnv.New64a()
			sum.Write(b[at+pageHead : at+metaSumAt])
			binary.NativeEndian.PutUint64(b[at+metaSumAt:], sum.Sum64())
		}
		if !sealed {
			checkDamaged(t, "patched", b, want)
		} else if _, err := parseBolt(b); err != nil && !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
}

func TestDamageNamesTheFileAndTheCure(t *testing.T) {
	for name, harm := range map[string]struct {
		file string
		do   func(t *testing.T, dir string)
	}{
		"log gone":         {"raft/log.db", func(t *testing.T, dir string) { remove(t, dir, "raft/log.db") }},
		"log zeroed":       {"raft/log.db", func(t *testing.T, dir string) { overwrite(t, dir, "raft/log.db", make([]byte, 1<<16)) }},
		"log cut":          {"raft/log.db", func(t *testing.T, dir string) { cutTo(t, dir, "raft/log.db", 3*4096) }},
		"log cut in meta":  {"raft/log.db", func(t *testing.T, dir string) { cutTo(t, dir, "raft/log.db", 50) }},
		"identity garbled": {"identity", func(t *testing.T, dir string) { flip(t, dir, "identity", 20) }},
		"identity cut":     {"identity", func(t *testing.T, dir string) { cutTo(t, dir, "identity", 20) }},
		"promise garbled":  {"promise", func(t *testing.T, dir string) { flip(t, dir, "promise", 20) }},
		"snapshot garbled": {"raft/snapshots/", func(t *testing.T, dir string) { flip(t, dir, snapshotName(t, dir), 60) }},
		"snapshot cut":     {"raft/snapshots/", func(t *testing.T, dir string) { cutTo(t, dir, snapshotName(t, dir), 60) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			prepare(t, dir)
			harm.do(t, dir)
			err := tryStart(dir)
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), filepath.Join(dir, harm.file)) || !strings.Contains(err.Error(), "empty "+dir) {
				t.Errorf("%v", err)
			}
		})
	}
}

func cutTo(t *testing.T, dir, name string, size int64) {
	t.Helper()
	if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
		t.Fatal(err)
	}
}
