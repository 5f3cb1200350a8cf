package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"github.com/hashicorp/raft"
)

// The layout of a bbolt file (go.etcd.io/bbolt v1.5.0, internal/common: page.go, meta.go, bucket.go). All numbers are in
// the byte order of the machine. Pages 0 and 1 are meta pages, of which the one with the greater transaction counts.
const (
	pageFlagsAt    = 8
	pageCountAt    = 10
	pageOverflowAt = 12
	pageHead       = 16
	branchPage     = 0x01
	leafPage       = 0x02

	// An element of a branch is: position and size of the key, page of the child; of a leaf: flags, position and size
	// of the key, size of the value, which follows the key. Positions count from the element.
	elementSize = 16
	bucketFlag  = 0x01

	bucketHead = 16 // root page, or 0 when a leaf page follows; sequence

	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	metaMagicAt    = pageHead
	metaVersionAt  = pageHead + 4
	metaPageSizeAt = pageHead + 8
	metaRootAt     = pageHead + 16
	metaPagesAt    = pageHead + 40 // the number of pages in use
	metaTxAt       = pageHead + 48
	metaSumAt      = pageHead + 56 // FNV-1a of the meta before it
	metaSize       = pageHead + 64

	minPageSize, maxPageSize = 1 << 10, 1 << 16
)

// boltMeta is what a meta page says.
type boltMeta struct {
	pageSize, pages, root, tx uint64
}

