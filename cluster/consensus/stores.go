package consensus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// Stores is everything that a voter remembers: the log with its term and vote, the
// snapshots, its identity and its promise. It is used by one Log at a time. MemoryStores
// makes one for tests; otherwise Start opens the files of Config.Dir.
type Stores struct {
	log       logStore
	snapshots raft.SnapshotStore
	records   records
	close     func() error
	dir       string        // of files
	fault     *fault        // of memory stores
	patience  time.Duration // of tests that need a longer deadline than Timing's
}

// openStores opens the stores of a configuration.
func openStores(ctx context.Context, cfg Config) (*Stores, error) {
	if cfg.Stores != nil {
		return cfg.Stores, nil
	}
	var s *Stores
	err := beside(ctx, func() (err error) {
		s, err = openDir(cfg.Dir)
		return err
	}, func() { _ = s.close() })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// beside runs f, which obeys no context because the disk may hang, and lets the caller go when ctx
// ends. What f still brings about afterwards is undone by late; nil where there is nothing to undo.
func beside(ctx context.Context, f func() error, late func()) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if late != nil {
			go func() {
				if <-done == nil {
					late()
				}
			}()
		}
		return ctx.Err()
	}
}

// openDir opens Dir/raft/log.db and Dir/raft/snapshots, and the records in Dir. The log
// is made only where there is no identity yet: a node that lost its log must not go on
// under the name under which it voted.
func openDir(dir string) (*Stores, error) {
	s, err := openFolder(dir)
	if err != nil {
		return nil, cure(dir, refusal(dir, err))
	}
	return s, nil
}

func openFolder(dir string) (*Stores, error) {
	root := filepath.Join(dir, "raft")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	lock, err := lockDir(root)
	if err != nil {
		return nil, err
	}
	s, err := openLocked(dir, root)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	s.close = func() error { return errors.Join(s.log.(*boltLog).close(), lock.Close()) }
	return s, nil
}

// lockDir keeps a second process out: two of them would both vote. The lock goes with the
// process.
func lockDir(root string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(root, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("lock the data folder %s, which another process seems to use: %w", root, err)
	}
	return lock, nil
}

func openLocked(dir, root string) (*Stores, error) {
	snapshots, err := openSnapshots(filepath.Join(root, "snapshots"))
	if err != nil {
		return nil, err
	}
	path := filepath.Join(root, "log.db")
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is not a file", ErrDamaged, path)
	case errors.Is(err, fs.ErrNotExist):
		identity, err := dirRecords(dir).load(identityRecord)
		if err != nil {
			return nil, err
		}
		if identity != nil {
			return nil, fmt.Errorf("%w: %s is gone, but the identity beside it is not", ErrDamaged, path)
		}
		if err := createBolt(path, boltContent{}); err != nil {
			return nil, err
		}
	}
	log, err := openBolt(path)
	if err != nil {
		return nil, err
	}
	if err := reserve(path, logReserve); err != nil {
		_ = log.close()
		return nil, fmt.Errorf("reserve the room of the log: %w", err)
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := syncDir(d); err != nil {
			_ = log.close()
			return nil, fmt.Errorf("make the data folder durable: %w", err)
		}
	}
	return &Stores{log: log, snapshots: snapshots, records: dirRecords(dir), dir: dir}, nil
}

// used tells whether there is a log, a snapshot, a term or a vote.
func (s *Stores) used() (bool, error) {
	return raft.HasExistingState(s.log, s.log, s.snapshots)
}

// mend finishes what a crash interrupted, and refuses what cannot have come from one.
func (s *Stores) mend() error {
	first, err := s.log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.log.LastIndex()
	if err != nil {
		return err
	}
	list, err := s.snapshots.List()
	if err != nil {
		return err
	}
	var covered uint64
	if len(list) > 0 {
		covered = list[0].Index
	}
	switch {
	case last != 0 && first > covered+1:
		return cure(s.dir, fmt.Errorf("%w: the log begins with entry %d, and the snapshots end with %d", ErrDamaged, first, covered))
	case last != 0 && last < covered: // received a snapshot, not yet cut the log
		return s.log.DeleteRange(first, last)
	case last == 0 && covered == 0:
		return s.forgetFounding()
	}
	return nil
}

// forgetFounding undoes the half of a founding: raft stores term 1, then the first entry.
// A node of term 1 without an entry or a vote can have come from nowhere else, since the
// first election of a cluster is for term 2.
func (s *Stores) forgetFounding() error {
	term, err := s.log.GetUint64([]byte(keyCurrentTerm))
	if errors.Is(err, errNotFound) || err == nil && term != 1 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := s.log.Get([]byte(keyVoteCandidate)); err == nil {
		return nil
	} else if !errors.Is(err, errNotFound) {
		return err
	}
	return s.log.SetUint64([]byte(keyCurrentTerm), 0)
}
