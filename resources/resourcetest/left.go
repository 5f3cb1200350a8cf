package resourcetest

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// holds is what the daemon holds, and what it has made of processes.
type holds struct {
	goroutines, files int
	processes         []string
}

func (s *suite) holds() holds {
	return holds{runtime.NumGoroutine(), openFiles(s), processes(s)}
}

// areAll waits until there is no more than there was.
func (before holds) areAll(s *suite) {
	s.Helper()
	s.eventually("as many goroutines as before", func() bool { return runtime.NumGoroutine() <= before.goroutines })
	s.eventually("as many files as before", func() bool { return openFiles(s) <= before.files })
	s.eventually("no more processes than before", func() bool {
		return !slices.ContainsFunc(processes(s), func(p string) bool { return !slices.Contains(before.processes, p) })
	})
}

func openFiles(s *suite) int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", os.Getpid()))
	if err != nil {
		s.Fatal(err)
	}
	return len(entries)
}

// processes are the children of this process, even if only their status is left, and whatever bears the environment of
// the resource (Env.Environ).
func processes(s *suite) []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		s.Fatal(err)
	}
	mark := []byte("HAMGR_BOOT=" + s.env.Boot + "\x00")
	var found []string
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has just ended
		}
		// proc_pid_stat(5): after the name, which is in parentheses and may hold anything: state, parent.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		environ, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) || bytes.Contains(environ, mark) {
			found = append(found, e.Name())
		}
	}
	return found
}
