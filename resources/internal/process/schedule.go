package process

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// The daemon may have real-time priority, so that it answers on a busy host. What it does about processes may not: not
// what they do themselves, nor their birth, nor their end.

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

// Reap runs wait, which waits for the end of a child, on a thread with ordinary scheduling. When a child is reaped, the
// kernel removes its entries in /proc (release_task, proc_flush_pid), and if somebody else is just looking at one it
// tries again until he is done. A real-time thread that does so can keep him from the processor that he needs for that:
// then both are stuck, and all else with them, until the kernel takes the processor from real-time threads for a while
// (sched_rt_runtime_us).
func Reap(wait func() error) (err error) {
	waited := false
	_ = Ordinarily(func() error {
		waited, err = true, wait()
		return nil
	})
	if !waited { // a child must not be left behind for that
		err = wait()
	}
	return err
}
