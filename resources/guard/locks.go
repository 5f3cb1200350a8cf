package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// locks are one writer's locks on the bytes of a name's lock file, whose content is
// empty. Byte 0 keeps the record: who reads and raises it holds it alone, for as long
// as a sync takes. Byte T is shared by all writes that run under token T.
type locks struct{ file *os.File }

const recordByte = 0

func openLocks(path string) (*locks, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o666) // the umask decides who may write
	if err != nil {
		return nil, err
	}
	return &locks{f}, nil
}

// close gives up all locks, unless a child process has inherited the file.
func (l *locks) close() { l.file.Close() }

func (l *locks) lockRecord(ctx context.Context) error {
	return poll(ctx, func() (bool, error) { return l.set(unix.F_WRLCK, recordByte) })
}

func (l *locks) unlockRecord() error {
	_, err := l.set(unix.F_UNLCK, recordByte)
	return err
}

// share never waits, because nobody locks a token's byte but to share it.
func (l *locks) share(token uint64) error {
	ok, err := l.set(unix.F_RDLCK, int64(token))
	if err == nil && !ok {
		err = errors.New("somebody else locks the guard's file")
	}
	return err
}

// drain waits until nobody holds a lower token. Since the record is higher by now,
// nobody can take one again.
func (l *locks) drain(ctx context.Context, token uint64) error {
	if token == 1 {
		return nil
	}
	return poll(ctx, func() (bool, error) {
		lower := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: recordByte + 1, Len: int64(token) - 1}
		if err := l.fcntl(unix.F_OFD_GETLK, &lower); err != nil {
			return false, err
		}
		return lower.Type == unix.F_UNLCK, nil
	})
}

// set reports whether the lock could be taken at once.
func (l *locks) set(kind int16, at int64) (bool, error) {
	err := l.fcntl(unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: at, Len: 1})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

func (l *locks) fcntl(cmd int, lock *unix.Flock_t) error {
	for {
		err := unix.FcntlFlock(l.file.Fd(), cmd, lock)
		if !errors.Is(err, unix.EINTR) {
			if err != nil {
				err = fmt.Errorf("lock %s: %w", l.file.Name(), err)
			}
			return err
		}
	}
}

// poll tries until it succeeds or ctx ends. Waiting inside the kernel could not be
// interrupted by ctx.
func poll(ctx context.Context, try func() (bool, error)) error {
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if ok, err := try(); ok || err != nil {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}
