package ipmipeer

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// need fails the test where a program is missing.
func need(tb testing.TB, program, pkg string) {
	tb.Helper()
	if _, err := exec.LookPath(program); err != nil {
		tb.Fatalf("%s is missing: install the package %s", program, pkg)
	}
}

// launch runs a program until it listens at the port. It dies with the test.
func launch(tb testing.TB, log string, port int, name string, args ...string) *exec.Cmd {
	tb.Helper()
	out, err := os.Create(log)
	if err != nil {
		tb.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); !listens(cmd.Process.Pid, port); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) || ended(cmd.Process.Pid) {
			kill(cmd)
			text, _ := os.ReadFile(log)
			tb.Fatalf("%s does not listen at port %d:\n%s", name, port, text)
		}
	}
	return cmd
}

// kill ends a program and all that it started.
func kill(cmd *exec.Cmd) {
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	cmd.Wait()
}

// ended: gone, or a zombie.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

// listens reports whether the process has the UDP port: another's is not ours.
func listens(pid, port int) bool {
	table, _ := os.ReadFile("/proc/net/udp")
	six, _ := os.ReadFile("/proc/net/udp6")
	for line := range strings.Lines(string(table) + string(six)) {
		f := strings.Fields(line)
		if len(f) > 9 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && owns(pid, "socket:["+f[9]+"]") {
			return true
		}
	}
	return false
}

func owns(pid int, socket string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if to, _ := os.Readlink(dir + "/" + f.Name()); to == socket {
			return true
		}
	}
	return false
}
