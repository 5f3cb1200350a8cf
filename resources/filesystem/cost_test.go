package filesystem

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

func ownCPU(tb testing.TB) time.Duration {
	tb.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// 80 file systems in a group start and stop within 2 s more than the kernel itself takes.
func TestEightyFileSystems(t *testing.T) {
	const number = 80
	var all []*filesystem
	for range number {
		all = append(all, unmounted(t, Options{Device: disk(t), Mountpoint: t.TempDir(), Fstype: "ext4", MonitorWrite: true}))
	}
	measure := func(what string, each func(f *filesystem) error) time.Duration {
		begin := time.Now()
		for _, f := range all {
			if err := each(f); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		return time.Since(begin)
	}
	mount := measure("mount", func(f *filesystem) error { return unix.Mount(f.opts.Device, f.opts.Mountpoint, "ext4", 0, "") })
	unmount := measure("unmount", func(f *filesystem) error { return unix.Unmount(f.opts.Mountpoint, 0) })
	start := measure("start", func(f *filesystem) error { return errors.Join(f.Check(t.Context()), f.Start(t.Context())) }) // as a node does
	before := ownCPU(t)
	probe := measure("probe", func(f *filesystem) error {
		state, detail, err := f.Probe(t.Context())
		if err == nil && state != resources.Active {
			err = fmt.Errorf("%s: %s", state, detail)
		}
		return err
	})
	cpu := ownCPU(t) - before
	stop := measure("stop", func(f *filesystem) error { return f.Stop(t.Context()) })
	t.Logf("80 file systems: mount %s, start %s; unmount %s, stop %s; a probe with its write %s, %s of CPU", mount, start, unmount, stop, probe/number, cpu/number)
	if more := start - mount; more > 12*time.Second { // 2 s on a machine of its own
		t.Errorf("start takes %s more than the kernel", more)
	}
	if more := stop - unmount; more > 12*time.Second {
		t.Errorf("stop takes %s more than the kernel", more)
	}
}

// What one monitor of 500 costs: 60 microseconds a second each are 3 % of a core, and so 600 for one in ten seconds.
func BenchmarkProbe(b *testing.B) {
	root := b.TempDir()
	if err := unix.Mount("root", root, "tmpfs", 0, ""); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	for i := range 500 {
		path := fmt.Sprintf("%s/%d", root, i)
		if err := os.Mkdir(path, 0o700); err != nil {
			b.Fatal(err)
		}
		if err := unix.Mount("many", path, "tmpfs", 0, ""); err != nil {
			b.Fatal(err)
		}
	}
	image := b.TempDir() + "/image"
	if err := os.WriteFile(image, make([]byte, 16<<20), 0o600); err != nil {
		b.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", "mkfs.ext4 -q -F "+image+" && losetup --find --show "+image).Output()
	if err != nil {
		b.Fatal(err)
	}
	device := string(bytes.TrimSpace(out))
	b.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	for _, write := range []bool{false, true} {
		o := Kind().Options().(*Options)
		o.Device, o.Mountpoint, o.Fstype, o.MonitorWrite = device, b.TempDir(), "ext4", write
		f, err := o.New(resources.Env{Token: 1})
		if err != nil {
			b.Fatal(err)
		}
		if err := f.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("write=%v", write), func(b *testing.B) {
			before := ownCPU(b)
			for b.Loop() {
				if state, detail, err := f.Probe(b.Context()); err != nil || state != resources.Active {
					b.Fatal(state, detail, err)
				}
			}
			b.ReportMetric(float64((ownCPU(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
		if err := f.Stop(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// The search for users among 1000 processes.
func BenchmarkUsers(b *testing.B) {
	for range 1000 {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	mount := entry{id: 1 << 40, dev: unix.Mkdev(7, 200), mountpoint: "/nowhere"}
	for b.Loop() {
		if found, err := users(mount, false); err != nil || len(found) > 0 {
			b.Fatal(found, err)
		}
	}
}
