package filesystem

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/guest"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// The tests mount and kill for real, in a mount and PID namespace of their own, so that
// no mistake reaches the host: the test binary runs itself again in one. The second role
// is a process that uses a mount.
const (
	namespaceVariable = "FILESYSTEM_TEST_NAMESPACE"
	userVariable      = "FILESYSTEM_TEST_USER"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(userVariable); how != "" {
		useMount(how, os.Args[1])
	}
	if os.Getenv(diskVariable) != "" {
		serveDisk(os.Args[1], os.Args[2])
	}
	guest.First(m, guestModules...)
	if os.Getenv(namespaceVariable) != "" {
		if os.Getpid() == 1 { // workers of the fuzzer are in the namespace already
			if err := ownNamespace(); err != nil {
				fmt.Fprintln(os.Stderr, "set up the namespace:", err)
				os.Exit(1)
			}
		}
		goleak.VerifyTestMain(m)
		return
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests mount file systems on loop devices and must run as root")
		os.Exit(1)
	}
	runtime.LockOSThread() // Pdeathsig is about this thread
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), namespaceVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "run in a namespace:", err)
		os.Exit(1)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

func ownNamespace() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return errors.Join(unix.Mount("proc", "/proc", "proc", 0, ""), fakePrograms())
}

// useMount holds a mount in one way, says so, and waits to be ended.
func useMount(how, path string) {
	var err error
	switch how {
	case "cwd", "cwd stubborn":
		err = os.Chdir(path)
	case "file":
		_, err = unix.Open(path, unix.O_RDONLY, 0)
	case "map":
		var fd int
		if fd, err = unix.Open(path, unix.O_RDONLY, 0); err == nil {
			_, err = unix.Mmap(fd, 0, 4, unix.PROT_READ, unix.MAP_PRIVATE)
			unix.Close(fd)
		}
	case "root":
		err = unix.Chroot(path)
	case "write":
		var fd int
		if fd, err = unix.Open(path, unix.O_RDWR, 0); err == nil {
			go func() {
				for { // a little at a time
					_, _ = unix.Pwrite(fd, []byte("data"), 0)
					_ = unix.Fsync(fd)
					time.Sleep(10 * time.Millisecond)
				}
			}()
		}
	}
	fmt.Println("uses", err)
	if how == "cwd stubborn" {
		unix.Kill(os.Getpid(), unix.SIGSTOP) // acts on nothing but SIGCONT and SIGKILL
	}
	time.Sleep(10 * time.Minute) // it is ended long before
}

