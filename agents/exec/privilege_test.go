package exec

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A program that is started by an urgent thread is ordinary, and the thread is urgent again afterwards.
func TestOrdinaryScheduling(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	urgent := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}
	if err := unix.SchedSetAttr(0, &urgent, 0); err != nil {
		// Without the right to real-time scheduling, SCHED_BATCH stands in: it is inherited in the same way.
		urgent = unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH}
		if err := unix.SchedSetAttr(0, &urgent, 0); err != nil {
			t.Fatal(err)
		}
	}
	defer unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
	policy := func(start func(func() error) error) string {
		var out strings.Builder
		cmd := exec.Command("cat", "/proc/self/stat")
		cmd.Stdout = &out
		if err := start(cmd.Start); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		return strings.Fields(text[strings.LastIndexByte(text, ')')+2:])[41-3] // proc_pid_stat(5)
	}
	if policy(func(f func() error) error { return f() }) == "0" {
		t.Fatal("the child of an urgent thread is ordinary by itself: this test proves nothing")
	}
	if p := policy(ordinarily); p != "0" {
		t.Errorf("a program has policy %s", p)
	}
	if now, err := unix.SchedGetAttr(0, 0); err != nil || now.Policy != urgent.Policy || now.Priority != urgent.Priority {
		t.Errorf("afterwards the thread has %+v, %v", now, err)
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
