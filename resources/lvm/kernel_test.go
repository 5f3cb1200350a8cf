package lvm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests with LVM need a kernel with device-mapper and disks that nobody else has. User-mode Linux is such a kernel, as a
// process of this host: its root is this host's, read-only; its first process is the test binary.

const (
	kernel  = "/usr/bin/linux.uml"
	modules = "/usr/lib/uml/modules"
	diskMB  = 64
	// guestVariable names to the first process what to run. The kernel hands it on.
	guestVariable = "HAMGR_LVM_GUEST"
	passed        = "GUEST: passed"
)

// machine is what a kernel is started from: a test binary and two disks, which may be shared and which outlive it.
type machine struct {
	binary string
	disks  [2]string
}

// build makes a test binary without the race detector, which asks for more address space than that kernel has.
func build(t *testing.T) string {
	t.Helper()
	for path, pkg := range map[string]string{kernel: "user-mode-linux", "/sbin/lvm": "lvm2", "/sbin/dmsetup": "dmsetup"} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%s is missing: install the Debian package %s", path, pkg)
		}
	}
	if os.Getuid() != 0 {
		t.Fatal("these tests need root")
	}
	binary := filepath.Join(t.TempDir(), "lvm.test")
	cmd := exec.Command("go", "test", "-c", "-o", binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return binary
}

func newMachine(t *testing.T, binary string) machine {
	t.Helper()
	m := machine{binary: binary}
	for i := range m.disks {
		m.disks[i] = filepath.Join(t.TempDir(), "disk")
		must(t, os.WriteFile(m.disks[i], nil, 0o600))
		must(t, os.Truncate(m.disks[i], diskMB<<20))
	}
	return m
}

// run boots a kernel that runs the part of the test, and ends without a shutdown.
func (m machine) run(t *testing.T, part string) {
	t.Helper()
	home := t.TempDir()
	cmd := exec.CommandContext(within(t, 9*time.Minute), kernel, "mem=256M", "rootfstype=hostfs", "rootflags=/", "root=/dev/root", "ro", "quiet",
		"init="+m.binary, "con=null", "con0=null,fd:1", "umid=guest", "uml_dir="+home, "ubd0="+m.disks[0], "ubd1="+m.disks[1],
		guestVariable+"="+part, "GODEBUG=asyncpreemptoff=1", "GOGC=off", "--", // a signal is dear there
		"-test.run=^TestGuest$/^"+part+"$", "-test.v", "-test.timeout=8m")
	var out bytes.Buffer
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + os.TempDir(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = &out, &out
	// The kernel is several processes; all end with the first one of their namespace.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	if err != nil || !strings.Contains(out.String(), passed) {
		t.Fatalf("%s: %v\n%s", part, err, out.String())
	}
	if testing.Verbose() {
		t.Logf("%s:\n%s", part, out.String())
	}
}

// firstProcess makes the kernel usable, runs the tests, and cuts the power.
func firstProcess(m *testing.M) {
	err := prepareKernel()
	if err == nil {
		if code := m.Run(); code == 0 {
			fmt.Println(passed)
		}
	}
	if err != nil {
		fmt.Println("GUEST:", err)
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func prepareKernel() error {
	for _, dir := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"}} {
		if err := unix.Mount(dir[0], dir[1], dir[0], 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir[1], err)
		}
	}
	for _, dir := range []string{"/run/lock", "/run/lvm", "/run/mnt"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	for _, module := range []string{"dm-mod", "dm-bufio", "dm-snapshot"} {
		f, err := os.Open(filepath.Join(modules, unix.ByteSliceToString(name.Release[:]), "kernel/drivers/md", module+".ko"))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil {
			return fmt.Errorf("module %s: %w", module, err)
		}
	}
	os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
	return nil
}

// parts run in a kernel. See guest_test.go.
var parts = map[string]func(*testing.T){}

// TestGuest is what the first process runs.
func TestGuest(t *testing.T) {
	if os.Getpid() == 1 {
		part := os.Getenv(guestVariable)
		t.Run(part, parts[part])
	}
}

func TestKernels(t *testing.T) {
	binary := build(t)
	// A node alone: what the kind does with a group, step by step.
	t.Run("OneNode", func(t *testing.T) {
		t.Parallel()
		newMachine(t, binary).run(t, "OneNode")
	})
	// One kernel with two configurations of LVM: two nodes that compete for one group.
	t.Run("TwoNodes", func(t *testing.T) {
		t.Parallel()
		newMachine(t, binary).run(t, "TwoNodes")
	})
	// Kernels after one another on the same disks, none of which shuts down.
	t.Run("PowerCuts", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, binary)
		m.run(t, "AlphaStarts")
		m.run(t, "BetaTakesOver")
		m.run(t, "AlphaReturns")
	})
}
