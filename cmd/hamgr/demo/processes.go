package demo

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// processes are handles that stay bound to what they were opened for (pidfd_open(2)): a
// signal never hits a stranger that got a dead process's number.
type processes []*os.Process

// strike sends the signal to everything of a machine at once, and returns what it was.
func strike(ctx context.Context, machine *redfishsim.ProcessPower, sig syscall.Signal) (processes, error) {
	pids, err := machine.Processes()
	if err != nil {
		return nil, err
	}
	var hit processes
	for _, pid := range pids {
		if p, err := os.FindProcess(pid); err == nil { // else it ended meanwhile
			hit = append(hit, p)
		}
	}
	return hit, machine.Signal(ctx, sig)
}

// signal sends it to those that still run, and returns how many those were.
func (ps processes) signal(sig syscall.Signal) int {
	reached := 0
	for _, p := range ps {
		// A zombie takes signals too, but runs no more, and has no command line left.
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Pid)); err != nil || len(text) == 0 {
			continue
		}
		if p.Signal(sig) == nil {
			reached++
		}
	}
	return reached
}

func (ps processes) release() {
	for _, p := range ps {
		_ = p.Release()
	}
}
