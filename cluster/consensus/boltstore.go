package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// boltLog keeps raft's entries and its few durable values (term, vote) in one bbolt file.
// Every call is one transaction, synced before it returns.
//
// bbolt checks only its two meta pages. So each record carries a checksum, and one record,
// the tail, says which entries and how many values there are: what is lost in a damaged
// page is missed (verify.go).
type boltLog struct {
	db  *bbolt.DB
	dir string

	mu   sync.Mutex // held by writers; guards tail
	tail tail
}

// tail is the bookkeeping of a file. First and Last are 0 when there are no entries.
type tail struct {
	First, Last uint64
	Values      uint32
}

var (
	entryBucket = []byte("entries")
	valueBucket = []byte("values")
	tailBucket  = []byte("tail")
	tailKey     = []byte("tail")
)

// lockTimeout bounds the wait for another process that still has the file open.
const lockTimeout = time.Second

// boltContent is all that a file holds.
type boltContent struct {
	entries []*raft.Log
	values  map[string][]byte
}

func (c boltContent) tail() tail {
	t := tail{Values: uint32(len(c.values))}
	if n := len(c.entries); n > 0 {
		t.First, t.Last = c.entries[0].Index, c.entries[n-1].Index
	}
	return t
}

// createBolt makes a file. It gets its name when it is complete, so that a crash leaves
// the former one, or nothing, but nothing that looks like damage.
func createBolt(path string, c boltContent) error {
	tmp := path + ".tmp"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make %s: %w", path, err)
	}
	db, err := bbolt.Open(tmp, 0o600, boltOptions())
	if err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("make %s: %w", path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return putContent(tx, c) })
	if err = errors.Join(err, db.Close()); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("make %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

func putContent(tx *bbolt.Tx, c boltContent) error {
	for _, name := range [][]byte{entryBucket, valueBucket, tailBucket} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	for _, e := range c.entries {
		if err := tx.Bucket(entryBucket).Put(entryKey(e.Index), encodeEntry(e)); err != nil {
			return err
		}
	}
	for k, v := range c.values {
		if err := tx.Bucket(valueBucket).Put([]byte(k), seal([]byte(k), v)); err != nil {
			return err
		}
	}
	return putTail(tx, c.tail())
}

// openBolt opens a file that createBolt made. One that is not what was written is an
// error that wraps ErrDamaged.
//
// The file is read, checked and written anew before it is opened for use. That keeps it
// small, for bbolt never gives space back; and bbolt, when it opens a damaged file for
// writing, panics in a goroutine of its own, out of reach.
func openBolt(path string) (*boltLog, error) {
	c, err := readBolt(path)
	if err != nil {
		return nil, err
	}
	if err = createBolt(path, c); isFull(err) { // the reserve of the old file has room for the new one
		if err = dropReserve(path); err == nil {
			err = createBolt(path, c)
		}
	}
	if err != nil {
		return nil, err
	}
	db, err := bbolt.Open(path, 0o600, boltOptions())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &boltLog{db: db, dir: filepath.Dir(path), tail: c.tail()}, nil
}

// dropReserve gives the blocks behind the pages in use back.
func dropReserve(path string) error {
	used, err := readUsed(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return os.Truncate(path, int64(len(used)))
}

func boltOptions() *bbolt.Options {
	return &bbolt.Options{
		Timeout:        lockTimeout,
		NoFreelistSync: true, // the list of free pages is found again at opening
		FreelistType:   bbolt.FreelistMapType,
	}
}

func (s *boltLog) close() error { return s.db.Close() }

// FirstIndex implements raft.LogStore.
func (s *boltLog) FirstIndex() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tail.First, nil
}

// LastIndex implements raft.LogStore.
func (s *boltLog) LastIndex() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tail.Last, nil
}

// GetLog implements raft.LogStore.
func (s *boltLog) GetLog(index uint64, entry *raft.Log) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		v := tx.Bucket(entryBucket).Get(entryKey(index))
		if v == nil {
			return raft.ErrLogNotFound
		}
		e, err := decodeEntry(index, v)
		if err != nil {
			return err
		}
		*entry = e
		return nil
	})
}

// StoreLog implements raft.LogStore.
func (s *boltLog) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore. Entries follow the last one without a gap.
func (s *boltLog) StoreLogs(entries []*raft.Log) error {
	return s.update(func(tx *bbolt.Tx, t *tail) error {
		bucket := tx.Bucket(entryBucket)
		bucket.FillPercent = 0.9 // entries only ever come at the end
		for _, e := range entries {
			if t.Last != 0 && e.Index != t.Last+1 {
				return fmt.Errorf("entry %d does not follow entry %d", e.Index, t.Last)
			}
			if err := bucket.Put(entryKey(e.Index), encodeEntry(e)); err != nil {
				return err
			}
			if t.First == 0 {
				t.First = e.Index
			}
			t.Last = e.Index
		}
		return nil
	})
}

