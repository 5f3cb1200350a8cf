package filesystem

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"device":        func(o *Options) { o.Device = "" },
		"device ":       func(o *Options) { o.Device = "UUID=" },
		"device    ":    func(o *Options) { o.Fstype = "nfs" },
		"device     ":   func(o *Options) { o.Fstype, o.Device = "nfs4", "-o:/x" },
		"device  ":      func(o *Options) { o.Device, o.Options, o.Fstype = "srv", []string{"bind"}, "none" },
		"mountpoint":    func(o *Options) { o.Mountpoint = "srv" },
		"mountpoint ":   func(o *Options) { o.Mountpoint = "/" },
		"mountpoint  ":  func(o *Options) { o.Mountpoint = "/srv/../db" },
		"fstype":        func(o *Options) { o.Fstype = "" },
		"fstype ":       func(o *Options) { o.Fstype = "cifs" },
		"fstype   ":     func(o *Options) { o.Fstype = "../ext4" },
		"fsck":          func(o *Options) { o.Fsck = "" },
		"fsck ":         func(o *Options) { o.Fsck = "preen" }, // of XFS
		"monitor_write": func(o *Options) { o.MonitorWrite, o.Options = true, []string{"ro"} },
		"disk_timeout":  func(o *Options) { o.DiskTimeout = 0 },
		"fstype  ":      func(o *Options) { o.Fstype = "none" },
		"options":       func(o *Options) { o.Options = []string{"rw,loop"} },
		"kill_after":    func(o *Options) { o.KillAfter = -1 },
	} {
		o := Kind().Options().(*Options)
		o.Device, o.Mountpoint, o.Fstype = "/dev/sda", "/srv/db", "xfs"
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		change(o)
		var key *resources.KeyError
		if err := o.Validate(); !errors.As(err, &key) || key.Key != strings.TrimSpace(want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestValidateAccepts(t *testing.T) {
	for _, change := range []func(*Options){
		func(o *Options) { o.Device = "UUID=1234-ABCD" },
		func(o *Options) { o.Device = `LABEL="my data"` },
		func(o *Options) { o.Device = "/dev/disk/by-partlabel/a=b" },
		func(o *Options) { o.Device, o.Fstype = "server:/", "nfs" },
		func(o *Options) { o.Device, o.Fstype = "[fe80::1]:/export/db", "nfs4" },
		func(o *Options) { o.Fstype, o.Fsck = "ext4", "full" },
		func(o *Options) { o.Device, o.Options, o.Fstype = "/srv", []string{"bind"}, "none" },
	} {
		o := Kind().Options().(*Options)
		o.Device, o.Mountpoint, o.Fstype = "/dev/sda", "/srv/db", "xfs"
		change(o)
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestParseOptions(t *testing.T) {
	for in, want := range map[string]struct {
		flags uintptr
		data  string
	}{
		"":                 {0, ""},
		"defaults":         {0, ""},
		"ro,noatime,nodev": {unix.MS_RDONLY | unix.MS_NOATIME | unix.MS_NODEV, ""},
		"ro,rw,nodev,dev":  {0, ""},
		"noexec,data=ordered,x-gvfs,errors=panic": {unix.MS_NOEXEC, "data=ordered,errors=panic"},
		"_netdev,nofail,size=1m":                  {0, "size=1m"},
		"bind,nosuid":                             {unix.MS_BIND | unix.MS_NOSUID, ""},
	} {
		for _, list := range [][]string{{in}, strings.Split(in, ",")} {
			flags, data, err := parseOptions(list)
			if err != nil || flags != want.flags || data != want.data {
				t.Errorf("%q: %x %q %v", list, flags, data, err)
			}
		}
	}
}

func TestParseTable(t *testing.T) {
	table := "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 propagate_from:2 - ext3 /dev/root rw,errors=continue\n" +
		`40 36 0:50 / /a\040b\012c\134d\011e\043 ro - tmpfs so\040urce rw` + "\n" +
		"41 36 0:51 / /empty rw shared:9 - tmpfs  rw,size=1k\n"
	got, err := parseTable([]byte(table))
	want := []entry{
		{36, 35, unix.Mkdev(98, 0), "/mnt1", "/mnt2", "rw,noatime", "ext3", "/dev/root", "rw,errors=continue"},
		{40, 36, unix.Mkdev(0, 50), "/", "/a b\nc\\d\te#", "ro", "tmpfs", "so urce", "rw"},
		{41, 36, unix.Mkdev(0, 51), "/", "/empty", "rw", "tmpfs", "", "rw,size=1k"},
	}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%+v %v", got, err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
	for _, bad := range []string{"x", "36 35 98:0 /mnt1 /mnt2 rw master:1 ext3 /dev/root rw", "36 35 980 / / rw - a b c", "-1 35 98:0 / / rw - a b c", "36 35 98:0 / / rw - a b"} {
		if e, err := parseTable([]byte(bad)); !errors.Is(err, errTable) {
			t.Errorf("%q: %+v %v", bad, e, err)
		}
	}
}

// A mount that the kernel has just named is never taken for absent because the table
// came torn.
func TestTornTableIsReadAgain(t *testing.T) {
	const whole = "36 35 98:0 / /a rw - ext3 /dev/a rw\n37 35 98:1 / /b rw - ext3 /dev/b rw\n"
	reads := 0
	table, err := readTable(func() ([]byte, error) {
		if reads++; reads < 3 {
			return []byte(whole[:strings.Index(whole, "37")]), nil
		}
		return []byte(whole), nil
	}, 37, true)
	if err != nil || len(table) != 2 || reads != 3 {
		t.Errorf("%+v %v after %d reads", table, err, reads)
	}
	_, err = readTable(func() ([]byte, error) { return nil, nil }, 37, true)
	if !errors.Is(err, errTorn) {
		t.Errorf("a mount that never shows: %v", err)
	}
}

// escape mangles as the kernel does (mangle_path in fs/seq_file.c).
var escape = strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`)

func FuzzParseEntry(f *testing.F) {
	f.Add(`36 35 98:0 / /a\040b rw - ext3 /dev/root rw`, "/srv/my data")
	f.Add(`36 35 98:0 / / rw - - - -`, `\040`)
	f.Fuzz(func(t *testing.T, line, path string) {
		if e, err := parseEntry(line); err == nil && len(e.mountpoint) > len(line) {
			t.Errorf("%q grew to %+v", line, e)
		}
		e, err := parseEntry("1 2 3:4 / " + escape.Replace(path) + " rw - ext4 /dev/x rw")
		if err != nil || e.mountpoint != path {
			t.Errorf("%q is read as %q %v", path, e.mountpoint, err)
		}
	})
}

func TestMapName(t *testing.T) {
	for in, want := range map[string]string{"00400000-00452000": "400000-452000", "7f00-7f10": "7f00-7f10", "0000-1000": "0-1000"} {
		if got := mapName(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// udev's names of links, as udevadm(8) shows them for such labels.
func TestTags(t *testing.T) {
	for device, want := range map[string]string{
		"UUID=1234-ABCD":       "/dev/disk/by-uuid/1234-ABCD",
		"LABEL=my data":        `/dev/disk/by-label/my\x20data`,
		`LABEL="a/b"`:          `/dev/disk/by-label/a\x2fb`,
		`LABEL=a\b`:            `/dev/disk/by-label/a\x5cb`,
		"LABEL=für":            "/dev/disk/by-label/für",
		"LABEL=\xff":           `/dev/disk/by-label/\xff`,
		"PARTLABEL=EFI System": `/dev/disk/by-partlabel/EFI\x20System`,
		"PARTUUID=a-1":         "/dev/disk/by-partuuid/a-1",
		"/dev/a=b":             "/dev/a=b",
		"UUID":                 "UUID",
	} {
		f := filesystem{opts: Options{Device: device}}
		if got := f.path(); got != want {
			t.Errorf("%s: %s, want %s", device, got, want)
		}
	}
}
