package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"runtime/debug"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// The layout of bbolt's two meta pages (go.etcd.io/bbolt v1.5.0, internal/common: page.go,
// meta.go). All numbers are in the byte order of the machine.
const (
	boltPageHead   = 16
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	metaMagicAt    = boltPageHead
	metaVersionAt  = boltPageHead + 4
	metaPageSizeAt = boltPageHead + 8
	metaPagesAt    = boltPageHead + 40 // the number of pages in use
	metaSumAt      = boltPageHead + 56 // FNV-1a of the meta before it
	metaSize       = boltPageHead + 64
)

// checkFile looks at a file before bbolt does, which would take an empty file for a new
// one, fall back to the transaction before the last when one meta page is damaged,
// which loses a vote or an entry without a word, and fault on a file that is shorter than
// it should be.
//
// A meta page is written in one sector, so that a power cut leaves the old or the new one.
func checkFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	first := make([]byte, metaSize)
	if _, err := f.ReadAt(first, 0); err != nil {
		return fmt.Errorf("%w: %s: first page: %w", ErrDamaged, path, err)
	}
	pageSize := int64(binary.NativeEndian.Uint32(first[metaPageSizeAt:]))
	second := make([]byte, metaSize)
	if _, err := f.ReadAt(second, pageSize); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %s: second page: %w", ErrDamaged, path, err)
	}
	for _, page := range [][]byte{first, second} {
		pages, err := decodeMeta(page)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if uint64(info.Size())/uint64(pageSize) < pages {
			return fmt.Errorf("%w: %s has %d bytes, which is less than its %d pages", ErrDamaged, path, info.Size(), pages)
		}
	}
	return nil
}

// decodeMeta checks a meta page and returns how many pages the file has.
func decodeMeta(page []byte) (pages uint64, err error) {
	if len(page) < metaSize {
		return 0, fmt.Errorf("%w: meta page of %d bytes", ErrDamaged, len(page))
	}
	order := binary.NativeEndian
	if order.Uint32(page[metaMagicAt:]) != boltMagic || order.Uint32(page[metaVersionAt:]) != boltVersion {
		return 0, fmt.Errorf("%w: not a log file", ErrDamaged)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(page[boltPageHead:metaSumAt])
	if sum.Sum64() != order.Uint64(page[metaSumAt:]) {
		return 0, fmt.Errorf("%w: meta page checksum mismatch", ErrDamaged)
	}
	return order.Uint64(page[metaPagesAt:]), nil
}

// readBolt reads a whole file and checks it: the entries that the tail promises, without
// a gap, and the values, each with its checksum.
func readBolt(path string) (c boltContent, err error) {
	if err := checkFile(path); err != nil {
		return c, err
	}
	// A damaged page shows as a panic of bbolt or as a fault of its memory map.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %s: %v", ErrDamaged, path, p)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, ReadOnly: true})
	if err != nil {
		return c, fmt.Errorf("read %s: %w", path, err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		entries, values, bookkeeping := tx.Bucket(entryBucket), tx.Bucket(valueBucket), tx.Bucket(tailBucket)
		if entries == nil || values == nil || bookkeeping == nil {
			return fmt.Errorf("%w: a part of it is gone", ErrDamaged)
		}
		t, err := decodeTail(bookkeeping.Get(tailKey))
		if err != nil {
			return err
		}
		if c.entries, err = readEntries(entries, t); err != nil {
			return err
		}
		c.values, err = readValues(values, t)
		return err
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return c, fmt.Errorf("read %s: %w", path, err)
	}
	return c, nil
}

func readEntries(bucket *bbolt.Bucket, t tail) ([]*raft.Log, error) {
	var all []*raft.Log
	next := t.First
	err := bucket.ForEach(func(k, v []byte) error {
		if len(k) != 8 || next == 0 || next > t.Last || binary.BigEndian.Uint64(k) != next {
			return fmt.Errorf("%w: record %x where entry %d should be", ErrDamaged, k, next)
		}
		e, err := decodeEntry(next, v)
		if err != nil {
			return err
		}
		all = append(all, &e)
		next++
		return nil
	})
	if err == nil && t.Last != 0 && next != t.Last+1 {
		return nil, fmt.Errorf("%w: it ends with entry %d, not %d", ErrDamaged, next-1, t.Last)
	}
	return all, err
}

func readValues(bucket *bbolt.Bucket, t tail) (map[string][]byte, error) {
	all := make(map[string][]byte)
	err := bucket.ForEach(func(k, v []byte) error {
		value, err := unseal(k, v)
		all[string(k)] = append([]byte(nil), value...)
		return err
	})
	if err == nil && len(all) != int(t.Values) {
		return nil, fmt.Errorf("%w: it has %d values, not %d", ErrDamaged, len(all), t.Values)
	}
	return all, err
}
