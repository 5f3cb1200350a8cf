package redfishsim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// process is one line of the kernel's process table (proc(5), /proc/PID/stat).
type process struct {
	pid     int
	state   byte
	parent  int
	session int
	started uint64 // in clock ticks since boot; pid and started name a process for ever
}

// dead reports a process that runs no more: a zombie that nobody reaped yet.
func (p process) dead() bool { return p.state == 'Z' || p.state == 'X' || p.state == 'x' }

func (p process) stopped() bool { return p.state == 'T' || p.state == 't' }

// waiting reports a wait in the kernel that only its end or SIGKILL interrupts.
func (p process) waiting() bool { return p.state == 'D' }

// readProcesses reads the process table. Processes that end meanwhile are left out.
func readProcesses() ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

func readProcess(pid int) (process, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	p, err := parseStat(string(line))
	p.pid = pid
	return p, err
}

// parseStat reads a stat line. The command name is in brackets and may itself hold
// blanks and brackets, so the fields are counted from the last bracket.
func parseStat(line string) (process, error) {
	end := strings.LastIndexByte(line, ')')
	f := strings.Fields(line[end+1:])
	if end < 0 || len(f) < 20 || len(f[0]) != 1 {
		return process{}, errors.New("not a stat line")
	}
	parent, err1 := strconv.Atoi(f[1])
	session, err2 := strconv.Atoi(f[3])
	started, err3 := strconv.ParseUint(f[19], 10, 64)
	return process{state: f[0][0], parent: parent, session: session, started: started}, errors.Join(err1, err2, err3)
}

// members picks the living processes of a machine: those of its leader's session, those that
// carry its marker in the environment, and the children of both, wherever they went.
// A process that left the session, dropped the marker and lost its parent is not found.
func members(all []process, leader process, marker string) []process {
	all = slices.DeleteFunc(all, func(p process) bool { return p.started < leader.started })
	own := map[int]bool{}
	for _, p := range all {
		if p.session == leader.pid || hasVariable(p.pid, marker) {
			own[p.pid] = true
		}
	}
	for grew := true; grew; {
		grew = false
		for _, p := range all {
			if !own[p.pid] && own[p.parent] {
				own[p.pid], grew = true, true
			}
		}
	}
	delete(own, os.Getpid()) // whoever switches the machine is not part of it
	delete(own, 1)
	var found []process
	for _, p := range all {
		if own[p.pid] && !p.dead() {
			found = append(found, p)
		}
	}
	return found
}

// hasVariable looks into a process's environment; that of another user's is unreadable,
// and none of ours.
func hasVariable(pid int, variable string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if string(entry) == variable {
			return true
		}
	}
	return false
}