// user starts a process that holds a mount, and returns a function that tells whether
// it still runs.
func user(t *testing.T, how, path string) (runs func() bool) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", path)
	cmd.Env = append(os.Environ(), userVariable+"="+how)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "uses <nil>\n" {
		t.Fatalf("%s of %q: %q %v", how, path, line, err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	return func() bool {
		select {
		case <-ended:
			return false
		case <-time.After(20 * time.Millisecond):
			p, err := process.Look(cmd.Process.Pid) // one that has just ended may not have been waited for yet
			return err == nil && !p.Ended()
		}
	}
}

// disk makes a loop device with a fresh ext4.
func disk(t *testing.T) string {
	t.Helper()
	return loop(t, image(t, mkfsOf["ext4"]...))
}

func run(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
	return strings.TrimSpace(string(out))
}

func mounted(t *testing.T, o Options) *filesystem {
	t.Helper()
	f := unmounted(t, o)
	if err := f.Start(deadline(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	wantState(t, f, resources.Active)
	return f
}

// unmounted makes the resource and its mount point, and undoes all mounts in the end.
func unmounted(t *testing.T, o Options) *filesystem {
	t.Helper()
	if o.KillAfter == 0 {
		o.KillAfter = 200 * time.Millisecond
	}
	if o.Fsck == "" {
		o.Fsck = fsckAuto
	}
	if o.DiskTimeout == 0 {
		o.DiskTimeout = time.Minute
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(o.Mountpoint, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := o.New(resources.Env{Group: "db", Resource: "data", Token: 1, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for unix.Unmount(o.Mountpoint, unix.MNT_DETACH) == nil {
		}
	})
	return r.(*filesystem)
}

func mustStop(t *testing.T, f *filesystem) {
	t.Helper()
	if err := f.Stop(deadline(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	wantState(t, f, resources.Inactive)
}

func wantState(t *testing.T, f *filesystem, want resources.State) {
	t.Helper()
	got, detail, err := f.Probe(deadline(t, time.Minute))
	if err != nil || got != want {
		t.Errorf("probe of %q: %v %q %v, want %v", f.opts.Mountpoint, got, detail, err, want)
	}
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestLifeOfADisk(t *testing.T) {
	device := disk(t)
	link := filepath.Join(t.TempDir(), "by-id") // operators name devices by symbolic links
	if err := os.Symlink(device, link); err != nil {
		t.Fatal(err)
	}
	f := unmounted(t, Options{Device: link, Mountpoint: filepath.Join(t.TempDir(), "m"), Fstype: "ext4", Options: []string{"noatime,nodev", "data=ordered"}})
	wantState(t, f, resources.Inactive)
	mustStop(t, f)
	for range 2 {
		if err := f.Start(deadline(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		wantState(t, f, resources.Active)
	}
	e, err := f.topInTable()
	if err != nil || !strings.Contains(e.options, "nodev,noatime") {
		t.Errorf("options: %+v %v", e, err)
	}
	if err := os.WriteFile(f.opts.Mountpoint+"/file", []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	mustStop(t, f)
}

func TestOddPaths(t *testing.T) {
	for _, name := range []string{"a b", "a\nb", `a\b`, `a\040b`, "a\tb", "ü#", "-"} {
		root := filepath.Join(t.TempDir(), "link") // the kernel knows the mount by another path than we
		if err := os.Symlink(t.TempDir(), root); err != nil {
			t.Fatal(err)
		}
		other := mounted(t, Options{Device: "decoy", Mountpoint: filepath.Join(root, "decoy"), Fstype: "tmpfs"})
		f := mounted(t, Options{Device: "so urce" + name, Mountpoint: filepath.Join(root, name), Fstype: "tmpfs"})
		runs := user(t, "cwd", f.opts.Mountpoint)
		bystander := user(t, "cwd", other.opts.Mountpoint)
		mustStop(t, f)
		if runs() || !bystander() {
			t.Errorf("%q: user runs %v, bystander runs %v", name, runs(), bystander())
		}
	}
}

// Only who holds the very mount is ended, in whatever way it holds it.
func TestStopEndsUsersOfThisMountOnly(t *testing.T) {
	parent := mounted(t, Options{Device: disk(t), Mountpoint: filepath.Join(t.TempDir(), "a"), Fstype: "ext4"})
	child := mounted(t, Options{Device: disk(t), Mountpoint: filepath.Join(parent.opts.Mountpoint, "b"), Fstype: "ext4"})
	for _, m := range []*filesystem{parent, child} {
		if err := os.WriteFile(m.opts.Mountpoint+"/file", []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	twin := parent.opts.Mountpoint + "/bb" // the same path as a prefix
	if err := os.Mkdir(twin, 0o700); err != nil {
		t.Fatal(err)
	}
	a, b := parent.opts.Mountpoint, child.opts.Mountpoint
	bystanders, users := map[string]func() bool{}, map[string]func() bool{}
	for how, path := range map[string]string{"cwd": "", "cwd stubborn": "", "file": "/file", "map": "/file", "root": ""} {
		bystanders[how] = user(t, how, a+path)
		users[how] = user(t, how, b+path)
	}
	bystanders["twin"] = user(t, "cwd", twin)
	mustStop(t, child)
	for how, runs := range users {
		if runs() {
			t.Errorf("user by %s still runs", how)
		}
	}
	for how, runs := range bystanders {
		if !runs() {
			t.Errorf("bystander by %s was ended", how)
		}
	}
	wantState(t, parent, resources.Active)
}

// Whoever uses a bind mount of the same directory is no user of this mount, and a device that is
// still mounted somewhere has not been stopped.
func TestBindMountElsewhere(t *testing.T) {
	f := mounted(t, Options{Device: disk(t), Mountpoint: filepath.Join(t.TempDir(), "a"), Fstype: "ext4"})
	bind := mounted(t, Options{Device: f.opts.Mountpoint, Mountpoint: filepath.Join(t.TempDir(), "elsewhere"), Fstype: "none", Options: []string{"bind", "ro"}})
	if err := os.WriteFile(bind.opts.Mountpoint+"/file", nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a bind mount with ro can be written to: %v", err)
	}
	users, bystanders := user(t, "cwd", f.opts.Mountpoint), user(t, "cwd", bind.opts.Mountpoint)
	if err := f.Stop(deadline(t, time.Second)); err == nil || !strings.Contains(err.Error(), bind.opts.Mountpoint) {
		t.Errorf("stop while the device is mounted elsewhere: %v", err)
	}
	if users() || !bystanders() {
		t.Errorf("user runs %v, bystander runs %v", users(), bystanders())
	}
	wantState(t, f, resources.Failed)
	if err := f.Start(deadline(t, time.Minute)); err == nil || !strings.Contains(err.Error(), bind.opts.Mountpoint) {
		t.Errorf("start while the device is mounted elsewhere: %v", err)
	}
	if err := unix.Unmount(bind.opts.Mountpoint, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	// Detached, and so in no table; but its user still holds it.
	wantState(t, f, resources.Failed)
	if err := f.Stop(deadline(t, time.Second)); err == nil || !strings.Contains(err.Error(), "still held") {
		t.Errorf("stop of a device held by a detached mount: %v", err)
	}
}

func TestStartRefuses(t *testing.T) {
	occupied := mounted(t, Options{Device: "decoy", Mountpoint: filepath.Join(t.TempDir(), "m"), Fstype: "tmpfs"})
	device, root := disk(t), t.TempDir()
	link := filepath.Join(root, "link")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ device, mountpoint, want string }{
		{device, filepath.Join(root, "missing"), "create it with: mkdir -p"},
		{device, occupied.opts.Mountpoint, "decoy (tmpfs)"},
		{device, link, "symbolic link"},
		{"/dev/no-such-device", root, "there is no"},
	} {
		o := Options{Device: test.device, Mountpoint: test.mountpoint, Fstype: "ext4"}
		r, err := o.New(resources.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Start(deadline(t, time.Minute)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", test, err)
		}
		if err := r.Stop(deadline(t, time.Minute)); err != nil && test.want != "there is no" {
			t.Errorf("%+v: stop after a failed start: %v", test, err)
		}
	}
	wantState(t, occupied, resources.Active)
}

func TestCovered(t *testing.T) {
	f := mounted(t, Options{Device: disk(t), Mountpoint: filepath.Join(t.TempDir(), "m"), Fstype: "ext4"})
	if err := unix.Mount("cover", f.opts.Mountpoint, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	wantState(t, f, resources.Failed)
	if err := f.Stop(deadline(t, time.Minute)); err == nil {
		t.Error("stopped although it is still mounted under another mount")
	}
	if err := unix.Unmount(f.opts.Mountpoint, 0); err != nil {
		t.Fatal(err)
	}
	mustStop(t, f)
}

func TestMountInside(t *testing.T) {
	f := mounted(t, Options{Device: disk(t), Mountpoint: filepath.Join(t.TempDir(), "m"), Fstype: "ext4"})
	inner := mounted(t, Options{Device: "inner", Mountpoint: filepath.Join(f.opts.Mountpoint, "i"), Fstype: "tmpfs"})
	if err := f.Stop(deadline(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), inner.opts.Mountpoint) {
		t.Errorf("stop: %v", err)
	}
	mustStop(t, inner)
	mustStop(t, f)
}

func TestReadOnlyByFault(t *testing.T) {
	f := mounted(t, Options{Device: disk(t), Mountpoint: filepath.Join(t.TempDir(), "m"), Fstype: "ext4"})
	if err := unix.Mount("", f.opts.Mountpoint, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	wantState(t, f, resources.Failed)
	mustStop(t, f)
}

// A bind mount comes and goes while the disk below it stays mounted where it belongs: another resource, or the host, holds that.
func TestBindMountOfADisk(t *testing.T) {
	below := mounted(t, Options{Device: disk(t), Mountpoint: t.TempDir(), Fstype: "ext4"})
	dir := filepath.Join(below.opts.Mountpoint, "part")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := mounted(t, Options{Device: dir, Mountpoint: t.TempDir(), Fstype: "none", Options: []string{"bind"}})
	wantState(t, f, resources.Active)
	mustStop(t, f)
	wantState(t, f, resources.Inactive)
	wantState(t, below, resources.Active)
	mustStop(t, below)
}
