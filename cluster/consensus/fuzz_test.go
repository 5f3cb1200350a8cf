package consensus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"
)

func FuzzJoinMessage(f *testing.F) {
	for _, v := range []any{question{Node: "a", ID: "1", Voters: []string{"a", "b"}, Promise: true}, answer{Node: "b", ID: "2", Formed: true},
		question{Node: "a", ID: "1", Line: "l", Run: run{7, []string{"r", "s"}}},
		answer{Node: "b", ID: "2", Starting: true, Gone: true, Coordinator: "c", Line: "m", Known: begun{8, "t"},
			Fork: &fork{Line: "m", After: "l", By: identity{"b", "2"}, Dismissed: []identity{{"a", "1"}}, Reason: "r", Forced: true}}} {
		var b bytes.Buffer
		if err := writeMessage(&b, v); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	self := run{7, []string{"r", "s"}}
	f.Fuzz(func(t *testing.T, b []byte) {
		var q question
		r := bytes.NewReader(b)
		if err := readMessage(r, &q); err == nil {
			used := len(b) - r.Len()
			if size := int(binary.BigEndian.Uint32(b)); used != 4+size || size > maxMessage {
				t.Errorf("a message of %d bytes took %d", size, used)
			}
			_ = q.Run.follows(self.begun()) // must not panic, whatever it says
		}
		var a answer
		if err := readMessage(bytes.NewReader(b), &a); err != nil {
			return
		}
		_ = self.follows(a.Known)
		var again bytes.Buffer
		if err := writeMessage(&again, a); errors.Is(err, errMessage) {
			return // escaping made it longer than a message may be
		} else if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		var back answer
		if err := readMessage(&again, &back); err != nil || !reflect.DeepEqual(back, a) {
			t.Errorf("%+v comes back as %+v, %v", a, back, err)
		}
	})
}

func FuzzGreeting(f *testing.F) {
	self := identity{"alpha", "1"}
	f.Add(greeting(self, ""))
	f.Add(greeting(self, "line"))
	f.Add(append([]byte{byte(len("alpha/1/"))}, "alpha/1/"...))
	f.Add(greeting(identity{"alpha", "2"}, ""))
	f.Add([]byte{255})
	f.Fuzz(func(t *testing.T, b []byte) {
		line, err := readGreeting(bytes.NewReader(b), self)
		if err == nil && !bytes.HasPrefix(b, greeting(self, line)) || err != nil && bytes.HasPrefix(b, greeting(self, "")) {
			t.Errorf("%q: line %q, %v", b, line, err)
		}
	})
}

func FuzzStoreRecords(f *testing.F) {
	f.Add(encodeEntryRecord(7))
	f.Add(seal(tailKey, make([]byte, 20)))
	f.Add(sealRecord([]byte(`{"node":"a","id":"1"}`)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := decodeEntry(7, b); err == nil {
			if again := seal(entryKey(7), unsealed(encodeEntry(&e))); !bytes.Equal(again, b) {
				t.Errorf("entry %x comes back as %x", b, again)
			}
		}
		if _, err := decodeTail(b); err != nil && !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
		if v, err := openRecord(b); err == nil && !bytes.Equal(sealRecord(v), b) {
			t.Errorf("record %q comes back as %q", b, v)
		}
		_, _ = decodeMeta(b)
	})
}

func encodeEntryRecord(index uint64) []byte {
	return encodeEntry(&raft.Log{Index: index, Term: 3, Type: raft.LogCommand, Data: []byte("data"), Extensions: []byte{1}})
}

// unsealed drops the checksum.
func unsealed(b []byte) []byte { return b[4:] }

func FuzzSnapshot(f *testing.F) {
	whole, err := encodeSnapshot(snapshotHead{Index: 5, Term: 2, Configuration: []byte("c")}, encodeImage(5, "id", []byte("state")))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(encodeImage(5, "id", []byte("state"))))
	f.Add([]byte(encodeImage(5, "id", []byte("state"), fork{Line: "l", By: identity{"a", "1"}})))
	f.Add([]byte(snapshotMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, state, err := decodeSnapshot(b); err == nil {
			_, _ = decodeImage(state)
		}
		if d, err := decodeImage(b); err == nil {
			// Not the bytes: the forks may be written in more ways than one.
			again, err := decodeImage(encodeImage(d.index, d.cluster, d.state, d.forks...))
			if err != nil || again.index != d.index || again.cluster != d.cluster || !bytes.Equal(again.state, d.state) ||
				len(again.forks) != min(len(d.forks), maxForks) {
				t.Errorf("image %x comes back as %+v, %v", b, again, err)
			}
		}
	})
}
