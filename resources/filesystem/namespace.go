package filesystem

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources/internal/process"
)

// namespace is a mount namespace, and one of its processes.
type namespace struct {
	id  string
	pid int
}

// String names it for operators.
func (n namespace) String() string {
	p, err := process.Look(n.pid)
	if err != nil {
		p = process.Process{PID: n.pid, Name: "gone"}
	}
	return "the mount namespace of " + p.String()
}

// namespaces lists one process of each.
func namespaces() ([]namespace, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var found []namespace
	seen := map[string]bool{"": true}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if id := namespaceOf(pid); !seen[id] {
			seen[id] = true
			found = append(found, namespace{id, pid})
		}
	}
	return found, nil
}

func namespaceOf(pid int) string {
	id, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
	return id
}

// table is empty if the namespace has gone meanwhile.
func (n namespace) table() []entry {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(n.pid) + "/mountinfo")
	if err != nil {
		return nil
	}
	table, _ := parseTable(b)
	return table
}

// copied is the copy of a mount in another mount namespace.
type copied struct {
	entry
	in namespace
}

// copies finds what other mount namespaces took along of a mount when they were made: the same part of the same
// file system at the same path. What is mounted at another path there was mounted by somebody, and is left alone.
func copies(mount entry) ([]copied, error) {
	own := namespaceOf(os.Getpid())
	all, err := namespaces()
	if err != nil {
		return nil, fmt.Errorf("look for mount namespaces: %w", err)
	}
	var found []copied
	for _, n := range all {
		if n.id == own {
			continue
		}
		for _, e := range n.table() {
			if isCopy(e, mount) {
				found = append(found, copied{e, n})
			}
		}
	}
	return found, nil
}

func isCopy(e, mount entry) bool {
	return e.dev == mount.dev && e.root == mount.root && e.mountpoint == mount.mountpoint
}

// unmountCopies unmounts them. One that is in use stays (EBUSY).
func unmountCopies(mount entry) error {
	all, err := copies(mount)
	if err != nil {
		return err
	}
	for _, c := range all {
		if err := c.unmount(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("unmount %s, left in %s: %w", c.entry, c.in, err)
		}
	}
	return nil
}

// unmount does so from within the namespace, on a thread that ends with it.
func (c copied) unmount() error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- c.enterAndUnmount() // and never unlocked: the thread ends, and its namespace with it
			return
		}
		// The first thread never ends, and is what /proc/self shows: it must stay where it is. While it is
		// locked here, the next goroutine runs on another one.
		defer runtime.UnlockOSThread()
		other := make(chan error)
		go func() {
			runtime.LockOSThread()
			other <- c.enterAndUnmount()
		}()
		done <- <-other
	}()
	return <-done
}

func (c copied) enterAndUnmount() error {
	fd, err := unix.Open("/proc/"+strconv.Itoa(c.in.pid)+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if namespaceOf(c.in.pid) != c.in.id {
		return os.ErrNotExist // the PID is another process's by now
	}
	if err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(fd, unix.CLONE_NEWNS)); err != nil {
		return fmt.Errorf("enter it: %w", err)
	}
	if id, root, err := mountID(unix.AT_FDCWD, c.mountpoint); err != nil || !root || id != c.id {
		return fmt.Errorf("it is not what is at %s there: %w", c.mountpoint, errors.Join(err, unix.EBUSY))
	}
	return unix.Unmount(c.mountpoint, unix.UMOUNT_NOFOLLOW)
}
