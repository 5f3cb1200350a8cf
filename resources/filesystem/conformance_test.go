package filesystem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/resourcetest"
)

// TestConformance: ext4 on a disk that hangs on command. The judge is sysfs, where ext4 shows every file system that it
// has, in whatever namespace it is mounted, and also if it is mounted no more but still in use.
func TestConformance(t *testing.T) {
	resourcetest.Run(t, resourcetest.Subject{Kind: Kind(), Host: func(tb testing.TB) *resourcetest.Host {
		return conformanceHost(tb.(*testing.T))
	}})
}

func conformanceHost(t *testing.T) *resourcetest.Host {
	d := newBadDisk(t, mkfsOf["ext4"]...)
	dir := t.TempDir()
	device, mountpoint := filepath.Join(dir, "by-id"), filepath.Join(dir, "m")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink(d.device, device))
	must(os.Mkdir(mountpoint, 0o755))
	t.Cleanup(func() {
		for unix.Unmount(mountpoint, unix.MNT_DETACH) == nil {
		}
	})
	moved := func(path string) resourcetest.Fault {
		return resourcetest.Fault{Begin: func() { must(os.Rename(path, path+".away")) }, End: func() { must(os.Rename(path+".away", path)) }}
	}
	covered := func(path string) resourcetest.Fault {
		return resourcetest.Fault{
			Begin: func() { must(unix.Mount("cover", path, "tmpfs", 0, "")) },
			End:   func() { must(unix.Unmount(path, 0)) },
		}
	}
	hung := resourcetest.Fault{
		Begin: func() { run(t, "blockdev", "--flushbufs", d.device); d.now(t, "hang") },
		End: func() {
			d.now(t, "work")
			for _, g := range []*gate{gateOf("mount " + mountpoint), gateOf("test " + mountpoint)} {
				eventually(t, "the kernel lets go of all calls", func() bool { return len(g.inside) == 0 })
			}
		},
	}
	return &resourcetest.Host{
		New: func(env resources.Env) (resources.Resource, error) {
			o := Kind().Options().(*Options)
			o.Device, o.Mountpoint, o.Fstype, o.MonitorWrite = device, mountpoint, "ext4", true
			return o.New(env)
		},
		Active: func() []string {
			var st unix.Stat_t
			err := unix.Stat("/sys/fs/ext4/"+filepath.Base(d.device), &st)
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			must(err)
			return []string{fmt.Sprintf("superblock %d", st.Ino)}
		},
		Picture: func() string {
			table, err := os.ReadFile("/proc/self/mountinfo")
			must(err)
			return string(table)
		},
		Kill: func() { must(unix.Unmount(mountpoint, 0)) },
		Troubles: map[string]resourcetest.Trouble{
			"no disk":                {Fault: moved(device), Is: resources.ErrNode},
			"no mount point":         {Fault: moved(mountpoint), Is: resources.ErrNode},
			"the mount point in use": {Fault: covered(mountpoint), Is: resources.ErrSetup},
		},
		Hangs: map[string]resourcetest.Hang{"disk": {Fault: hung, Calls: []string{"probe", "start", "stop"}}},
		Stuck: map[string]resourcetest.Fault{"a mount inside": covered(mountpoint + "/lost+found"), "the disk hangs": hung},
		Cannot: map[string]string{
			"Blind": "what is mounted the kernel always tells",
		},
		Patience: 20 * time.Second, Operations: 40,
	}
}
