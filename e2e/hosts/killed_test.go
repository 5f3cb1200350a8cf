//go:build systemdhost

package hosts

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestKilled: nothing is left on the machine of a test that is killed, by its janitor; nor, after the next test's start, of
// one that was killed together with its janitor.
func TestKilled(t *testing.T) {
	for name, c := range map[string]struct{ janitor bool }{"janitor": {true}, "next test": {false}} {
		t.Run(name, func(t *testing.T) {
			// A process group of its own, as go test is killed.
			cmd := exec.Command("/proc/self/exe", "-test.run", "^TestVictim$", "-test.v")
			cmd.Env = append(os.Environ(), "HAMGR_HOSTS_VICTIM=1")
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			var dir string
			lines := bufio.NewScanner(out)
			for dir == "" && lines.Scan() {
				_, dir, _ = strings.Cut(lines.Text(), "victim: ")
			}
			if len(remains(t, dir)) < 6 {
				t.Errorf("the lab is not whole: %v", remains(t, dir))
			}
			if !c.janitor {
				end(t, janitorOf(t, dir))
			}
			end(t, cmd.Process.Pid)
			cmd.Wait()
			if !c.janitor {
				if len(remains(t, dir)) == 0 {
					t.Error("somebody else cleared up")
				}
				if err := sweepStale(); err != nil {
					t.Error(err)
				}
			}
			until(t, patience, "all is gone", func(context.Context) error {
				if left := remains(t, dir); len(left) > 0 {
					return fmt.Errorf("left: %v", left)
				}
				return nil
			})
		})
	}
}

// TestVictim is what TestKilled kills.
func TestVictim(t *testing.T) {
	if os.Getenv("HAMGR_HOSTS_VICTIM") == "" {
		return
	}
	l := newLab(t, 1)
	l.hosts[0].press(true)
	until(t, patience, "the host runs", l.hosts[0].running)
	l.hosts[0].must(t, "mount /dev/test/shared0 /mnt; nohup sleep 1h > /dev/null 2>&1 &")
	fmt.Println("victim: " + l.dir)
	select {}
}

func end(t *testing.T, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("no process %d", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("process %d: %v", pid, err)
	}
}

func janitorOf(t *testing.T, dir string) int {
	t.Helper()
	for _, pid := range processes(t) {
		line, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		if string(line) == janitorName+"\x00"+dir+"\x00" {
			number, _ := strconv.Atoi(pid)
			return number
		}
	}
	return 0
}

func processes(t *testing.T) (pids []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

// remains is all that is on the machine of a lab: its folder, namespaces, cgroups, loop devices, mounts, processes.
func remains(t *testing.T, dir string) (left []string) {
	t.Helper()
	name := filepath.Base(dir)
	if !strings.HasPrefix(name, labPrefix) {
		t.Fatalf("no lab: %q", dir)
	}
	base, err := cgroupBase(filepath.Dir(programs))
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{dir, "/run/netns/" + name + "*", filepath.Join(base, name)} {
		found, _ := filepath.Glob(pattern)
		left = append(left, found...)
	}
	for _, number := range loopsOn(dir) {
		left = append(left, fmt.Sprintf("/dev/loop%d", number))
	}
	for _, pid := range processes(t) {
		group, _ := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
		line, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		if strings.Contains(string(group), name) || strings.Contains(string(line), dir) {
			left = append(left, "process "+pid)
		}
	}
	mounts, _ := os.ReadFile("/proc/mounts")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir+"/") {
			left = append(left, line)
		}
	}
	return left
}
