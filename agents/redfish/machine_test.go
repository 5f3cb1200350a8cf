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

// TestSlowOff: a BMC that answers 202, whose task is done at once and whose machine takes
// its time, is read as on, then unknown, then off; off never before the power is cut (B04).
func TestSlowOff(t *testing.T) {
	power := redfishsim.NewSwitch(true)
	bmc := startBMC(t, func(c *redfishsim.Config) {
		c.Power = power
		c.Mode = redfishsim.Mode{Answer: 202, Hesitate: 60 * time.Millisecond, PoweringOff: 60 * time.Millisecond}
	})
	a := open(t, options(bmc))
	ctx := within(t, 10*time.Second)
	if err := a.Off(ctx, ""); err != nil {
		t.Fatal(err)
	}
	var seen []agents.PowerState
	for {
		r, err := a.Status(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		if len(seen) == 0 || seen[len(seen)-1] != r.State {
			seen = append(seen, r.State)
		}
		if r.State == agents.Off {
			break
		}
	}
	if power.State() {
		t.Error("read off while the power was on")
	}
	for i, s := range seen[:len(seen)-1] { // a slow machine may miss a state, never swap two
		if s == agents.On && i > 0 {
			t.Errorf("read %v", seen)
		}
	}
}

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