func decodeMeta(page []byte) (boltMeta, error) {
	if len(page) < metaSize {
		return boltMeta{}, fmt.Errorf("%w: meta page of %d bytes", ErrDamaged, len(page))
	}
	order := binary.NativeEndian
	if order.Uint32(page[metaMagicAt:]) != boltMagic || order.Uint32(page[metaVersionAt:]) != boltVersion {
		return boltMeta{}, fmt.Errorf("%w: not a log file", ErrDamaged)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(page[pageHead:metaSumAt])
	if sum.Sum64() != order.Uint64(page[metaSumAt:]) {
		return boltMeta{}, fmt.Errorf("%w: meta page checksum mismatch", ErrDamaged)
	}
	m := boltMeta{
		pageSize: uint64(order.Uint32(page[metaPageSizeAt:])), pages: order.Uint64(page[metaPagesAt:]),
		root: order.Uint64(page[metaRootAt:]), tx: order.Uint64(page[metaTxAt:]),
	}
	if m.pageSize < minPageSize || m.pageSize > maxPageSize {
		return boltMeta{}, fmt.Errorf("%w: pages of %d bytes", ErrDamaged, m.pageSize)
	}
	return m, nil
}

// newestMeta returns the meta page that counts. Both must be good: bbolt would fall back to the transaction before the
// last when one is not, which is right after a write that was cut, and loses a vote or an entry without a word after
// damage. The two cannot be told apart; but a meta page is written in one sector, so that a power cut leaves the
// old or the new one, and damage it is.
func newestMeta(b []byte) (boltMeta, error) {
	first, err := decodeMeta(b)
	if err != nil {
		return boltMeta{}, fmt.Errorf("first page: %w", err)
	}
	second, err := decodeMeta(b[min(first.pageSize, uint64(len(b))):])
	if err != nil {
		return boltMeta{}, fmt.Errorf("second page: %w", err)
	}
	if first.pageSize != second.pageSize {
		return boltMeta{}, fmt.Errorf("%w: pages of %d and of %d bytes", ErrDamaged, first.pageSize, second.pageSize)
	}
	if second.tx > first.tx {
		return second, nil
	}
	return first, nil
}

// readBolt reads a whole file and checks it: the entries that the tail promises, without a gap, and the values, each
// with its checksum.
//
// It does not use bbolt, which follows whatever a page says: it panics, faults on a file that is shorter than it
// should be, takes an empty file for a new one, and goes round in a ring of pages until memory is out.
func readBolt(path string) (boltContent, error) {
	b, err := readUsed(path)
	if err != nil {
		return boltContent{}, fmt.Errorf("read %s: %w", path, err)
	}
	c, err := parseBolt(b)
	if err != nil {
		return c, fmt.Errorf("read %s: %w", path, err)
	}
	return c, nil
}

// readUsed reads the pages in use, and not the reserve behind them.
func readUsed(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	head := make([]byte, maxPageSize+metaSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	m, err := newestMeta(head[:n])
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if uint64(info.Size())/m.pageSize < m.pages {
		return nil, fmt.Errorf("%w: it has %d bytes, which is less than its %d pages", ErrDamaged, info.Size(), m.pages)
	}
	b := make([]byte, m.pages*m.pageSize)
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, err
	}
	return b, nil
}

// parseBolt reads the content of a file.
func parseBolt(b []byte) (boltContent, error) {
	m, err := newestMeta(b)
	if err != nil {
		return boltContent{}, err
	}
	if m.pages > uint64(len(b))/m.pageSize {
		return boltContent{}, fmt.Errorf("%w: %d bytes are less than its %d pages", ErrDamaged, len(b), m.pages)
	}
	f := boltPages{bytes: b[:m.pages*m.pageSize], size: m.pageSize, seen: make(map[uint64]bool)}
	parts := make(map[string]boltBucket)
	err = f.walk(m.root, bucketFlag, func(name, head []byte) error {
		parts[string(name)] = boltBucket{f, head}
		return nil
	})
	if err != nil {
		return boltContent{}, err
	}
	for _, name := range [][]byte{entryBucket, valueBucket, tailBucket} {
		if _, there := parts[string(name)]; !there {
			return boltContent{}, fmt.Errorf("%w: the part %q is gone", ErrDamaged, name)
		}
	}
	var t *tail
	err = parts[string(tailBucket)].each(func(k, v []byte) error {
		got, err := decodeTail(v)
		t = &got
		return err
	})
	if err == nil && t == nil {
		err = fmt.Errorf("%w: the tail is gone", ErrDamaged)
	}
	if err != nil {
		return boltContent{}, err
	}
	var c boltContent
	if c.entries, err = readEntries(parts[string(entryBucket)], *t); err != nil {
		return boltContent{}, err
	}
	c.values, err = readValues(parts[string(valueBucket)], *t)
	return c, err
}

// boltPages are the pages of a file. Each belongs to one place in one tree.
type boltPages struct {
	bytes []byte
	size  uint64
	seen  map[uint64]bool
}

// page returns a page with what overflows from it, once.
func (f boltPages) page(id uint64) ([]byte, error) {
	all := uint64(len(f.bytes)) / f.size
	if id < 2 || id >= all || f.seen[id] {
		return nil, fmt.Errorf("%w: page %d of %d out of place", ErrDamaged, id, all)
	}
	f.seen[id] = true
	page := f.bytes[id*f.size:]
	more := uint64(binary.NativeEndian.Uint32(page[pageOverflowAt:]))
	if binary.NativeEndian.Uint64(page) != id || more >= all-id {
		return nil, fmt.Errorf("%w: page %d is not a page", ErrDamaged, id)
	}
	return page[:(1+more)*f.size], nil
}

// walk gives every key and value below a page, each of which must have those flags.
func (f boltPages) walk(id uint64, flags uint32, each func(key, value []byte) error) error {
	page, err := f.page(id)
	if err != nil {
		return err
	}
	if binary.NativeEndian.Uint16(page[pageFlagsAt:]) != branchPage {
		return leaf(page, flags, each)
	}
	count := int(binary.NativeEndian.Uint16(page[pageCountAt:]))
	for i := range count {
		at := pageHead + i*elementSize
		if at+elementSize > len(page) {
			return fmt.Errorf("%w: page %d has no room for %d children", ErrDamaged, id, count)
		}
		if err := f.walk(binary.NativeEndian.Uint64(page[at+8:]), flags, each); err != nil {
			return err
		}
	}
	return nil
}

// leaf gives every key and value of a leaf page.
func leaf(page []byte, flags uint32, each func(key, value []byte) error) error {
	order := binary.NativeEndian
	if len(page) < pageHead || order.Uint16(page[pageFlagsAt:]) != leafPage {
		return fmt.Errorf("%w: a page is no leaf", ErrDamaged)
	}
	count := int(order.Uint16(page[pageCountAt:]))
	for i := range count {
		at := pageHead + i*elementSize
		if at+elementSize > len(page) {
			return fmt.Errorf("%w: a page has no room for %d records", ErrDamaged, count)
		}
		start := uint64(at) + uint64(order.Uint32(page[at+4:]))
		value := start + uint64(order.Uint32(page[at+8:]))
		end := value + uint64(order.Uint32(page[at+12:]))
		if order.Uint32(page[at:]) != flags || end > uint64(len(page)) {
			return fmt.Errorf("%w: record %d of a page is out of place", ErrDamaged, i)
		}
		if err := each(page[start:value:value], page[value:end:end]); err != nil {
			return err
		}
	}
	return nil
}

// boltBucket is a part of a file: its head says where it is.
type boltBucket struct {
	pages boltPages
	head  []byte
}

func (b boltBucket) each(f func(key, value []byte) error) error {
	if len(b.head) < bucketHead {
		return fmt.Errorf("%w: a part has a head of %d bytes", ErrDamaged, len(b.head))
	}
	if root := binary.NativeEndian.Uint64(b.head); root != 0 {
		return b.pages.walk(root, 0, f)
	}
	return leaf(b.head[bucketHead:], 0, f)
}

func readEntries(bucket boltBucket, t tail) ([]*raft.Log, error) {
	var all []*raft.Log
	next := t.First
	err := bucket.each(func(k, v []byte) error {
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

func readValues(bucket boltBucket, t tail) (map[string][]byte, error) {
	all := make(map[string][]byte)
	err := bucket.each(func(k, v []byte) error {
		value, err := unseal(k, v)
		all[string(k)] = append([]byte(nil), value...)
		return err
	})
	if err == nil && len(all) != int(t.Values) {
		return nil, fmt.Errorf("%w: it has %d values, not %d", ErrDamaged, len(all), t.Values)
	}
	return all, err
}
