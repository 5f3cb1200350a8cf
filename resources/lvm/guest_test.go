package lvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

func init() {
	parts["OneNode"] = oneNode
	parts["TwoNodes"] = twoNodes
	parts["AlphaStarts"] = alphaStarts
	parts["BetaTakesOver"] = betaTakesOver
	parts["AlphaReturns"] = alphaReturns
}

// noUdev is what an operator's commands need on a host without udev; the kind must find that out itself.
const noUdev = "activation/udev_sync=0 activation/udev_rules=0 activation/verify_udev_operations=0"

// as makes this process, and LVM below it, the host with that system ID.
func as(t *testing.T, id string, more ...string) {
	t.Helper()
	must(t, os.MkdirAll("/run/lvm", 0o755))
	dir := "/run/lvm-" + id
	write(t, dir+"/lvm.conf", `global { system_id_source = "lvmlocal" }
devices { filter = [ "a|^/dev/ubd|", "r|.*|" ] }
backup { backup = 0
 archive = 0 }
activation/reserved_memory = 0
activation/reserved_stack = 0
`+strings.Join(more, "\n"))
	local := "local { }\n"
	if id != "none" {
		local = "local { system_id = \"" + id + "\" }\n"
	}
	write(t, dir+"/lvmlocal.conf", local)
	must(t, os.Setenv("LVM_SYSTEM_DIR", dir))
}

// operator runs a command of LVM by hand.
func operator(command string, args ...string) (string, error) {
	out, err := exec.Command("lvm", append([]string{command, "--config", noUdev, "--yes"}, args...)...).CombinedOutput()
	return string(out), err
}

func mustRun(t *testing.T, command string, args ...string) string {
	t.Helper()
	out, err := operator(command, args...)
	if err != nil {
		t.Fatalf("%s %s: %v: %s", command, strings.Join(args, " "), err, out)
	}
	return out
}

func active(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("/sys/class/block/dm-*/dm/name")
	must(t, err)
	var names []string
	for _, path := range all {
		b, err := os.ReadFile(path)
		must(t, err)
		names = append(names, strings.TrimSpace(string(b)))
	}
	return names
}

func wantActive(t *testing.T, n int) {
	t.Helper()
	if names := active(t); len(names) != n {
		t.Errorf("active: %v, want %d", names, n)
	}
}

// makeGroup makes a group of two volumes on both disks, as alpha's, that is not active.
func makeGroup(t *testing.T) {
	t.Helper()
	as(t, "alpha")
	mustRun(t, "vgcreate", "vg-x", "/dev/ubda", "/dev/ubdb")
	mustRun(t, "lvcreate", "-L8M", "-n", "lv-1", "vg-x", "/dev/ubda")
	mustRun(t, "lvcreate", "-L16M", "-i2", "-n", "lv2", "vg-x")
	mustRun(t, "vgchange", "-an", "vg-x")
	wantActive(t, 0)
}

func start(t *testing.T, v *volumeGroup) error { return v.Start(within(t, time.Minute)) }
func stop(t *testing.T, v *volumeGroup) error  { return v.Stop(within(t, time.Minute)) }
func check(t *testing.T, v *volumeGroup) error { return v.Check(within(t, time.Minute)) }

// dirs are what two daemons keep.
type dirs struct{ alpha, beta string }

func oneNode(t *testing.T) {
	makeGroup(t)
	d := dirs{alpha: t.TempDir()}
	t.Run("B29Autoactivation", func(t *testing.T) { autoactivation(t, d) })
	t.Run("Life", func(t *testing.T) { life(t, d) })
	t.Run("OpenVolume", func(t *testing.T) { openVolume(t, d) })
	t.Run("SickDisk", func(t *testing.T) { sickDisk(t, d) })
}

func twoNodes(t *testing.T) {
	makeGroup(t)
	mustRun(t, "vgchange", "--setautoactivation", "n", "vg-x")
	d := dirs{t.TempDir(), t.TempDir()}
	t.Run("Competition", func(t *testing.T) { competition(t, d) })
	t.Run("B29Filter", func(t *testing.T) { filter(t, d) })
	t.Run("B29MissingDisk", func(t *testing.T) { missingDisk(t, d) })
	t.Run("Setup", func(t *testing.T) { setup(t, d) })
}

