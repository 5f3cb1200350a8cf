package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// Entries of our own carry their kind in the extensions of the log entry, which commands
// of the FSM leave empty.
const (
	internalProbe byte = 1 // proves that its leader commits
	internalFound byte = 2 // gives the cluster its ID; the first one wins
)

// machine is the raft.FSM around the user's: it keeps our own entries from it, and knows
// how far it is.
type machine struct {
	user FSM

	mu      sync.Mutex // guards what follows
	index   uint64     // last entry applied
	cluster string     // the cluster's ID, empty until it has one
	changed chan struct{}
}

var _ raft.FSM = (*machine)(nil)

func newMachine(user FSM) *machine { return &machine{user: user, changed: make(chan struct{})} }

// Apply implements raft.FSM.
func (m *machine) Apply(entry *raft.Log) any {
	var result any
	founded := ""
	switch {
	case len(entry.Extensions) == 0:
		result = m.user.Apply(entry.Index, entry.Data)
	case entry.Extensions[0] == internalFound:
		founded = string(entry.Data)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cluster == "" {
		m.cluster = founded
	}
	m.advance(entry.Index)
	return result
}

// advance wakes those who wait for an index. mu must be held.
func (m *machine) advance(index uint64) {
	m.index = index
	close(m.changed)
	m.changed = make(chan struct{})
}

// reached tells whether an index is applied, and otherwise when to ask again.
func (m *machine) reached(index uint64) (bool, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.index >= index, m.changed
}

func (m *machine) position() (index uint64, cluster string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.index, m.cluster
}

// Snapshot implements raft.FSM.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	state, err := m.user.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("take a snapshot of the state: %w", err)
	}
	index, cluster := m.position()
	return image(encodeImage(index, cluster, state)), nil
}

// Restore implements raft.FSM.
func (m *machine) Restore(r io.ReadCloser) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read a snapshot: %w", err)
	}
	index, cluster, state, err := decodeImage(b)
	if err != nil {
		return err
	}
	if err := m.user.Restore(state); err != nil {
		return fmt.Errorf("restore the state: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cluster = cluster
	m.advance(index)
	return nil
}

// image is a snapshot in memory: version, index, cluster ID, and the user's state.
type image []byte

// Persist implements raft.FSMSnapshot.
func (i image) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(i); err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	return nil // raft closes the sink
}

// Release implements raft.FSMSnapshot.
func (i image) Release() {}

const imageVersion = 1

func encodeImage(index uint64, cluster string, state []byte) []byte {
	b := []byte{imageVersion}
	b = binary.BigEndian.AppendUint64(b, index)
	b = append(b, byte(len(cluster)))
	b = append(b, cluster...)
	return append(b, state...)
}

func decodeImage(b []byte) (index uint64, cluster string, state []byte, err error) {
	const fixed = 1 + 8 + 1
	if len(b) < fixed {
		return 0, "", nil, fmt.Errorf("%w: snapshot of %d bytes", ErrDamaged, len(b))
	}
	if b[0] != imageVersion {
		return 0, "", nil, fmt.Errorf("snapshot has version %d, this program knows %d: %w", b[0], imageVersion, errors.ErrUnsupported)
	}
	end := fixed + int(b[fixed-1])
	if len(b) < end {
		return 0, "", nil, fmt.Errorf("%w: snapshot ends in its header", ErrDamaged)
	}
	return binary.BigEndian.Uint64(b[1:]), string(b[fixed:end]), b[end:], nil
}
