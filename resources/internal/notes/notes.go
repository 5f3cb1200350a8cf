// Package notes keeps what must outlive the daemon, but not the kernel, in a resource's private directory. So nothing is synced to
// disk: what a crash of the daemon leaves in the page cache is whole.
package notes

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

const lockFile = "lock"

// Write makes the file hold v as JSON. A crash of the daemon leaves the old one, or the new one.
func Write(dir, file string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, file)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("record what is done: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("record what is done: %w", err)
	}
	return nil
}

// Read gives the file as it is; nil if there is none.
func Read(dir, file string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was done: %w", err)
	}
	if b == nil {
		b = []byte{}
	}
	return b, nil
}

// Remove succeeds if there is no such file.
func Remove(dir, file string) error {
	err := os.Remove(filepath.Join(dir, file))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the record of what was done: %w", err)
	}
	return nil
}

// Lock keeps two looks or actions on the same resource apart, also those of two daemons. One that hangs keeps it, even if nobody
// waits for it any more. Closing the file unlocks.
//
// It covers the one moment in which a new process is visible by no mark: between fork and exec a child holds a copy of the
// lock's descriptor, which exec closes. So whoever has the lock sees every process that was ever forked, even if the daemon
// that forked it died right then.
func Lock(ctx context.Context, dir string) (*os.File, error) {
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
