package demo

import (
	"bufio"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestSignalBootFindsAll makes a machine of a leader, which carries its boot on the command
// line, and a child in a session of its own, which carries it in its environment alone.
func TestSignalBootFindsAll(t *testing.T) {
	const boot = "00000000-demo-test-boot"
	leader := exec.Command("/bin/sh", "-c", `HAMGR_BOOT=$1 setsid sh -c 'echo ready; exec sleep 60' & wait`, "sh", boot)
	out, err := leader.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = signalBoot(boot, syscall.SIGKILL) })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}

	frozen, err := signalBoot(boot, syscall.SIGSTOP)
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.release()
	if len(frozen) != 2 {
		t.Fatalf("%d processes stopped, want 2", len(frozen))
	}
	if n := frozen.signal(syscall.SIGCONT); n != 2 {
		t.Errorf("%d processes woken, want 2", n)
	}
	if _, err := signalBoot(boot, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = leader.Wait()
	gone := time.Now().Add(10 * time.Second)
	for {
		left, err := processesOf(boot)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(gone) {
			t.Fatalf("processes survive SIGKILL: %v", left)
		}
		time.Sleep(time.Millisecond)
	}
	if n := frozen.signal(syscall.SIGCONT); n != 0 {
		t.Errorf("%d dead processes woken", n)
	}
}