// autoactivation is B29's first case: a host that comes up activates the group by itself. It is refused while that is possible, and found
// when it has happened. The commands are those of udev's rule and of the units at boot.
func autoactivation(t *testing.T, d dirs) {
	v := newGroup(t, d.alpha)
	wantErr(t, start(t, v), resources.ErrSetup, "vgchange --setautoactivation n vg-x")
	wantActive(t, 0)
	boot := func() {
		mustRun(t, "pvscan", "--cache", "-aay", "/dev/ubda", "/dev/ubdb")
		mustRun(t, "vgchange", "-aay")
	}
	boot()
	wantActive(t, 2) // or this test says nothing
	wantState(t, v, resources.Active, "by something else than hamgr")
	wantErr(t, check(t, v), resources.ErrSetup)
	must(t, stop(t, v))
	wantActive(t, 0)
	mustRun(t, "vgchange", "--setautoactivation", "n", "vg-x") // the cure
	must(t, os.RemoveAll("/run/lvm/pvs_online"))
	must(t, os.RemoveAll("/run/lvm/vgs_online"))
	boot()
	wantActive(t, 0)
	must(t, check(t, v))
}

func life(t *testing.T, d dirs) {
	v := newGroup(t, d.alpha)
	wantState(t, v, resources.Inactive)
	must(t, start(t, v))
	wantState(t, v, resources.Active, "on ubda, ubdb")
	must(t, start(t, v))
	b := make([]byte, 512)
	for _, path := range []string{"/dev/vg-x/lv-1", "/dev/mapper/vg--x-lv2"} { // made without udev
		f, err := os.Open(path)
		must(t, err)
		_, err = f.Read(b)
		must(t, errors.Join(err, f.Close()))
	}
	// A daemon that was started anew goes on.
	v = newGroup(t, d.alpha)
	wantState(t, v, resources.Active, "on ubda, ubdb")
	mustRun(t, "lvchange", "-an", "vg-x/lv2")
	wantState(t, v, resources.Failed, "not active: lv2")
	must(t, start(t, v))
	wantState(t, v, resources.Active)
	// What an operator adds and removes is no failure.
	mustRun(t, "lvcreate", "-s", "-L4M", "-n", "snap", "vg-x/lv-1")
	wantState(t, v, resources.Active)
	must(t, start(t, v))
	mustRun(t, "lvremove", "vg-x/snap")
	wantState(t, v, resources.Active)
	mustRun(t, "vgrename", "vg-x", "vg-y") // and is found by its UUID
	must(t, stop(t, v))
	wantActive(t, 0)
	mustRun(t, "vgrename", "vg-y", "vg-x")
	must(t, stop(t, v))
	wantState(t, v, resources.Inactive)
}

func openVolume(t *testing.T, d dirs) {
	v := newGroup(t, d.alpha)
	v.release = 300 * time.Millisecond
	must(t, start(t, v))
	f, err := os.Open("/dev/vg-x/lv2")
	must(t, err)
	wantErr(t, stop(t, v), nil, "vg--x-lv2 is still active", "open in PID 1 ")
	wantState(t, v, resources.Failed, "not active: lv-1")
	must(t, f.Close())
	if out, err := exec.Command("mkfs.ext4", "-q", "/dev/vg-x/lv2").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	must(t, unix.Mount("/dev/vg-x/lv2", "/run/mnt", "ext4", 0, ""))
	wantErr(t, stop(t, v), nil, "vg--x-lv2 is still active", "mounted at /run/mnt")
	must(t, unix.Unmount("/run/mnt", 0))
	must(t, stop(t, v))
	wantActive(t, 0)
}

