package exec

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// schedule gives every thread of this process a policy.
func schedule(t *testing.T, attr unix.SchedAttr) error {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.SchedSetAttr(tid, &attr, 0); err != nil && err != unix.ESRCH {
			return err
		}
	}
	return nil
}

// A program that an urgent daemon runs is ordinary, and so is the thread that waits for it; all others stay urgent.
func TestOrdinaryScheduling(t *testing.T) {
	// Batch scheduling stands in for real time: it is inherited in the same way, and needs no right to it.
	if err := schedule(t, unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH}); err != nil {
		t.Fatal(err)
	}
	defer schedule(t, unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL})
	policy := func(stat string) string {
		return strings.Fields(stat[strings.LastIndexByte(stat, ')')+2:])[41-3] // proc_pid_stat(5)
	}
	if stat, err := osexec.Command("cat", "/proc/self/stat").Output(); err != nil || policy(string(stat)) == "0" {
		t.Fatalf("the child of an urgent thread is ordinary by itself, and this test proves nothing: %v", err)
	}
	s := script(t, `cat /proc/$$/stat >$d/stat; cat /proc/$PPID/task/*/stat >$d/threads; echo "Status: ON"`)
	if _, err := open(t, s.options()).Status(within(t, 20*time.Second), "1"); err != nil || policy(s.read("stat")) != "0" {
		t.Errorf("%v: %s", err, s.read("stat"))
	}
	ordinary := 0
	for thread := range strings.Lines(s.read("threads")) {
		if policy(thread) == "0" {
			ordinary++
		}
	}
	if ordinary != 1 {
		t.Errorf("%d threads are ordinary while the program runs, not the one that waits: %s", ordinary, s.read("threads"))
	}
	tasks, _ := filepath.Glob("/proc/self/task/*/stat")
	for _, task := range tasks {
		if stat, err := os.ReadFile(task); err == nil && policy(string(stat)) == "0" {
			t.Errorf("a thread of the daemon is ordinary: %s", stat)
		}
	}
}

// Nor is it protected from the out-of-memory killer when the daemon is.
func TestMemoryIsNotProtected(t *testing.T) {
	const file = "/proc/self/oom_score_adj"
	own, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// A test may have no right to protect itself; exposed is the other way from ordinary, and shows the same.
	if err := os.WriteFile(file, []byte("17"), 0); err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(file, own, 0)
	s := script(t, `i=0; while read score </proc/$$/oom_score_adj; [ $score != 0 ] && [ $i -lt 100 ]; do i=$((i+1)); sleep 0.01; done
echo $score >$d/score; echo "Status: ON"`)
	if _, err := open(t, s.options()).Status(within(t, 5*time.Second), "1"); err != nil || strings.TrimSpace(s.read("score")) != "0" {
		t.Errorf("score %q, %v", s.read("score"), err)
	}
}
