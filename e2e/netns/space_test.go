package netns

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// space is a network namespace without a name: it ends with the last process or file that holds it.
type space struct{ file *os.File }

func newSpace() (_ *space, err error) {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer own.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("new network namespace: %w", err)
	}
	defer leave(own)
	file, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	return &space{file: file}, nil
}

// leave takes the thread back to where it came from.
func leave(own *os.File) {
	if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
		panic("no way back from a network namespace: " + err.Error()) // the thread would do harm elsewhere
	}
}

// id is how /proc names it.
func (s *space) id() (string, error) {
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", s.file.Fd()))
}

// do calls f on a thread in the namespace. Sockets that f opens, and processes that it starts, belong there.
func (s *space) do(f func() error) error {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter a network namespace: %w", err)
	}
	defer leave(own)
	return f()
}

func (s *space) close() { s.file.Close() }

// ip configures the namespace.
func (s *space) ip(lines ...string) error {
	return s.do(func() error { return command(strings.Join(lines, "\n")+"\n", "ip", "-batch", "-") })
}
