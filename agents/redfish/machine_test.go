package redfish

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// TestRealMachine: off read back means that the processes are gone, a frozen one included.
func TestRealMachine(t *testing.T) {
	dir := t.TempDir()
	machine := redfishsim.NewProcessPower(func(boot string) *exec.Cmd {
		cmd := exec.Command("/bin/sh", "-c", `trap "" TERM; setsid sh -c 'while :; do echo x >>log; sleep 0.01; done' & wait`)
		cmd.Dir = dir
		return cmd
	})
	ctx := within(t, 20*time.Second)
	t.Cleanup(func() {
		if err := machine.Off(within(t, 10*time.Second)); err != nil {
			t.Error(err)
		}
	})
	bmc := startBMC(t, func(c *redfishsim.Config) { c.Power = machine })
	a := open(t, options(bmc))
	for _, frozen := range []bool{false, true} {
		os.Remove(filepath.Join(dir, "log"))
		if err := a.On(ctx, ""); err != nil {
			t.Fatal(err)
		}
		if r, err := a.Status(ctx, ""); err != nil || r.State != agents.On {
			t.Fatalf("read %v, %v", r, err)
		}
		eventually(t, "the machine works", func() bool { _, err := os.Stat(filepath.Join(dir, "log")); return err == nil })
		if frozen {
			if err := machine.Signal(ctx, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		pids, err := machine.Processes()
		if err != nil || len(pids) < 2 {
			t.Fatalf("processes %v, %v", pids, err)
		}
		if err := a.Off(ctx, ""); err != nil {
			t.Fatal(err)
		}
		if r, err := a.Status(ctx, ""); err != nil || r.State != agents.Off {
			t.Fatalf("read %v, %v", r, err)
		}
		for _, pid := range pids {
			if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !bytes.Contains(stat, []byte(") Z ")) {
				t.Errorf("process %d is alive: %s", pid, stat)
			}
		}
	}
}
