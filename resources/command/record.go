package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources/internal/process"
)

// record is what outlives the daemon. It is written once before the process is made,
// without PID, and once when it runs; it is removed when all is gone. It need not
// outlive the kernel, because nothing that it tells of does, so it is not synced to disk: what
// a crash of the daemon leaves in the page cache is whole.
type record struct {
	Boot  string `json:"boot"`
	Token uint64 `json:"token"`
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"` // clock ticks, as in process.Process
}

const (
	recordFile = "process.json"
	lockFile   = "lock"
)

// errNoRecord says that nothing was started since all was last seen gone.
var errNoRecord = errors.New("nothing was started")

func (r record) process() process.Process {
	return process.Process{PID: r.PID, Start: r.Start}
}

// readRecord gives an empty record where the file is damaged (which only a crash of
// the kernel can do): something was started, and only its environment can tell what.
func readRecord(dir string) (record, error) {
	b, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, os.ErrNotExist) {
		return record{}, errNoRecord
	}
	if err != nil {
		return record{}, fmt.Errorf("read what was started: %w", err)
	}
	return parseRecord(b), nil
}

func parseRecord(b []byte) record {
	var r record
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if d.Decode(&r) != nil || r.PID < 0 || r.PID == 1 || r.PID > 1<<22 {
		return record{}
	}
	return r
}

func writeRecord(dir string, r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, recordFile)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("record what is started: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("record what is started: %w", err)
	}
	return nil
}

func removeRecord(dir string) error {
	err := os.Remove(filepath.Join(dir, recordFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the record of what was started: %w", err)
	}
	return nil
}

// lock keeps two looks or actions on the same resource apart, also those of two
// daemons. It covers the one moment in which a new process is visible by no mark:
// between fork and exec a child holds a copy of the lock's descriptor, which exec
// closes. So whoever has the lock sees every process that was ever started, even if
// the daemon that forked it died right then.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the resource: %w", err)
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
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
