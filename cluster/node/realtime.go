package node

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// realTimePriority is the lowest one: it goes before every ordinary process, and behind the
// kernel's own threads and whatever else was made urgent on purpose.
const realTimePriority = 1

// realTime asks for real-time scheduling, so that a host that is busy is not taken for one that is
// dead. It is for all threads, those that the runtime makes later inherit it: links, membership, log and
// coordinator are goroutines, which run on any of them, and each waits for the others.
//
// What has to do with other processes is ordinary. So are the programs of resources and fence agents, which could keep
// the daemon itself from the processor, and the threads that start them and wait for their end, because a real-time
// thread can spin in the kernel while it reaps (resources/internal/process, agents/exec). The daemon starts none besides.
func realTime(log *slog.Logger) {
	// A thread may be made by one that was not reached yet: the list is read until nothing is left to be done.
	for {
		changed, err := realTimeThreads()
		if err != nil {
			log.Info("no real-time scheduling", "err", err)
			return
		}
		if changed == 0 {
			return
		}
	}
}

// realTimeThreads tells how many of the threads that the process has now were ordinary so far.
func realTimeThreads() (changed int, err error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, err
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: realTimePriority}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		now, err := unix.SchedGetAttr(tid, 0)
		if err == nil && now.Policy == attr.Policy {
			continue
		}
		if err == nil {
			err = unix.SchedSetAttr(tid, &attr, 0)
		}
		if err == unix.ESRCH { // it has ended
			continue
		}
		if err != nil {
			return changed, fmt.Errorf("thread %d: %w", tid, err)
		}
		changed++
	}
	return changed, nil
}
