package exec

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// What the daemon has of the kernel's favours is not for the programs that it runs: they could keep
// it from the processor, or outlive others when memory runs out. resources/internal/process and
// resources/command do the same for theirs.

// ordinarily runs f, which starts a program and waits for its end, with ordinary scheduling, and gives the thread its own back
// afterwards. The caller has locked itself to the thread, whose scheduling a child inherits. A real-time thread must not
// reap one either: the kernel may make it wait, spinning, for somebody who does not get the processor.
func ordinarily(f func() error) error {
	const self, ordinary = 0, 0 // SCHED_OTHER; sched_setscheduler(2), which package syscall does not wrap
	var own, none int32         // struct sched_param
	policy, _, errno := syscall.Syscall(syscall.SYS_SCHED_GETSCHEDULER, self, 0, 0)
	if errno == 0 {
		_, _, errno = syscall.Syscall(syscall.SYS_SCHED_GETPARAM, self, uintptr(unsafe.Pointer(&own)), 0)
	}
	if errno != 0 {
		return fmt.Errorf("scheduling of this thread: %w", errno)
	}
	if policy == ordinary {
		return f()
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, self, ordinary, uintptr(unsafe.Pointer(&none))); errno != 0 {
		return fmt.Errorf("give up real-time scheduling for a new process: %w", errno)
	}
	// Where the way back fails, the daemon has one thread of ordinary priority.
	defer syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, self, policy, uintptr(unsafe.Pointer(&own)))
	return f()
}

// unprotect takes the protection from the out-of-memory killer off a child. One that has ended
// needs none, and no shot is held up for this.
func unprotect(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("0"), 0)
}
