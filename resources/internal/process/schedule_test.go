package process

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOrdinarily: what is forked has ordinary scheduling, though the thread is real-time before and
// after.
func TestOrdinarily(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	normal := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
	// Batch scheduling stands in for real time: it is inherited in the same way, and needs no right to it.
	urgent := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH}
	if err := unix.SchedSetAttr(0, &urgent, 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.SchedSetAttr(0, &normal, 0); err != nil {
			t.Error(err)
		}
	}()
	policy := func() (out string) {
		// Field 41 of stat is the policy, proc(5).
		b, err := exec.Command("cat", "/proc/self/stat").Output()
		if err != nil {
			t.Fatal(err)
		}
		rest := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
		return rest[41-3]
	}
	if policy() == "0" {
		t.Fatal("the child of an urgent thread is ordinary by itself: this test proves nothing")
	}
	var inside string
	if err := Ordinarily(func() error { inside = policy(); return os.ErrExist }); !errors.Is(err, os.ErrExist) {
		t.Errorf("error %v", err)
	}
	if inside != "0" {
		t.Errorf("a process started ordinarily has policy %s", inside)
	}
	err := Reap(func() error {
		if now, err := unix.SchedGetAttr(0, 0); err != nil || now.Policy != unix.SCHED_NORMAL {
			t.Errorf("what reaps a child has %+v, %v", now, err)
		}
		return os.ErrExist
	})
	if !errors.Is(err, os.ErrExist) {
		t.Errorf("error %v", err)
	}
	if now, err := unix.SchedGetAttr(0, 0); err != nil || now.Policy != urgent.Policy {
		t.Errorf("afterwards the thread has %+v, %v", now, err)
	}
}
