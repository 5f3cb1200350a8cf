package consensus

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
)

// snapshotFiles is raft's snapshot store in a folder: one file a snapshot, numbered. raft's
// own dates its snapshots, and of two with the same term and index the one with the later
// wall clock wins, though the other be newer (measured: an old configuration came back).
// Here the number decides, and the clock plays no part.
//
// A file is a magic line, the length of a JSON header, the header, the state, and the
// SHA-256 of all that. It gets its name after it was synced.
type snapshotFiles struct {
	dir string

	mu   sync.Mutex // guards next
	next uint64     // number of the next snapshot
}

const (
	snapshotMagic   = "hamgr snapshot 1\n"
	snapshotSuffix  = ".snapshot"
	snapshotsKept   = 2
	maxSnapshotHead = 1 << 20
	snapshotMargin  = 1 << 20 // of free space, that a snapshot leaves
)

// errNoRoom means that a snapshot was not taken. The log goes on without: it is only not cut.
var errNoRoom = errors.New("no room for a snapshot")

// snapshotHead describes a snapshot.
type snapshotHead struct {
	Index         uint64 `json:"index"`
	Term          uint64 `json:"term"`
	Configuration []byte `json:"configuration"` // raft's own encoding
	ConfigIndex   uint64 `json:"configuration_index"`
}

// openSnapshots opens or makes the folder, and removes what a crash left half written.
func openSnapshots(dir string) (*snapshotFiles, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the snapshot folder: %w", err)
	}
	s := &snapshotFiles{dir: dir, next: 1}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the snapshot folder: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, fmt.Errorf("remove a half-written snapshot: %w", err)
			}
		}
	}
	numbers, err := s.numbers()
	if err != nil {
		return nil, err
	}
	if len(numbers) > 0 {
		s.next = numbers[0] + 1
	}
	return s, nil
}

// numbers lists the snapshots, newest first.
func (s *snapshotFiles) numbers() ([]uint64, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("read the snapshot folder: %w", err)
	}
	var numbers []uint64
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), snapshotSuffix)
		if n, err := strconv.ParseUint(name, 10, 64); ok && err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	slices.Reverse(numbers)
	return numbers, nil
}

func (s *snapshotFiles) path(n uint64) string {
	return filepath.Join(s.dir, fmt.Sprintf("%016d%s", n, snapshotSuffix))
}

// List implements raft.SnapshotStore, newest first. A damaged snapshot is an error: raft
// would silently start from an older one, with entries between missing.
func (s *snapshotFiles) List() ([]*raft.SnapshotMeta, error) {
	numbers, err := s.numbers()
	if err != nil {
		return nil, err
	}
	var list []*raft.SnapshotMeta
	for _, n := range numbers {
		meta, _, err := s.read(n)
		if errors.Is(err, fs.ErrNotExist) {
			continue // replaced meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, meta)
	}
	return list, nil
}

// Open implements raft.SnapshotStore.
func (s *snapshotFiles) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return nil, nil, fmt.Errorf("snapshot %q: %w", id, err)
	}
	meta, state, err := s.read(n)
	if err != nil {
		return nil, nil, err
	}
	return meta, io.NopCloser(bytes.NewReader(state)), nil
}

func (s *snapshotFiles) read(n uint64) (*raft.SnapshotMeta, []byte, error) {
	b, err := os.ReadFile(s.path(n))
	if err != nil {
		return nil, nil, fmt.Errorf("read snapshot %d: %w", n, err)
	}
	head, state, err := decodeSnapshot(b)
	if err != nil {
		data := filepath.Join(s.dir, "..", "..") // Dir/raft/snapshots
		return nil, nil, cure(data, fmt.Errorf("read snapshot %d, %s: %w", n, s.path(n), err))
	}
	return &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: strconv.FormatUint(n, 10), Index: head.Index, Term: head.Term,
		Configuration: raft.DecodeConfiguration(head.Configuration), ConfigurationIndex: head.ConfigIndex, Size: int64(len(state)),
	}, state, nil
}

func encodeSnapshot(head snapshotHead, state []byte) ([]byte, error) {
	h, err := json.Marshal(head)
	if err != nil {
		return nil, fmt.Errorf("encode the snapshot header: %w", err)
	}
	b := binary.BigEndian.AppendUint32([]byte(snapshotMagic), uint32(len(h)))
	b = append(append(b, h...), state...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

func decodeSnapshot(b []byte) (head snapshotHead, state []byte, err error) {
	const fixed = len(snapshotMagic) + 4
	if len(b) < fixed+sha256.Size || string(b[:len(snapshotMagic)]) != snapshotMagic {
		return head, nil, fmt.Errorf("%w: not a snapshot", ErrDamaged)
	}
	body := b[:len(b)-sha256.Size]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], b[len(body):]) {
		return head, nil, fmt.Errorf("%w: checksum mismatch", ErrDamaged)
	}
	size := int64(binary.BigEndian.Uint32(body[len(snapshotMagic):]))
	if size > maxSnapshotHead || size > int64(len(body)-fixed) {
		return head, nil, fmt.Errorf("%w: header of %d bytes", ErrDamaged, size)
	}
	if err := json.Unmarshal(body[fixed:fixed+int(size)], &head); err != nil {
		return head, nil, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	return head, body[fixed+int(size):], nil
}

// Create implements raft.SnapshotStore. The state is gathered in memory and written by
// Close.
func (s *snapshotFiles) Create(_ raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.next
	s.next++
	head := snapshotHead{Index: index, Term: term, Configuration: raft.EncodeConfiguration(c), ConfigIndex: ci}
	return &snapshotSink{id: strconv.FormatUint(n, 10), save: func(state []byte) error { return s.write(n, head, state) }}, nil
}

// write stores a snapshot and then removes the oldest ones.
func (s *snapshotFiles) write(n uint64, head snapshotHead, state []byte) error {
	b, err := encodeSnapshot(head, state)
	if err != nil {
		return err
	}
	// What others need of the disk is not taken for a snapshot.
	if free, err := freeSpace(s.dir); err == nil && free < uint64(len(b))+snapshotMargin {
		return fmt.Errorf("write snapshot %d: %w: it takes %s, and there are %s", n, errNoRoom, bytesInWords(uint64(len(b))), spaceIn(s.dir))
	}
	if err := writeFile(s.path(n), b); err != nil {
		if _, there := os.Lstat(s.path(n)); isFull(err) && errors.Is(there, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", errNoRoom, err) // had it got its name, raft would have to know of it
		}
		return fmt.Errorf("write snapshot %d: %w", n, refusal(s.dir, err))
	}
	numbers, err := s.numbers()
	if err != nil {
		return err
	}
	for _, old := range numbers[min(snapshotsKept, len(numbers)):] {
		if err := os.Remove(s.path(old)); err != nil {
			return fmt.Errorf("remove snapshot %d: %w", old, err)
		}
	}
	return nil
}

// snapshotSink gathers a state.
type snapshotSink struct {
	bytes.Buffer
	id   string
	save func([]byte) error
	done bool
}

// ID implements raft.SnapshotSink.
func (s *snapshotSink) ID() string { return s.id }

// Close makes the snapshot durable.
func (s *snapshotSink) Close() error {
	if s.done {
		return nil
	}
	s.done = true
	return s.save(s.Bytes())
}

// Cancel forgets the snapshot.
func (s *snapshotSink) Cancel() error {
	s.done = true
	return nil
}
