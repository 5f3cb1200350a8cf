package consensus

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// disk is a small file system of its own.
type disk struct {
	t    testing.TB
	dir  string
	junk string
}

// smallDisk mounts one. It needs root, as all tests with real file systems do.
func smallDisk(t testing.TB, fstype string, size int64) *disk {
	t.Helper()
	d := &disk{t: t, dir: filepath.Join(t.TempDir(), "disk")}
	d.junk = filepath.Join(d.dir, "junk")
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if fstype == "tmpfs" {
		if err := unix.Mount("tmpfs", d.dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
			t.Fatalf("mount a tmpfs, as root: %v", err)
		}
	} else {
		// Its image is in memory: the machine's disk may be busy, and it is none of this.
		memory := d.dir + ".image"
		if err := errors.Join(os.Mkdir(memory, 0o700), unix.Mount("tmpfs", memory, "tmpfs", 0, "")); err != nil {
			t.Fatalf("mount a tmpfs, as root: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(memory, unix.MNT_DETACH); err != nil { // the loop device lets go a moment later
				t.Error(err)
			}
		})
		file := filepath.Join(memory, "image")
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, size)); err != nil {
			t.Fatal(err)
		}
		command(t, "mkfs.ext4", "-q", "-F", "-m", "0", file) // Debian: e2fsprogs
		command(t, "mount", "-o", "loop", file, d.dir)       // Debian: mount
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.dir, 0); err != nil {
			t.Error(err)
			_ = unix.Unmount(d.dir, unix.MNT_DETACH)
		}
	})
	return d
}

func command(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

// fill leaves only so much free.
func (d *disk) fill(free uint64) {
	d.t.Helper()
	if err := os.Remove(d.junk); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	f, err := os.Create(d.junk)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for range 5 { // the file takes blocks for what it is made of, too
		now, err := freeSpace(d.dir)
		if err != nil {
			d.t.Fatal(err)
		}
		at, _ := f.Seek(0, 2)
		if now > free {
			_ = unix.Fallocate(int(f.Fd()), 0, at, int64(now-free))
			continue
		}
	}
	for free == 0 { // the last blocks
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return
		}
	}
}

func (d *disk) empty() {
	d.t.Helper()
	if err := os.Remove(d.junk); err != nil {
		d.t.Fatal(err)
	}
}

// freeze makes every write to the disk hang, as a disk in trouble does, until thaw is called.
func (d *disk) freeze() (thaw func()) {
	const fifreeze, fithaw = 0xC0045877, 0xC0045878 // include/uapi/linux/fs.h
	f, err := os.Open(d.dir)
	if err == nil {
		err = unix.IoctlSetInt(int(f.Fd()), fifreeze, 0)
	}
	if err != nil {
		d.t.Fatalf("freeze %s: %v", d.dir, err)
	}
	thaw = sync.OnceFunc(func() {
		if err := unix.IoctlSetInt(int(f.Fd()), fithaw, 0); err != nil {
			d.t.Errorf("thaw %s: %v", d.dir, err)
		}
		f.Close()
	})
	late := time.AfterFunc(90*time.Second, thaw) // nothing may stay frozen, whatever the test does
	d.t.Cleanup(func() { late.Stop(); thaw() })
	return thaw
}
