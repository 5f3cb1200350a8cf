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
// dead. Threads that the runtime makes later inherit it; processes of resources do not, their
// kinds see to that.
func realTime(log *slog.Logger) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		log.Info("no real-time scheduling", "err", err)
		return
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: realTimePriority}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetAttr(tid, &attr, 0); err != nil && err != unix.ESRCH {
			log.Info("no real-time scheduling", "err", fmt.Errorf("thread %d: %w", tid, err))
			return
		}
	}
}
