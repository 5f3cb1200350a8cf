package filesystem

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"device":       func(o *Options) { o.Device = "" },
		"device ":      func(o *Options) { o.Device = "UUID=1234" },
		"device  ":     func(o *Options) { o.Device, o.Options, o.Fstype = "srv", []string{"bind"}, "none" },
		"mountpoint":   func(o *Options) { o.Mountpoint = "srv" },
		"mountpoint ":  func(o *Options) { o.Mountpoint = "/" },
		"mountpoint  ": func(o *Options) { o.Mountpoint = "/srv/../db" },
		"fstype":       func(o *Options) { o.Fstype = "" },
		"fstype ":      func(o *Options) { o.Fstype = "nfs4" },
		"fstype  ":     func(o *Options) { o.Fstype = "none" },
		"options":      func(o *Options) { o.Options = []string{"rw,loop"} },
		"kill_after":   func(o *Options) { o.KillAfter = -1 },
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
		{36, 35, unix.Mkdev(98, 0), "/mnt2", "rw,noatime", "ext3", "/dev/root", "rw,errors=continue"},
		{40, 36, unix.Mkdev(0, 50), "/a b\nc\\d\te#", "ro", "tmpfs", "so urce", "rw"},
		{41, 36, unix.Mkdev(0, 51), "/empty", "rw", "tmpfs", "", "rw,size=1k"},
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

func TestBoundedObeysTheContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	hang := make(chan struct{})
	defer close(hang)
	_, err := bounded(ctx, func() (int, error) { <-hang; return 0, nil })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// A mount that came back after its Start had been given up is waited for.
func TestStopWaitsForAHangingMount(t *testing.T) {
	f := &filesystem{opts: Options{Mountpoint: "/srv"}, pending: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := f.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
