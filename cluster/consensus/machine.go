package consensus

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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

	mu      sync.Mutex          // guards what follows
	index   uint64              // last entry applied
	cluster string              // the cluster's ID, empty until it has one
	forks   []fork              // by which the cluster's history came here, see fork.go
	servers *raft.Configuration // the newest committed one; nil where only raft knows
	changed chan struct{}
}

var (
	_ raft.FSM                = (*machine)(nil)
	_ raft.ConfigurationStore = (*machine)(nil)
)

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

// StoreConfiguration implements raft.ConfigurationStore: it is called when a configuration is
// committed, which raft's own GetConfiguration does not wait for.
func (m *machine) StoreConfiguration(index uint64, c raft.Configuration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.servers = &c
	m.advance(index)
}

// committed returns the newest committed configuration, or nil.
func (m *machine) committed() *raft.Configuration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.servers
}

// line is the line of history that the log is on.
func (m *machine) line() string { return lineOf(m.history()) }

// history returns the forks.
func (m *machine) history() []fork {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.forks // never changed in place
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
	m.mu.Lock()
	defer m.mu.Unlock()
	return encodeImage(m.index, m.cluster, state, m.forks...), nil
}

// Restore implements raft.FSM.
func (m *machine) Restore(r io.ReadCloser) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read a snapshot: %w", err)
	}
	image, err := decodeImage(b)
	if err != nil {
		return err
	}
	if err := m.user.Restore(image.state); err != nil {
		return fmt.Errorf("restore the state: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cluster, m.forks, m.servers = image.cluster, image.forks, nil
	m.advance(image.index)
	return nil
}

// image is a snapshot in memory: version, index, cluster ID, forks, and the user's state.
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

// The versions of an image. One of a cluster that never forked stays as it always was, so that
// older programs read it.
const (
	imageVersion = 1
	imageForked  = 2 // with the forks, as JSON behind their length, between cluster ID and state
)

func encodeImage(index uint64, cluster string, state []byte, forks ...fork) image {
	version := byte(imageVersion)
	if len(forks) > 0 {
		version = imageForked
	}
	b := []byte{version}
	b = binary.BigEndian.AppendUint64(b, index)
	b = append(b, byte(len(cluster)))
	b = append(b, cluster...)
	if len(forks) > 0 {
		list, _ := json.Marshal(forks[max(0, len(forks)-maxForks):]) // strings and booleans
		b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
		b = append(b, list...)
	}
	return append(b, state...)
}

// decodedImage is what an image holds.
type decodedImage struct {
	index   uint64
	cluster string
	forks   []fork
	state   []byte
}

func decodeImage(b []byte) (d decodedImage, err error) {
	const fixed = 1 + 8 + 1
	if len(b) < fixed {
		return d, fmt.Errorf("%w: snapshot of %d bytes", ErrDamaged, len(b))
	}
	version := b[0]
	if version != imageVersion && version != imageForked {
		return d, fmt.Errorf("snapshot has version %d, this program knows %d: %w", version, imageForked, errors.ErrUnsupported)
	}
	end := fixed + int(b[fixed-1])
	if len(b) < end {
		return d, fmt.Errorf("%w: snapshot ends in its header", ErrDamaged)
	}
	d.index, d.cluster, d.state = binary.BigEndian.Uint64(b[1:]), string(b[fixed:end]), b[end:]
	if version == imageVersion {
		return d, nil
	}
	if len(d.state) < 4 {
		return d, fmt.Errorf("%w: snapshot ends in its header", ErrDamaged)
	}
	size := binary.BigEndian.Uint32(d.state)
	rest := d.state[4:]
	if uint64(size) > uint64(len(rest)) {
		return d, fmt.Errorf("%w: snapshot ends in its header", ErrDamaged)
	}
	if err := json.Unmarshal(rest[:size], &d.forks); err != nil || len(d.forks) == 0 {
		return d, fmt.Errorf("%w: the forks in a snapshot cannot be read", ErrDamaged)
	}
	d.state = slices.Clip(rest[size:])
	return d, nil
}

// newestImage reads the image of a snapshot.
func (s *Stores) newestImage(id string) (decodedImage, error) {
	_, r, err := s.snapshots.Open(id)
	if err != nil {
		return decodedImage{}, err
	}
	defer r.Close() // in memory
	b, err := io.ReadAll(r)
	if err != nil {
		return decodedImage{}, fmt.Errorf("read a snapshot: %w", err)
	}
	return decodeImage(b)
}
