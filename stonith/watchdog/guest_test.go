package watchdog

import (
	"bytes"
	"context"
	"errors"
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

// The kernel's interface is tried in a kernel of its own: user-mode Linux, whose root is this host's, read-only, and whose first
// process is the test binary. Its software watchdog really resets it: the kernel starts again, with a new boot ID.

const (
	umlKernel  = "/usr/bin/linux.uml"
	umlModules = "/usr/lib/uml/modules"
	// guestVariable names to the first process the directory of this host that outlives the guest's kernel.
	guestVariable = "HAMGR_GUEST_DIR"
	guestPassed   = "GUEST: passed"
	guestReset    = "softdog: Initiating system reboot"
	guestTime     = 60 * time.Second
)

// first is for TestMain: as the first process of a guest it runs TestGuest, and cuts the power.
func first(m *testing.M) {
	if os.Getpid() != 1 || os.Getenv(guestVariable) == "" {
		return
	}
	if err := prepareGuest(); err != nil {
		fmt.Println("GUEST:", err)
	} else if m.Run() == 0 {
		fmt.Println(guestPassed)
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func prepareGuest() error {
	for _, m := range [][3]string{{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"tmpfs", "/tmp", ""}, {"hostfs", "/mnt", os.Getenv(guestVariable)}} {
		if err := unix.Mount(m[0], m[1], m[0], 0, m[2]); err != nil {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(umlModules, unix.ByteSliceToString(name.Release[:]), "kernel/drivers/watchdog/softdog.ko"))
	if err != nil {
		return err
	}
	defer f.Close()
	noWayOut := "0"
	if _, err := os.Stat("/mnt/nowayout"); err == nil {
		noWayOut = "1"
	}
	return unix.FinitModule(int(f.Fd()), "nowayout="+noWayOut, 0)
}

func TestRealKernel(t *testing.T) {
	if _, err := os.Stat(umlKernel); err != nil {
		t.Fatalf("%s is missing: install the Debian package user-mode-linux", umlKernel)
	}
	binary := filepath.Join(t.TempDir(), "guest.test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	for _, name := range []string{"disarm", "nowayout"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			runGuest(t, binary, dir)
			if test, err := readTest(dir); err != nil || test.Verdict != Passed {
				t.Errorf("the record says %+v, %v", test, err)
			}
		})
	}
}

// runGuest boots a kernel, and a second one after the watchdog has fired. User-mode Linux does not start again by itself
// when it is reset from within an interrupt: it stands still. What a mainboard does at the reset, starting anew, is done here.
func runGuest(t *testing.T, binary, dir string) {
	t.Helper()
	first := boot(t, binary, dir)
	if !strings.Contains(first, guestReset) {
		t.Fatalf("the watchdog did not fire (user-mode Linux needs root, ptrace(2), and a %s that allows execution): %s", os.TempDir(), first)
	}
	if second := boot(t, binary, dir); !strings.Contains(second, guestPassed) {
		t.Fatalf("after the reset: %s", second)
	}
}

// boot runs a kernel until it ends or is reset, and gives what it said.
func boot(t *testing.T, binary, dir string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guestTime)
	defer cancel()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, umlKernel, "mem=256M", "rootfstype=hostfs", "rootflags=/", "root=/dev/root", "ro", "quiet", "panic=-1",
		"init="+binary, "con=null", "con0=null,fd:1", "umid=guest", "uml_dir="+home,
		guestVariable+"="+dir, "GODEBUG=asyncpreemptoff=1", "GOGC=off", "--", "-test.run=^TestGuest$", "-test.v", "-test.timeout=2m")
	out := &said{reset: cancel}
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + os.TempDir(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 5 * time.Second
	// The kernel is several processes; all end with the first one of their namespace.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL}
	_ = cmd.Run() // killed, if it was reset
	return out.b.String()
}

// said is what a guest says. Only one goroutine writes: both of its outputs are the same writer.
type said struct {
	b     bytes.Buffer
	reset func()
}

func (s *said) Write(p []byte) (int, error) {
	s.b.Write(p)
	if bytes.Contains(s.b.Bytes(), []byte(guestReset)) {
		s.reset()
	}
	return len(p), nil
}

// guestTiming is short: a test waits for all of it.
var guestTiming = Timing{Timeout: 3 * time.Second, Least: time.Second, Interval: 500 * time.Millisecond, Fresh: 30 * time.Second, Patience: time.Minute, Expiry: 2 * time.Minute}

// TestGuest is what the first process of a guest runs; elsewhere there is nothing to try it on.
func TestGuest(t *testing.T) {
	if os.Getpid() != 1 || os.Getenv(guestVariable) == "" {
		return
	}
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	boot := strings.TrimSpace(string(b))
	dogs, err := filepath.Glob("/dev/watchdog[0-9]*")
	if err != nil || len(dogs) == 0 {
		t.Fatalf("no watchdog: %v", err)
	}
	path := dogs[len(dogs)-1]
	id, err := Identify(path)
	if err != nil || id.Device != filepath.Base(path) {
		t.Fatalf("identified %+v: %v", id, err)
	}
	before, err := readTest("/mnt")
	if err != nil {
		t.Fatal(err)
	}
	if before.Verdict == Begun {
		test, err := Tested("/mnt", boot, id)
		if err != nil || !test.Passed() || test.Boot == boot {
			t.Fatalf("after the reset in boot %s: %+v, %v", boot, test, err)
		}
		fmt.Println("GUEST:", test.Why)
		return
	}
	tryInKernel(t, path, boot)
	err = Fire(t.Context(), Trial{Path: path, Node: "alpha", Boot: boot, DataDir: "/mnt", Timing: guestTiming})
	t.Fatalf("the host was not reset: %v", err)
}

// tryInKernel arms, feeds and disarms for longer than the timeout.
func tryInKernel(t *testing.T, path, boot string) {
	ctx := t.Context()
	dev, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	if i := dev.Info(); i.Name != softwareName || !i.MagicClose() || i.Hardware() {
		t.Fatalf("it is %+v", i)
	}
	if got, err := dev.SetTimeout(guestTiming.Timeout); got != guestTiming.Timeout || err != nil {
		t.Fatalf("timeout %s: %v", got, err)
	}
	if _, err := Open(ctx, path); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "process 1") {
		t.Fatalf("opened twice: %v", err)
	}
	for begun := time.Now(); time.Since(begun) < 2*guestTiming.Timeout; time.Sleep(guestTiming.Timeout / 6) {
		if err := dev.Feed(); err != nil {
			t.Fatal(err)
		}
	}
	err = dev.Disarm()
	if _, stat := os.Stat("/mnt/nowayout"); stat == nil {
		if !errors.Is(err, ErrNoWayOut) {
			t.Fatalf("disarmed in spite of nowayout: %v", err)
		}
		if err := errors.Join(dev.Feed(), dev.Close()); err != nil { // it counts on, and is opened again in time
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * guestTiming.Timeout)
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
}
