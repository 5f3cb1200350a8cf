package filesystem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// B27: many mounts come and go while each is asked for: no verdict may differ from what was done to that very
// mount, whether the kernel is asked for one mount or the whole table is read.
func TestB27VerdictsInAStorm(t *testing.T) {
	const mounts, rounds = 80, 20
	root := t.TempDir()
	var all []*filesystem
	for i := range mounts {
		o := Options{Device: fmt.Sprintf("storm-%d", i), Mountpoint: fmt.Sprintf("%s/%d", root, i), Fstype: "tmpfs"}
		if i%10 == 0 {
			o.Device, o.Fstype, o.Fsck = disk(t), "ext4", fsckNever
		}
		all = append(all, unmounted(t, o))
	}
	verdict := func(f *filesystem, want bool) {
		byTable, err := f.topByName()
		if err != nil && !errors.Is(err, errTorn) || err == nil && (byTable != nil) != want {
			t.Errorf("%s by the table: %v %v, want %v", f.opts.Mountpoint, byTable, err, want)
		}
	}
	var wg sync.WaitGroup
	for batch := range slices.Chunk(all, mounts/4) {
		wg.Go(func() {
			for range rounds {
				for _, f := range batch {
					if err := f.Start(t.Context()); err != nil {
						t.Error(err)
					}
				}
				for _, f := range batch {
					wantState(t, f, resources.Active)
				}
				verdict(batch[0], true)
				for _, f := range batch {
					if err := f.Stop(t.Context()); err != nil {
						t.Error(err)
					}
				}
				for _, f := range batch {
					wantState(t, f, resources.Inactive)
				}
				verdict(batch[0], false)
			}
		})
	}
	wg.Wait()
}

// The kernel says the same of one mount, asked for it alone, as in the whole table.
func TestStatmountIsTheTablesWord(t *testing.T) {
	for _, name := range []string{"plain", "a b", "a\nb", `a\b`, "ü#"} {
		mounted(t, Options{Device: "source " + name, Mountpoint: t.TempDir() + "/" + name, Fstype: "tmpfs", Options: []string{"ro,size=1m"}})
	}
	mounted(t, Options{Device: disk(t), Mountpoint: t.TempDir(), Fstype: "ext4", Options: []string{"errors=remount-ro"}})
	bound := t.TempDir()
	mounted(t, Options{Device: bound, Mountpoint: t.TempDir(), Fstype: "none", Options: []string{"bind", "ro"}})
	table, err := wholeTable()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, want := range table {
		st, root, err := mountOf(unix.AT_FDCWD, want.mountpoint, statxMountIDUnique)
		if err != nil || !root || st.Mask&statxMountIDUnique == 0 {
			continue // covered by another mount, or an old kernel
		}
		got, err := statmount(st.Mnt_id)
		if err != nil {
			if !errors.Is(err, errNoStatmount) {
				t.Errorf("%s: %v", want, err)
			}
			continue
		}
		if got.id != want.id {
			continue
		}
		compared++
		if got.readOnly() != want.readOnly() || got.broken() != want.broken() {
			t.Errorf("options %q %q, want %q %q", got.options, got.super, want.options, want.super)
		}
		got.options, got.super, want.options, want.super = "", "", "", ""
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	t.Logf("%d of %d mounts compared", compared, len(table))
	if _, err := statmount(1); errors.Is(err, errNoStatmount) {
		t.Log("this kernel does not tell single mounts")
	} else if compared < 8 {
		t.Error("too few")
	}
}

// Kernels without statmount(2) give the same views by the table.
func TestTopInTable(t *testing.T) {
	f := mounted(t, Options{Device: disk(t), Mountpoint: t.TempDir(), Fstype: "ext4"})
	one, err := f.top()
	if err != nil {
		t.Fatal(err)
	}
	byID, errID := f.topInTable()
	byName, errName := f.topByName()
	if errID != nil || errName != nil || byName == nil || byID.id != one.id || byName.id != one.id {
		t.Errorf("%+v, %+v %v, %+v %v", one, byID, errID, byName, errName)
	}
}

func TestTopmost(t *testing.T) {
	for name, test := range map[string]struct {
		table []entry
		want  uint64
	}{
		"none":     {[]entry{{id: 1, parent: 1, mountpoint: "/"}}, 0},
		"one":      {[]entry{{id: 1, mountpoint: "/"}, {id: 2, parent: 1, mountpoint: "/a"}}, 2},
		"stacked":  {[]entry{{id: 3, parent: 2, mountpoint: "/a"}, {id: 2, parent: 1, mountpoint: "/a"}}, 3},
		"inside":   {[]entry{{id: 2, parent: 1, mountpoint: "/a"}, {id: 3, parent: 2, mountpoint: "/a/b"}}, 2},
		"root one": {[]entry{{id: 2, parent: 2, mountpoint: "/a"}}, 2},
	} {
		got := topmost(test.table, "/a")
		if (got == nil) != (test.want == 0) || got != nil && got.id != test.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func FuzzParseStatmount(f *testing.F) {
	b := make([]byte, statmountStrings+64)
	binary.NativeEndian.PutUint64(b[8:], statmountWanted|statmountSubtype|statmountOptions)
	copy(b[statmountStrings:], "rw\x00/a\x00ext4\x00/dev/x\x00")
	f.Add(b)
	f.Add(b[:100])
	f.Add([]byte(strings.Repeat("\xff", 600)))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseStatmount(b)
		if err == nil && len(e.mountpoint) > len(b) {
			t.Errorf("%+v", e)
		}
	})
}
