package ocf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The records in the resource's private directory. They outlive the daemon, and need not outlive the kernel,
// so they are not synced to disk. One that is damaged is taken for one that says the worst.
const (
	// startedFile is there from before the first start until a stop that was proven.
	startedFile = "started.json"
	// runningFile is there while the agent runs.
	runningFile = "running.json"
	lockFile    = "lock"
)

type record struct {
	Boot  string `json:"boot"`
	Token uint64 `json:"token"`
	Mark  string `json:"mark,omitempty"` // of the run, in running.json
}

// recall reads a record of this boot; nil if there is none.
func (o *ocf) recall(file string) (*record, error) {
	b, err := os.ReadFile(filepath.Join(o.env.Dir, file))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was done: %w", err)
	}
	var r record
	if json.Unmarshal(b, &r) != nil || r.Boot == "" {
		return &record{}, nil
	}
	if r.Boot != o.env.Boot {
		return nil, nil
	}
	return &r, nil
}

// begun is the record of what hamgr has begun to start here in this boot, and not certainly stopped since; nil if
// nothing.
func (o *ocf) begun() (*record, error) { return o.recall(startedFile) }

// note writes a record. A crash of the daemon leaves the old one, or the new one.
func (o *ocf) note(file, mark string) error {
	b, err := json.Marshal(record{Boot: o.env.Boot, Token: o.env.Token, Mark: mark})
	if err != nil {
		return err
	}
	path := filepath.Join(o.env.Dir, file)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("record what is done: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("record what is done: %w", err)
	}
	return nil
}

func (o *ocf) forget(file string) error {
	err := os.Remove(filepath.Join(o.env.Dir, file))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the record of what was done: %w", err)
	}
	return nil
}

// lock keeps two actions on the same resource apart, also those of two daemons. One that hangs keeps it, even if
// nobody waits for it any more. Closing the file unlocks.
func lock(ctx context.Context, dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the resource: %w", err)
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock the resource: %w", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			f.Close()
			return nil, fmt.Errorf("lock the resource, on which an earlier action hangs: %w", ctx.Err())
		}
	}
}
