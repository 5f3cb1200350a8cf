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

func newSpace() (*space, error) {
	type result struct {
		file *os.File
		err  error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err != nil {
			made <- result{err: fmt.Errorf("new network namespace: %w", err)}
			return
		}
		file, err := os.Open("/proc/thread-self/ns/net")
		made <- result{file, err}
	}()
	r := <-made
	if r.err != nil {
		return nil, r.err
	}
	return &space{file: r.file}, nil
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
	defer func() {
		if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
			panic("no way back from a network namespace: " + err.Error()) // the thread would do harm elsewhere
		}
	}()
	return f()
}

func (s *space) close() { s.file.Close() }

// ip configures the namespace.
func (s *space) ip(lines ...string) error {
	return s.do(func() error { return command(strings.Join(lines, "\n")+"\n", "ip", "-batch", "-") })
}
