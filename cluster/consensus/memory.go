package consensus

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// MemoryStores makes stores for tests. They outlive the Log that uses them, as a disk
// does: give the same ones to the next Start for a restart, new ones for a wiped node.
// Hang, Fail and Delay are for these only.
func MemoryStores() *Stores {
	f := &fault{}
	return &Stores{
		log:       memoryLog{raft.NewInmemStore(), f},
		snapshots: &memorySnapshots{},
		records:   &memoryRecords{values: make(map[string][]byte)},
		close:     func() error { return nil },
		fault:     f,
	}
}

// Copy makes stores of what is in these now, as a copy of a disk that is in use: what is written meanwhile may be in it or not.
func (s *Stores) Copy() (*Stores, error) {
	c, own := MemoryStores(), s.log.(memoryLog).InmemStore
	first, err := own.FirstIndex()
	if err != nil {
		return nil, err
	}
	last, err := own.LastIndex()
	if err != nil {
		return nil, err
	}
	for i := first; i <= last && i > 0; i++ {
		var entry raft.Log
		if err := own.GetLog(i, &entry); err != nil {
			break // compacted meanwhile: what is missing is in the snapshot
		}
		if err := c.log.StoreLog(&entry); err != nil {
			return nil, err
		}
	}
	for _, key := range []string{keyCurrentTerm, keyVoteTerm} {
		if v, err := own.GetUint64([]byte(key)); err == nil {
			if err := c.log.SetUint64([]byte(key), v); err != nil {
				return nil, err
			}
		}
	}
	if v, err := own.Get([]byte(keyVoteCandidate)); err == nil {
		if err := c.log.Set([]byte(keyVoteCandidate), v); err != nil {
			return nil, err
		}
	}
	s.snapshots.(*memorySnapshots).copyTo(c.snapshots.(*memorySnapshots))
	s.records.(*memoryRecords).copyTo(c.records.(*memoryRecords))
	return c, nil
}

// Hang makes every call of the log block until the returned function is called, as a disk
// in trouble does. The blocked calls then go through.
func (s *Stores) Hang() (release func()) {
	s.fault.mu.Lock()
	defer s.fault.mu.Unlock()
	gate := make(chan struct{})
	s.fault.gate = gate
	return sync.OnceFunc(func() {
		s.fault.mu.Lock()
		defer s.fault.mu.Unlock()
		s.fault.gate = nil
		close(gate)
	})
}

// Fail makes every write of the log return err; nil ends it.
func (s *Stores) Fail(err error) {
	s.fault.mu.Lock()
	defer s.fault.mu.Unlock()
	s.fault.err = err
}

// Delay makes every write of the log take that long.
func (s *Stores) Delay(d time.Duration) {
	s.fault.mu.Lock()
	defer s.fault.mu.Unlock()
	s.fault.delay = d
}

// fault is what is wrong with a memory store.
type fault struct {
	mu    sync.Mutex
	gate  chan struct{}
	err   error
	delay time.Duration
}

func (f *fault) read() error {
	f.mu.Lock()
	gate := f.gate
	f.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return nil
}

func (f *fault) write() error {
	_ = f.read()
	f.mu.Lock()
	err, delay := f.err, f.delay
	f.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	return err
}

// memoryLog is raft's memory store with faults.
type memoryLog struct {
	*raft.InmemStore
	fault *fault
}

func (m memoryLog) GetLog(index uint64, entry *raft.Log) error {
	_ = m.fault.read()
	return m.InmemStore.GetLog(index, entry)
}

func (m memoryLog) StoreLog(entry *raft.Log) error { return m.StoreLogs([]*raft.Log{entry}) }

func (m memoryLog) StoreLogs(entries []*raft.Log) error {
	if err := m.fault.write(); err != nil {
		return err
	}
	return m.InmemStore.StoreLogs(entries)
}

func (m memoryLog) DeleteRange(first, last uint64) error {
	if err := m.fault.write(); err != nil {
		return err
	}
	return m.InmemStore.DeleteRange(first, last)
}

func (m memoryLog) Set(key, value []byte) error {
	if err := m.fault.write(); err != nil {
		return err
	}
	return m.InmemStore.Set(key, value)
}

func (m memoryLog) SetUint64(key []byte, value uint64) error {
	if err := m.fault.write(); err != nil {
		return err
	}
	if string(key) == keyVoteTerm { // as boltLog does
		if err := m.InmemStore.Set([]byte(keyVoteCandidate), nil); err != nil {
			return err
		}
	}
	return m.InmemStore.SetUint64(key, value)
}

// Get makes raft's own "not found" the one that the guard knows.
func (m memoryLog) Get(key []byte) ([]byte, error) {
	_ = m.fault.read()
	value, err := m.InmemStore.Get(key)
	if err != nil {
		return nil, errNotFound
	}
	return value, nil
}

// memorySnapshots keeps the newest snapshot.
type memorySnapshots struct {
	mu     sync.Mutex
	number int
	meta   raft.SnapshotMeta
	state  []byte
}

func (m *memorySnapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.number++
	meta := raft.SnapshotMeta{Version: v, ID: strconv.Itoa(m.number), Index: index, Term: term, Configuration: c.Clone(), ConfigurationIndex: ci}
	return &snapshotSink{id: meta.ID, save: func(state []byte) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		meta.Size = int64(len(state))
		m.meta, m.state = meta, bytes.Clone(state)
		return nil
	}}, nil
}

func (m *memorySnapshots) copyTo(c *memorySnapshots) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.number, c.meta, c.state = m.number, m.meta, m.state
}

func (m *memorySnapshots) List() ([]*raft.SnapshotMeta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.meta.ID == "" {
		return nil, nil
	}
	meta := m.meta
	return []*raft.SnapshotMeta{&meta}, nil
}

func (m *memorySnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.meta.ID != id {
		return nil, nil, fmt.Errorf("no snapshot %q", id)
	}
	meta := m.meta
	return &meta, io.NopCloser(bytes.NewReader(m.state)), nil
}
