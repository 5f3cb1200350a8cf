package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// quiet waits until no call of a resource hangs any more.
func quiet(t *testing.T, f *filesystem) {
	t.Helper()
	eventually(t, "the kernel lets go of all calls", func() bool { return len(f.calls.inside)+len(f.tests.inside) == 0 })
}

func wantDetail(t *testing.T, f *filesystem, want resources.State, words ...string) {
	t.Helper()
	got, detail, err := f.Probe(deadline(t, time.Minute))
	if err != nil || got != want {
		t.Errorf("probe: %v %q %v, want %v", got, detail, err, want)
	}
	for _, w := range words {
		if !strings.Contains(detail, w) {
			t.Errorf("probe: %q lacks %q", detail, w)
		}
	}
}

// A disk that hangs is a failed monitor and then a failed stop; the daemon goes on, and no
// number of monitors holds more than one goroutine.
func TestHungDisk(t *testing.T) {
	for _, write := range []bool{false, true} {
		t.Run(fmt.Sprintf("write %v", write), func(t *testing.T) {
			d := newBadDisk(t, mkfsOf["ext4"]...)
			f := mounted(t, Options{Device: d.device, Mountpoint: t.TempDir(), Fstype: "ext4", MonitorWrite: write})
			if err := os.WriteFile(f.opts.Mountpoint+"/file", []byte("dirty"), 0o600); err != nil {
				t.Fatal(err)
			}
			mode := "hang"
			if write {
				mode = "hang writes"
			}
			d.during(t, mode)
			f.opts.DiskTimeout = 300 * time.Millisecond // while it works, a busy machine may need more
			wantDetail(t, f, resources.Failed, "does not answer within")
			before := runtime.NumGoroutine()
			for range 3 {
				wantDetail(t, f, resources.Failed, "still hangs")
			}
			// Others may be about to end.
			eventually(t, "no more goroutines than before", func() bool { return runtime.NumGoroutine() <= before })
			again, err := f.opts.New(f.env) // as a new grant has it
			if err != nil {
				t.Fatal(err)
			}
			if state, detail, err := again.Probe(deadline(t, time.Minute)); err != nil || state != resources.Failed {
				t.Errorf("another resource of this mount: %v %q %v", state, detail, err)
			}
			start := time.Now()
			if err := f.Stop(deadline(t, 300*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("stop: %v", err)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("a stop with 300 ms took %s", took)
			}
			d.now(t, "work")
			quiet(t, f)
			mustStop(t, f)
		})
	}
}

// A check or mount of a disk that hangs ends with its context, and a stop does not take it for gone.
func TestHungStart(t *testing.T) {
	for _, fsck := range []string{fsckNever, fsckPreen} {
		d := newBadDisk(t, mkfsOf["ext4"]...)
		f := unmounted(t, Options{Device: d.device, Mountpoint: t.TempDir(), Fstype: "ext4", Fsck: fsck})
		run(t, "blockdev", "--flushbufs", d.device)
		d.now(t, "hang")
		if err := f.Start(deadline(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: start: %v", fsck, err)
		}
		if err := f.Stop(deadline(t, 300*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: stop while it hangs: %v", fsck, err)
		}
		d.now(t, "work")
		quiet(t, f)
		mustStop(t, f)
	}
}

// A disk that answers with errors is this node's fault, never the configuration's.
func TestBrokenDisk(t *testing.T) {
	for fstype, mkfs := range mkfsOf {
		t.Run(fstype, func(t *testing.T) {
			d := newBadDisk(t, mkfs...)
			f := mounted(t, Options{Device: d.device, Mountpoint: t.TempDir(), Fstype: fstype, MonitorWrite: true})
			wantState(t, f, resources.Active)
			d.during(t, "fail")
			wantDetail(t, f, resources.Failed, resources.ErrNode.Error(), "input/output error")
			// Now the file system itself finds out, and gives up.
			if file, err := os.Create(f.opts.Mountpoint + "/file"); err == nil {
				_, _ = file.WriteString("x")
				_ = file.Sync()
				file.Close()
			}
			unix.Sync()
			wantDetail(t, f, resources.Failed)
			if err := f.Stop(deadline(t, time.Minute)); err != nil {
				t.Errorf("stop: %v", err)
			}
			err := f.Start(deadline(t, time.Minute))
			if !errors.Is(err, resources.ErrNode) || errors.Is(err, resources.ErrSetup) {
				t.Errorf("start: %v", err)
			}
			d.now(t, "work")
			if err := f.Stop(deadline(t, time.Minute)); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
	}
}

// shutdown is XFS_IOC_GOINGDOWN and EXT4_IOC_SHUTDOWN, without writing anything back.
func shutdown(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.IoctlSetPointerInt(fd, 0x8004587d, 2); err != nil {
		t.Fatal(err)
	}
}

// A file system that gave up after errors has failed, though it is mounted, its disk is well and nothing is written.
func TestShutdown(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		f := mounted(t, Options{Device: loop(t, image(t, mkfsOf[fstype]...)), Mountpoint: t.TempDir(), Fstype: fstype})
		users := []func() bool{user(t, "cwd", f.opts.Mountpoint), user(t, "file", f.opts.Mountpoint)}
		bystander := user(t, "cwd", filepath.Dir(f.opts.Mountpoint))
		shutdown(t, f.opts.Mountpoint)
		wantState(t, f, resources.Failed)
		if err := wantError(f.Start(deadline(t, time.Minute)), resources.ErrNode, ""); err != nil {
			t.Error(err)
		}
		mustStop(t, f)
		if users[0]() || users[1]() || !bystander() {
			t.Errorf("%s: its users or a bystander", fstype)
		}
	}
}

func TestBrokenWords(t *testing.T) {
	for super, want := range map[string]string{"rw": "", "rw,emergency_ro": "emergency_ro", "rw,a,shutdown": "shutdown", "rw,noshutdown": ""} {
		if got := (entry{super: super}).broken(); got != want {
			t.Errorf("%s: %q", super, got)
		}
	}
}

// A device that lost its name is still ours to unmount, also for a daemon that was started since.
func TestVanishedDevice(t *testing.T) {
	device, link := disk(t), filepath.Join(t.TempDir(), "by-id")
	if err := os.Symlink(device, link); err != nil {
		t.Fatal(err)
	}
	f := unmounted(t, Options{Device: link, Mountpoint: t.TempDir(), Fstype: "ext4"})
	f.env.Dir = t.TempDir()
	for _, other := range []string{"", disk(t)} {
		if err := f.Start(deadline(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		wantState(t, f, resources.Active)
		_ = os.Remove(link)
		if other != "" {
			if err := os.Symlink(other, link); err != nil {
				t.Fatal(err)
			}
		}
		wantDetail(t, f, resources.Failed, "its device")
		if err := f.Start(deadline(t, time.Minute)); !errors.Is(err, resources.ErrNode) {
			t.Errorf("start: %v", err)
		}
		mustStop(t, f)
		if held, err := claimed(device); err != nil || held {
			t.Errorf("after the stop: held %v, %v", held, err)
		}
		_ = os.Remove(link)
		if err := f.Start(deadline(t, time.Minute)); !errors.Is(err, resources.ErrNode) {
			t.Errorf("start without a device: %v", err)
		}
		mustStop(t, f)
		if err := os.Symlink(device, link); err != nil {
			t.Fatal(err)
		}
	}
}

// A stop is not done while the nameless device is held by another.
func TestVanishedDeviceIsHeld(t *testing.T) {
	device, link := disk(t), filepath.Join(t.TempDir(), "by-id")
	if err := os.Symlink(device, link); err != nil {
		t.Fatal(err)
	}
	f := unmounted(t, Options{Device: link, Mountpoint: t.TempDir(), Fstype: "ext4"})
	f.env.Dir = t.TempDir()
	if err := f.Start(deadline(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	if err := unix.Mount(f.opts.Mountpoint, elsewhere, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(elsewhere, 0) })
	_ = os.Remove(link)
	if err := f.Stop(deadline(t, time.Second)); err == nil || !strings.Contains(err.Error(), elsewhere) {
		t.Errorf("stop: %v", err)
	}
}

func TestWriteTest(t *testing.T) {
	f := mounted(t, Options{Device: disk(t), Mountpoint: t.TempDir(), Fstype: "ext4", MonitorWrite: true})
	path, victim := filepath.Join(f.opts.Mountpoint, testFile), filepath.Join(f.opts.Mountpoint, "victim")
	b, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(b), "resource data of group db") {
		t.Errorf("%q %v", b, err)
	}
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, replace := range map[string]func() error{
		"symbolic link": func() error { return os.Symlink("victim", path) },
		"hard link":     func() error { return os.Link(victim, path) },
		"pipe":          func() error { return unix.Mkfifo(path, 0o600) },
		"directory":     func() error { return os.Mkdir(path, 0o700) },
	} {
		if err := errors.Join(os.Remove(path), replace()); err != nil {
			t.Fatal(err)
		}
		wantState(t, f, resources.Failed)
		if b, err := os.ReadFile(victim); err != nil || string(b) != "precious" {
			t.Errorf("%s: the file it leads to is %q %v", name, b, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	fill, err := os.Create(f.opts.Mountpoint + "/fill")
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{64 << 10, 4 << 10} {
		for err = nil; err == nil; {
			_, err = fill.Write(make([]byte, size))
		}
		_ = fill.Sync()
	}
	fill.Close()
	wantDetail(t, f, resources.Active, "full")
	mustStop(t, f)
}
