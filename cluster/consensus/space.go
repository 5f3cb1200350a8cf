package consensus

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// isFull tells whether a disk had no room. bbolt passes the error of growing its file on as text.
func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) ||
		err != nil && strings.HasSuffix(err.Error(), unix.ENOSPC.Error())
}

// freeSpace is what a process without privileges can still write to the file system of a folder.
func freeSpace(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("ask for the free space of %s: %w", dir, err)
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// refusal adds to an error of the disk where it is and what to do.
func refusal(dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case isFull(err):
		return fmt.Errorf("%w: %w (%s, and a start needs %s; make room there, then restart hamgr)", ErrStoreFull, err, spaceIn(dir), bytesInWords(logReserve))
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w (the file system of %s is read-only: the kernel's log says why; mend it, then restart hamgr)", err, dir)
	case errors.Is(err, unix.EIO), strings.Contains(err.Error(), unix.EIO.Error()): // bbolt wraps not all of its errors
		return fmt.Errorf("%w (the disk of %s fails: see the kernel's log; replace it, and this node returns as a new voter)", err, dir)
	}
	return err
}

// spaceIn says in words how full the file system of a folder is.
func spaceIn(dir string) string {
	free, err := freeSpace(dir)
	if err != nil {
		return "unknown free space in " + dir
	}
	return fmt.Sprintf("%s free in %s", bytesInWords(free), dir)
}

func bytesInWords(n uint64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}

// logReserve is what the log's file takes of the disk from the start, so that others who fill the disk do not stop this
// node's voting. Cut by snapshots as timing.go has it, a log of 2000 entries of 1 KiB takes less than half of
// it. Where there is no room for snapshots the log is not cut; then the rest of it lasts for days at the rate of a
// cluster that is at rest.
const logReserve = 16 << 20

// reserve gives a file its blocks, and that size. A file system that cannot do so gets by without.
func reserve(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = nil
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// cure adds to damage what to do about it.
func cure(dir string, err error) error {
	if dir == "" || !errors.Is(err, ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w; where the other voters are well, empty %s, and this node returns as a new voter with their data", err, dir)
}
