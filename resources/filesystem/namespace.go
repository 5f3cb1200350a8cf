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
	id string
	of process.Process
}

// namespaces lists one process of each.
func namespaces(all []process.Process) []namespace {
	var found []namespace
	seen := map[string]bool{}
	for _, p := range all {
		if p.Kernel {
			continue
		}
		if id := namespaceOf(p.PID); id != "" && !seen[id] {
			seen[id] = true
			found = append(found, namespace{id, p})
		}
	}
	return found
}

func namespaceOf(pid int) string {
	id, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
	return id
}

// table is empty if the namespace has gone meanwhile.
func (n namespace) table() []entry {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(n.of.PID) + "/mountinfo")
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
func copies(all []process.Process, mount entry) []copied {
	own := namespaceOf(os.Getpid())
	var found []copied
	for _, n := range namespaces(all) {
		if n.id == own {
			continue
		}
		for _, e := range n.table() {
			if isCopy(e, mount) {
				found = append(found, copied{e, n})
			}
		}
	}
	return found
}

func isCopy(e, mount entry) bool {
	return e.dev == mount.dev && e.root == mount.root && e.mountpoint == mount.mountpoint
}

// unmountCopies unmounts them. One that is in use stays (EBUSY).
func unmountCopies(mount entry) error {
	all, err := process.All()
	if err != nil {
		return fmt.Errorf("look for processes: %w", err)
	}
	for _, c := range copies(all, mount) {
		if err := c.unmount(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("unmount %s, left in the mount namespace of %s: %w", c.entry, c.in.of, err)
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
	fd, err := unix.Open("/proc/"+strconv.Itoa(c.in.of.PID)+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if namespaceOf(c.in.of.PID) != c.in.id {
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
