package filesystem

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

func TestLifeOfEachKind(t *testing.T) {
	for fstype, mkfs := range mkfsOf {
		for _, first := range []int{0, 1} { // of a btrfs of two disks, either may be named
			if fstype != "btrfs" && first == 1 {
				continue
			}
			disks, options := []string{}, []string{"noatime"}
			if fstype == "btrfs" {
				a, b := loop(t, image(t, mkfs...)), loop(t, image(t, mkfs...))
				run(t, "mkfs.btrfs", "-q", "-f", "-d", "raid1", "-m", "raid1", a, b)
				disks = []string{a, b}
				options = append(options, "device="+a, "device="+b) // nobody scans for them here
			} else {
				disks = append(disks, loop(t, image(t, mkfs...)))
			}
			o := Options{Device: disks[first], Mountpoint: filepath.Join(t.TempDir(), "x", "y"), CreateMountpoint: true, Fstype: fstype, Options: options, MonitorWrite: true}
			f := unmounted(t, o)
			if err := os.RemoveAll(filepath.Dir(o.Mountpoint)); err != nil {
				t.Fatal(err)
			}
			wantState(t, f, resources.Inactive)
			if err := f.Check(deadline(t, time.Minute)); err != nil {
				t.Errorf("%s: check: %v", fstype, err)
			}
			for range 2 {
				if err := f.Start(deadline(t, time.Minute)); err != nil {
					t.Fatal(err)
				}
				wantState(t, f, resources.Active)
			}
			if err := f.Check(deadline(t, time.Minute)); err != nil {
				t.Errorf("%s: check while active: %v", fstype, err)
			}
			for _, d := range disks { // by any of its disks it is the same, and not to be had twice
				other := unmounted(t, Options{Device: d, Mountpoint: t.TempDir(), Fstype: fstype})
				wantDetail(t, other, resources.Failed, o.Mountpoint)
				if err := wantError(other.Start(deadline(t, time.Minute)), resources.ErrElsewhere, o.Mountpoint); err != nil {
					t.Error(err)
				}
			}
			runs := user(t, "file", o.Mountpoint)
			mustStop(t, f)
			if runs() {
				t.Errorf("%s: its user still runs", fstype)
			}
			for _, d := range disks {
				if held, err := claimed(d); err != nil || held {
					t.Errorf("%s: %s after the stop: held %v %v", fstype, d, held, err)
				}
			}
		}
	}
}

// Disks are found by what udev calls them.
func TestDeviceByTag(t *testing.T) {
	const label = "my data/1"
	dir := "/dev/disk/by-label"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, `my\x20data\x2f1`)
	f := unmounted(t, Options{Device: "LABEL=" + label, Mountpoint: t.TempDir(), Fstype: "ext4"})
	if err := wantError(f.Start(deadline(t, time.Minute)), resources.ErrNode, "udevadm trigger"); err != nil {
		t.Error(err)
	}
	if err := os.Symlink(disk(t), link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(link) })
	if err := f.Start(deadline(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	wantState(t, f, resources.Active)
	mustStop(t, f)
}

func TestFsck(t *testing.T) {
	damage := func(t *testing.T, device string, commands ...string) {
		for _, c := range commands {
			run(t, "debugfs", "-w", "-R", c, device)
		}
	}
	for name, test := range map[string]struct {
		policy   string
		commands []string
		sentinel error
		want     string // of the error; "" for a start
	}{
		"clean":               {fsckAuto, nil, nil, ""},
		"clean, full":         {fsckFull, nil, nil, ""},
		"repairable":          {fsckAuto, []string{"set_super_value free_blocks_count 1", "set_super_value state 2"}, nil, ""},
		"damaged":             {fsckAuto, []string{"clri <2>", "set_super_value state 2"}, resources.ErrSetup, "fsck.ext4 '/dev/loop"},
		"marked clean, full":  {fsckFull, []string{"set_inode_field <11> block[0] 1"}, resources.ErrSetup, "fsck.ext4 '/dev/loop"},
		"marked clean":        {fsckPreen, []string{"set_inode_field <11> block[0] 1"}, nil, ""},
		"damaged, not looked": {fsckNever, []string{"set_super_value free_blocks_count 1"}, nil, ""},
		"no ext4 at all":      {fsckAuto, []string{}, nil, "not checked, so not mounted"},
	} {
		t.Run(name, func(t *testing.T) {
			device := disk(t)
			if test.commands != nil {
				damage(t, device, test.commands...)
			}
			if name == "no ext4 at all" {
				run(t, "wipefs", "-q", "-a", device)
			}
			f := unmounted(t, Options{Device: device, Mountpoint: t.TempDir(), Fstype: "ext4", Fsck: test.policy})
			err := f.Start(deadline(t, time.Minute))
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
			} else if err := wantError(err, test.sentinel, test.want); err != nil {
				t.Error(err)
			}
			mustStop(t, f)
			if name == "repairable" {
				run(t, "e2fsck", "-n", "-f", device)
			}
		})
	}
}

