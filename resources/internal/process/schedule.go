package process

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Ordinarily runs f on a thread with ordinary scheduling, and gives the thread its own back
// afterwards. The daemon may have real-time priority; a process inherits that of the thread that
// forks it, and none that the cluster runs may keep the daemon from the processor.
func Ordinarily(f func() error) error {
	runtime.LockOSThread() // new threads of the runtime are not cloned from a locked one
	defer runtime.UnlockOSThread()
	own, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return fmt.Errorf("scheduling of this thread: %w", err)
	}
	if own.Policy == unix.SCHED_NORMAL {
		return f()
	}
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0); err != nil {
		return fmt.Errorf("give up real-time scheduling for a new process: %w", err)
	}
	// Where the way back fails, the daemon has one thread of ordinary priority: no reason to disown what f did.
	defer func() { _ = unix.SchedSetAttr(0, own, 0) }()
	return f()
}
