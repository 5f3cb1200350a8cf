// Package guest runs tests in kernels of their own: with device-mapper, LVM or NFS, which the host's kernel may lack, and
// with disks that nobody else has. User-mode Linux is such a kernel, as a process of this host: its root is this host's,
// read-only; its first process is the test binary.
package guest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	kernel  = "/usr/bin/linux.uml"
	modules = "/usr/lib/uml/modules"
	// partVariable names to the first process what to run. The kernel hands it on.
	partVariable = "HAMGR_GUEST"
	booted       = "GUEST: booted"
	passed       = "GUEST: passed"
	// bootTime is how long a kernel may take until its first process runs: half a second on an idle machine.
	bootTime = time.Minute
)

// Machine is what a kernel is started from: a test binary and disks (/dev/ubda, ...), which may be shared and which outlive it.
type Machine struct {
	Binary string
	Disks  []string
}

// Build makes the package's test binary without the race detector, which asks for more address space than that kernel has.
func Build(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(kernel); err != nil {
		t.Fatalf("%s is missing: install the Debian package user-mode-linux", kernel)
	}
	if os.Getuid() != 0 {
		t.Fatal("these tests need root")
	}
	binary := filepath.Join(t.TempDir(), "guest.test")
	cmd := exec.Command("go", "test", "-c", "-o", binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return binary
}

// New makes a machine with empty disks of that many MB each.
func New(t *testing.T, binary string, disks ...int64) Machine {
	t.Helper()
	m := Machine{Binary: binary}
	for _, mb := range disks {
		disk := filepath.Join(t.TempDir(), "disk")
		err := os.WriteFile(disk, nil, 0o600)
		if err == nil {
			err = os.Truncate(disk, mb<<20)
		}
		if err != nil {
			t.Fatal(err)
		}
		m.Disks = append(m.Disks, disk)
	}
	return m
}

// Run boots a kernel that runs the part of the test TestGuest, and ends without a shutdown.
func (m Machine) Run(t *testing.T, part string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	home := t.TempDir()
	args := []string{"mem=256M", "rootfstype=hostfs", "rootflags=/", "root=/dev/root", "ro", "quiet", "panic=-1",
		"init=" + m.Binary, "con=null", "con0=null,fd:1", "umid=guest", "uml_dir=" + home}
	for i, disk := range m.Disks {
		args = append(args, fmt.Sprintf("ubd%d=%s", i, disk))
	}
	args = append(args, partVariable+"="+part, "GODEBUG=asyncpreemptoff=1", "GOGC=off", "--", // a signal is dear there
		"-test.run=^TestGuest$/^"+part+"$", "-test.v", "-test.timeout=8m")
	cmd := exec.CommandContext(ctx, kernel, args...)
	out := &output{}
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + os.TempDir(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = out, out
	// The kernel is several processes; all end with the first one of their namespace.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL}
	boot := time.AfterFunc(bootTime, func() {
		if !out.has(booted) {
			cancel()
		}
	})
	defer boot.Stop()
	err := cmd.Run()
	switch {
	case !out.has(booted):
		t.Fatalf("%s: user-mode Linux does not boot here (%v). It needs ptrace(2), which a container may forbid (add the capability SYS_PTRACE),"+
			" and %s on a file system that allows execution, with 256 MB (mount it without noexec, or set TMPDIR). It says:\n%s", part, err, os.TempDir(), out)
	case err != nil || !out.has(passed):
		t.Fatalf("%s: %v\n%s", part, err, out)
	case testing.Verbose():
		t.Logf("%s:\n%s", part, out)
	}
}

// output is what the kernel and its first process say.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func (o *output) has(words string) bool { return strings.Contains(o.String(), words) }