// DeleteRange implements raft.LogStore: it cuts the head or the tail off.
func (s *boltLog) DeleteRange(first, last uint64) error {
	return s.update(func(tx *bbolt.Tx, t *tail) error {
		first, last = max(first, t.First), min(last, t.Last)
		if t.Last == 0 || first > last {
			return nil
		}
		if first != t.First && last != t.Last {
			return fmt.Errorf("entries %d to %d are in the middle of %d to %d", first, last, t.First, t.Last)
		}
		bucket := tx.Bucket(entryBucket)
		for i := first; i <= last; i++ {
			if err := bucket.Delete(entryKey(i)); err != nil {
				return err
			}
		}
		switch {
		case first == t.First && last == t.Last:
			t.First, t.Last = 0, 0
		case first == t.First:
			t.First = last + 1
		default:
			t.Last = first - 1
		}
		return nil
	})
}

// Set implements raft.StableStore. A new term of the vote ends the vote of the term before in the same transaction: raft
// stores the candidate in a second one, and after a crash between the two it would take the former candidate
// for the one that it voted for in the new term, and confirm that vote without a look at the candidate's log (v1.8.0,
// raft.go: persistVote, requestVote).
func (s *boltLog) Set(key, value []byte) error {
	return s.update(func(tx *bbolt.Tx, t *tail) error {
		bucket := tx.Bucket(valueBucket)
		if candidate := []byte(keyVoteCandidate); string(key) == keyVoteTerm && bucket.Get(candidate) != nil {
			t.Values--
			if err := bucket.Delete(candidate); err != nil {
				return err
			}
		}
		if bucket.Get(key) == nil {
			t.Values++
		}
		return bucket.Put(key, seal(key, value))
	})
}

// Get implements raft.StableStore.
func (s *boltLog) Get(key []byte) ([]byte, error) {
	var value []byte
	err := s.db.View(func(tx *bbolt.Tx) error {
		v := tx.Bucket(valueBucket).Get(key)
		if v == nil {
			return errNotFound
		}
		opened, err := unseal(key, v)
		value = append(value, opened...)
		return err
	})
	return value, err
}

// SetUint64 implements raft.StableStore.
func (s *boltLog) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (s *boltLog) GetUint64(key []byte) (uint64, error) {
	b, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("%w: value %s has %d bytes", ErrDamaged, key, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// update runs one transaction that keeps the tail in step.
func (s *boltLog) update(f func(*bbolt.Tx, *tail) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tail
	err := s.db.Update(func(tx *bbolt.Tx) error {
		if err := f(tx, &t); err != nil {
			return err
		}
		return putTail(tx, t)
	})
	if err == nil {
		s.tail = t
	}
	return refusal(s.dir, err)
}

func putTail(tx *bbolt.Tx, t tail) error {
	b := binary.BigEndian.AppendUint64(nil, t.First)
	b = binary.BigEndian.AppendUint64(b, t.Last)
	b = binary.BigEndian.AppendUint32(b, t.Values)
	return tx.Bucket(tailBucket).Put(tailKey, seal(tailKey, b))
}

func decodeTail(b []byte) (tail, error) {
	b, err := unseal(tailKey, b)
	if err != nil {
		return tail{}, err
	}
	if len(b) != 20 {
		return tail{}, fmt.Errorf("%w: tail of %d bytes", ErrDamaged, len(b))
	}
	return tail{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint32(b[16:])}, nil
}

func entryKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

// seal puts a checksum over key and value in front of the value.
func seal(key, value []byte) []byte {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	return append(binary.BigEndian.AppendUint32(nil, sum), value...)
}

func unseal(key, b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, fmt.Errorf("%w: record of %d bytes", ErrDamaged, len(b))
	}
	if crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, b[4:]) != binary.BigEndian.Uint32(b) {
		return nil, fmt.Errorf("%w: checksum mismatch in record %q", ErrDamaged, key)
	}
	return b[4:], nil
}

// entryHead is term, type and the length of the extensions.
const entryHead = 8 + 1 + 4

// encodeEntry leaves AppendedAt out: it is wall-clock time, which nothing here relies on.
func encodeEntry(e *raft.Log) []byte {
	b := make([]byte, 0, entryHead+len(e.Extensions)+len(e.Data))
	b = binary.BigEndian.AppendUint64(b, e.Term)
	b = append(b, byte(e.Type))
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Extensions)))
	b = append(append(b, e.Extensions...), e.Data...)
	return seal(entryKey(e.Index), b)
}

// decodeEntry copies: bbolt's memory is valid in the transaction only.
func decodeEntry(index uint64, v []byte) (raft.Log, error) {
	b, err := unseal(entryKey(index), v)
	if err != nil {
		return raft.Log{}, fmt.Errorf("entry %d: %w", index, err)
	}
	if len(b) < entryHead {
		return raft.Log{}, fmt.Errorf("entry %d: %w: %d bytes", index, ErrDamaged, len(b))
	}
	size := binary.BigEndian.Uint32(b[9:])
	if uint64(size) > uint64(len(b)-entryHead) {
		return raft.Log{}, fmt.Errorf("entry %d: %w: extensions of %d bytes", index, ErrDamaged, size)
	}
	rest := append([]byte(nil), b[entryHead:]...)
	return raft.Log{
		Index: index, Term: binary.BigEndian.Uint64(b), Type: raft.LogType(b[8]),
		Extensions: rest[:size:size], Data: rest[size:],
	}, nil
}
