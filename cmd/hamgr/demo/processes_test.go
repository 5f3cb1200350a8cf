package demo

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// TestStrikeReachesWhatADaemonStarts: a resource's process has a session of its own, and little
// of its daemon's environment; it belongs to the machine all the same, even without its daemon.
func TestStrikeReachesWhatADaemonStarts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	read, write := io.Pipe()
	machine := redfishsim.NewProcessPower(func(boot string) *exec.Cmd {
		cmd := exec.Command("/bin/sh", "-c", `env -i PATH="$PATH" HAMGR_BOOT="$1" setsid sh -c 'echo ready; exec sleep 60' & exit 0`, "sh", boot)
		cmd.Stdout = write
		return cmd
	})
	if err := machine.On(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := machine.Off(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := bufio.NewReader(read).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for left := 0; left != 1; { // until the daemon has ended
		pids, err := machine.Processes()
		if err != nil || len(pids) == 0 || ctx.Err() != nil {
			t.Fatalf("processes %v, error %v: the orphan is not part of the machine", pids, err)
		}
		left = len(pids)
	}

	hit, err := strike(ctx, machine, syscall.SIGSTOP)
	if err != nil || len(hit) != 1 {
		t.Fatalf("%d processes stopped, error %v", len(hit), err)
	}
	defer hit.release()
	if n := hit.signal(syscall.SIGCONT); n != 1 {
		t.Errorf("%d processes woken, want 1", n)
	}
	if err := machine.Off(ctx); err != nil {
		t.Fatal(err)
	}
	if n := hit.signal(syscall.SIGCONT); n != 0 {
		t.Errorf("%d processes of a machine that is off were woken", n)
	}
}