func dmsetup(t *testing.T, args ...string) {
	t.Helper()
	args = append(args, "--noudevrules", "--noudevsync")
	if out, err := exec.Command("dmsetup", args...).CombinedOutput(); err != nil {
		t.Fatalf("dmsetup %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// sickDisk puts a mapped device below the group that first hangs and then gives errors.
func sickDisk(t *testing.T, d dirs) {
	dmsetup(t, "create", "sick", "--table", fmt.Sprintf("0 %d linear /dev/ubda 0", diskMB<<11))
	conf := os.Getenv("LVM_SYSTEM_DIR") + "/lvm.conf"
	b, err := os.ReadFile(conf)
	must(t, err)
	write(t, conf, strings.Replace(string(b), "a|^/dev/ubd|", `a|^/dev/dm-0$|", "a|^/dev/ubdb|`, 1))
	v := newGroup(t, d.alpha)
	must(t, start(t, v))
	wantState(t, v, resources.Active, "on dm-0, ubdb")

	dmsetup(t, "suspend", "sick")
	var reading chan error
	for range 3 { // one reading hangs, not one a monitor
		state, _, err := v.Probe(within(t, 100*time.Millisecond))
		if state != resources.Unknown || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("probe of a disk that hangs: %s %v", state, err)
		}
		if reading != nil && v.reading != reading {
			t.Error("a reading beside another one")
		}
		reading = v.reading
	}
	for _, call := range []func(context.Context) error{v.Stop, v.Check, v.Start} {
		wantHang(t, call(within(t, 500*time.Millisecond)))
	}
	wantActive(t, 3)
	dmsetup(t, "resume", "sick")
	wantState(t, v, resources.Active)

	dmsetup(t, "suspend", "sick")
	dmsetup(t, "load", "sick", "--table", fmt.Sprintf("0 %d error", diskMB<<11))
	dmsetup(t, "resume", "sick")
	wantState(t, v, resources.Failed, "read disk /dev/dm-0: input/output error")
	must(t, stop(t, v))
	wantActive(t, 1)
	wantErr(t, check(t, v), resources.ErrNode, "1 of its disks are missing")
	dmsetup(t, "remove", "sick")
}

func wantHang(t *testing.T, err error) {
	t.Helper()
	wantErr(t, err, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a disk that hangs: %v", err)
	}
}

// competition: LVM on beta refuses the group until beta was granted it and took it over; then alpha, which comes back, cannot activate it.
func competition(t *testing.T, d dirs) {
	alpha, beta := newGroup(t, d.alpha), newGroup(t, d.beta)
	must(t, start(t, alpha))
	must(t, stop(t, alpha))
	as(t, "beta")
	if out, err := operator("vgchange", "-ay", "vg-x"); err == nil {
		t.Errorf("beta may activate alpha's group: %s", out)
	}
	wantActive(t, 0)
	must(t, start(t, beta))
	wantActive(t, 2)
	must(t, stop(t, beta))
	as(t, "alpha")
	if out, err := operator("vgchange", "-ay", "vg-x"); err == nil {
		t.Errorf("alpha may activate beta's group: %s", out)
	}
	wantActive(t, 0)
	// One that lost its group while it was active (which no proof allows) can still let go of it.
	as(t, "beta")
	must(t, start(t, beta))
	as(t, "alpha")
	must(t, newGroup(t, d.alpha).Stop(within(t, time.Minute)))
	wantActive(t, 0)
	must(t, start(t, alpha))
	must(t, stop(t, alpha))
}

// filter is B29's second case: activation/volume_list keeps LVM from activating what it is told to, and LVM calls it success.
func filter(t *testing.T, d dirs) {
	v := newGroup(t, d.alpha)
	as(t, "alpha", `activation { volume_list = [ "other", "vg-x/lv-1" ] }`)
	wantErr(t, start(t, v), resources.ErrSetup, "volume_list", "not active: lv2")
	must(t, stop(t, v))
	as(t, "alpha", `activation { volume_list = [ "other" ] }`)
	wantErr(t, start(t, v), resources.ErrSetup, `add "vg-x"`)
	wantActive(t, 0)
	as(t, "alpha")
}

// missingDisk is B29's third case: it is this node's fault, no wrong setup.
func missingDisk(t *testing.T, d dirs) {
	v := newGroup(t, d.alpha)
	for filter, words := range map[string]string{"r|/dev/ubdb|": "1 of its disks are missing", "r|/dev/ubd|": "no such volume group"} {
		as(t, "alpha")
		conf := os.Getenv("LVM_SYSTEM_DIR") + "/lvm.conf"
		b, err := os.ReadFile(conf)
		must(t, err)
		write(t, conf, strings.Replace(string(b), "filter = [", `filter = [ "`+filter+`",`, 1))
		wantErr(t, start(t, v), resources.ErrNode, words)
		wantActive(t, 0)
	}
	as(t, "alpha")
	must(t, start(t, v))
	as(t, "alpha", `devices { scan = "/nowhere" }`)
	must(t, stop(t, v)) // without any disk that LVM could read
	wantActive(t, 0)
	as(t, "alpha")
}

func setup(t *testing.T, d dirs) {
	v, plain := newGroup(t, d.alpha), newGroup(t, d.beta, inMode(plainMode))
	wantErr(t, check(t, plain), resources.ErrSetup, "system ID alpha", `--systemid "" vg-x`)
	as(t, "none")
	wantErr(t, check(t, v), resources.ErrSetup, "this host has no LVM system ID")
	as(t, "beta")
	write(t, os.Getenv("LVM_SYSTEM_DIR")+"/lvmlocal.conf", `local { system_id = "beta"
extra_system_ids = [ "alpha" ] }`)
	wantErr(t, check(t, v), resources.ErrSetup, "extra_system_ids")
	as(t, "alpha")
	mustRun(t, "vgchange", "--systemid", "", "vg-x")
	wantErr(t, check(t, v), resources.ErrSetup, "vgchange --yes --systemid alpha vg-x")
	must(t, check(t, plain))
	must(t, start(t, plain))
	wantState(t, plain, resources.Active)
	must(t, stop(t, plain))
	mustRun(t, "vgexport", "vg-x")
	wantErr(t, check(t, plain), resources.ErrSetup, "vgimport vg-x")
	mustRun(t, "vgimport", "vg-x")
}

const dataWritten = "written by alpha"

func alphaStarts(t *testing.T) {
	makeGroup(t)
	mustRun(t, "vgchange", "--setautoactivation", "n", "vg-x")
	must(t, start(t, newGroup(t, t.TempDir())))
	f, err := os.OpenFile("/dev/vg-x/lv2", os.O_WRONLY|os.O_SYNC, 0)
	must(t, err)
	_, err = f.WriteString(dataWritten)
	must(t, errors.Join(err, f.Close()))
}

func betaTakesOver(t *testing.T) {
	as(t, "beta")
	if out, err := operator("vgchange", "-ay", "vg-x"); err == nil {
		t.Errorf("beta may activate alpha's group: %s", out)
	}
	wantActive(t, 0)
	v := newGroup(t, t.TempDir())
	wantState(t, v, resources.Inactive)
	must(t, start(t, v))
	wantState(t, v, resources.Active)
	b := make([]byte, len(dataWritten))
	f, err := os.Open("/dev/vg-x/lv2")
	must(t, err)
	_, err = f.Read(b)
	must(t, errors.Join(err, f.Close()))
	if string(b) != dataWritten {
		t.Errorf("beta reads %q", b)
	}
}

// alphaReturns: whatever its boot tries, also what does not ask for the property, it activates nothing.
func alphaReturns(t *testing.T) {
	as(t, "alpha")
	for _, args := range [][]string{{"pvscan", "--cache", "-aay", "/dev/ubda", "/dev/ubdb"}, {"vgchange", "-aay"}, {"vgchange", "-ay"}, {"lvchange", "-ay", "vg-x/lv2"}} {
		out, err := operator(args[0], args[1:]...)
		t.Logf("%s: %v: %s", strings.Join(args, " "), err, out)
		wantActive(t, 0)
	}
	wantState(t, newGroup(t, t.TempDir()), resources.Inactive)
}