func TestFsckPolicy(t *testing.T) {
	for in, want := range map[string]string{
		"ext4 auto": "fsck.ext4 -p", "ext3 full": "fsck.ext3 -p -f", "xfs auto": "", "btrfs auto": "", "vfat auto": "",
		"vfat preen": "fsck.vfat -p", "ext4 never": "", "nfs auto": "", "none auto": "", "tmpfs auto": "",
	} {
		fstype, policy, _ := strings.Cut(in, " ")
		f := filesystem{opts: Options{Fstype: fstype, Fsck: policy}}
		if got := strings.Join(f.fsckProgram(), " "); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// The exit codes of fsck(8), where no disk can be made to give them.
func TestFsckFaults(t *testing.T) {
	f := filesystem{opts: Options{Device: "/dev/x", Fstype: "ext4"}}
	for _, test := range []struct {
		code     int
		output   string
		sentinel error
	}{
		{4, "UNEXPECTED INCONSISTENCY", resources.ErrSetup},
		{4 | 1, "", resources.ErrSetup},
		{4, "Error reading block 5 (Input/output error)", resources.ErrNode},
		{8, "No such device or address while opening", resources.ErrNode},
		{8, "Bad magic number", nil},
		{8 | 4, "", nil},
		{16, "usage", nil}, {32, "", nil}, {128, "", nil}, {-1, "", nil},
	} {
		if err := wantError(f.fsckFault(&programError{"fsck.ext4", test.code, test.output}), test.sentinel, "fsck.ext4"); err != nil {
			t.Errorf("%d %q: %v", test.code, test.output, err)
		}
	}
}

func TestCheck(t *testing.T) {
	device := disk(t)
	fstab := filepath.Join(t.TempDir(), "fstab")
	lines := "# /dev/x " + "/srv/commented ext4\nproc /proc proc\nnobody /srv/with\\040blank tmpfs defaults 0 0\n" + device + " /elsewhere ext4 rw 0 2\nothers /srv/noauto tmpfs rw,noauto 0 0\n"
	if err := os.WriteFile(fstab, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(fstab, "/etc/fstab", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount("/etc/fstab", 0) })
	for name, test := range map[string]struct {
		o        Options
		sentinel error
		want     string
	}{
		"line by its mount point": {Options{Device: "x", Mountpoint: "/srv/with blank", CreateMountpoint: true, Fstype: "tmpfs"}, resources.ErrSetup, "line 3 of /etc/fstab"},
		"line by its device":      {Options{Device: device, Mountpoint: "/srv/x", CreateMountpoint: true, Fstype: "ext4"}, resources.ErrSetup, "line 4 of /etc/fstab"},
		"noauto":                  {Options{Device: "x", Mountpoint: "/srv/noauto", CreateMountpoint: true, Fstype: "tmpfs"}, nil, ""},
		"commented out":           {Options{Device: "x", Mountpoint: "/srv/commented", CreateMountpoint: true, Fstype: "tmpfs"}, nil, ""},
		"no mount point":          {Options{Device: "x", Mountpoint: "/srv/none", Fstype: "tmpfs"}, resources.ErrNode, "create_mountpoint"},
		"no device":               {Options{Device: "/dev/none", Mountpoint: "/srv", Fstype: "ext4"}, resources.ErrNode, "there is no"},
		"unknown to the kernel":   {Options{Device: "x", Mountpoint: "/srv", Fstype: "wonderfs"}, resources.ErrSetup, "does not know"},
		"no program":              {Options{Device: "x", Mountpoint: "/srv", Fstype: "ramfs", Fsck: fsckPreen}, resources.ErrSetup, "fsck.ramfs"},
	} {
		if test.o.Fsck == "" {
			test.o.Fsck = fsckAuto
		}
		r, err := test.o.New(resources.Env{})
		if err != nil {
			t.Fatal(err)
		}
		err = r.(resources.Checker).Check(deadline(t, time.Minute))
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want != "":
			if err := wantError(err, test.sentinel, test.want); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := os.Stat("/srv/x"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a check made a mount point: %v", name, err)
		}
	}
}

// What the kernel says of a mount that it refuses.
func TestRefusedMounts(t *testing.T) {
	for name, test := range map[string]struct {
		fstype, option string
		sentinel       error
		want           string
	}{
		"option":        {"ext4", "no_such_option", nil, "see the kernel's log"},
		"another type":  {"xfs", "noatime", nil, ""},
		"unknown to it": {"wonderfs", "noatime", resources.ErrSetup, "does not know"},
	} {
		f := unmounted(t, Options{Device: disk(t), Mountpoint: t.TempDir(), Fstype: test.fstype, Options: []string{test.option}})
		err := f.Start(deadline(t, time.Minute))
		if test.fstype == "xfs" {
			if err == nil || errors.Is(err, resources.ErrNode) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err := wantError(err, test.sentinel, test.want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		mustStop(t, f)
	}
}
