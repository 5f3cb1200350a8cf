package command

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources/internal/process"
)

// exits collects the dead children of this daemon. One that an earlier daemon started
// is reaped by the init process, and how it ended is not known.
type exits struct {
	mu     sync.Mutex
	last   process.Process // of which status tells
	status unix.WaitStatus
}

// reap collects p if it is an ended child of this daemon. It must only be called for a
// process that was named with its start time, so that no other child is taken.
func (e *exits) reap(p process.Process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, err := process.Look(p.PID)
	if err != nil || !now.Same(p) || !now.Ended() || now.Parent != os.Getpid() {
		return
	}
	var status unix.WaitStatus
	_ = process.Reap(func() error {
		if pid, err := unix.Wait4(p.PID, &status, unix.WNOHANG, nil); err == nil && pid == p.PID {
			e.last, e.status = p, status
		}
		return nil
	})
}

// succeeded reports whether p is known to have ended with status 0.
func (e *exits) succeeded(p process.Process) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return p.PID != 0 && e.last.Same(p) && e.status.Exited() && e.status.ExitStatus() == 0
}

// reason says how p ended, as far as it is known.
func (e *exits) reason(p process.Process) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case p.PID == 0:
		return "not running"
	case !e.last.Same(p):
		return fmt.Sprintf("PID %d has ended", p.PID)
	case e.status.Signaled():
		return fmt.Sprintf("PID %d was killed by %s", p.PID, unix.SignalName(e.status.Signal()))
	default:
		return fmt.Sprintf("PID %d ended with status %d", p.PID, e.status.ExitStatus())
	}
}
