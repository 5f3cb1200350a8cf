package demo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// A machine of the demo is every process that carries its boot ID: the daemon on its command line, what
// the daemon starts in its environment (HAMGR_BOOT). Sessions and process groups do not tell,
// because a resource has its own.

// processes are handles that stay bound to what they were opened for (pidfd_open(2)): a
// signal never hits a stranger that got a dead process's number.
type processes []*os.Process

// processesOf finds all living processes of a boot, as of now.
func processesOf(boot string) (processes, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var found processes
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() || !carries(dir, boot) {
			continue
		}
		p, err := os.FindProcess(pid)
		if err != nil {
			continue // gone since
		}
		if !carries(dir, boot) { // the handle may be another's
			_ = p.Release()
			continue
		}
		found = append(found, p)
	}
	return found, nil
}

// carries reports whether the process in this folder of /proc runs and belongs to the boot.
func carries(dir, boot string) bool {
	for _, file := range []string{"cmdline", "environ"} {
		// Other users' processes cannot be read, and are none of ours.
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		for word := range bytes.SplitSeq(text, []byte{0}) {
			if string(word) == boot || string(word) == "HAMGR_BOOT="+boot {
				return true // a zombie has neither file's content
			}
		}
	}
	return false
}

// signalBoot sends the signal to every process of a boot, and to those that were born while it
// was at it, and returns them all.
func signalBoot(boot string, sig syscall.Signal) (processes, error) {
	var all processes
	reached := map[int]bool{}
	for quiet := 0; quiet < 2; quiet++ {
		now, err := processesOf(boot)
		if err != nil {
			return all, err
		}
		for _, p := range now {
			if reached[p.Pid] {
				_ = p.Release()
				continue
			}
			reached[p.Pid] = true
			quiet = 0
			if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return all, fmt.Errorf("%s to process %d: %w", sig, p.Pid, err)
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// signal sends it to those that still run, and returns how many those were.
func (ps processes) signal(sig syscall.Signal) int {
	reached := 0
	for _, p := range ps {
		// A zombie can be signalled too, but runs no more.
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
