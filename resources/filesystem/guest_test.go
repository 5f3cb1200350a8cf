package filesystem

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/guest"
)

// What this host's kernel may lack, or what could hang it, is tested in kernels of their own: NFS with a server that dies, and
// devices stacked on a disk.

const (
	guestExport = "/run/export"
	guestDiskMB = 32
)

// guestModules are those that the tests in the guest need.
var guestModules = []string{"dm-mod", "dm-bufio", "nfsd", "nfsv3", "nfsv4"}

var parts = map[string]func(*testing.T){
	"NFS3":    nfsServer("127.0.0.1:"+guestExport, "vers=3,nolock", "nobody", "cwd", "write"),
	"NFS4":    nfsServer("127.0.0.1:/", "vers=4.2", "file"),
	"Holders": holders,
}

// TestGuest is what the first process of a guest runs.
func TestGuest(t *testing.T) { guest.RunPart(t, parts) }

func TestKernels(t *testing.T) {
	for path, pkg := range map[string]string{
		"/usr/sbin/rpc.nfsd": "nfs-kernel-server", "/sbin/mount.nfs": "nfs-common", "/sbin/rpcbind": "rpcbind",
		"/sbin/lvm": "lvm2", "/sbin/dmsetup": "dmsetup",
	} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%s is missing: install the Debian package %s", path, pkg)
		}
	}
	binary := guest.Build(t)
	for part := range parts {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			guest.New(t, binary, guestDiskMB).Run(t, part)
		})
	}
}

// serveNFS starts the kernel's server for 127.0.0.1, versions 3 and 4.
func serveNFS(t *testing.T) {
	t.Helper()
	for _, m := range [][3]string{{"tmpfs", "/var/lib/nfs", ""}, {"nfsd", "/proc/fs/nfsd", ""}} {
		if err := unix.Mount(m[0], m[1], m[0], 0, m[2]); err != nil {
			t.Fatalf("mount %s: %v", m[1], err)
		}
	}
	for _, dir := range []string{guestExport, "/run/rpcbind", "/run/sendsigs.omit.d", "/var/lib/nfs/v4recovery", "/var/lib/nfs/sm", "/var/lib/nfs/rpc_pipefs"} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"etab", "rmtab"} {
		if err := os.WriteFile("/var/lib/nfs/"+file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "ip", "link", "set", "lo", "up")
	run(t, "rpcbind")
	run(t, "exportfs", "-o", "rw,fsid=0,no_root_squash,insecure,no_subtree_check", "127.0.0.1:"+guestExport)
	run(t, "rpc.mountd")
	run(t, "rpc.nfsd", "-G", "10", "-L", "10", "2")
	_ = os.WriteFile("/proc/fs/nfsd/v4_end_grace", []byte("Y"), 0) // else opening for writing waits for clients of a server before
}

// nfsServer tests with the kernel's server of one version.
func nfsServer(device, vers string, users ...string) func(*testing.T) {
	return func(t *testing.T) {
		serveNFS(t)
		o := Options{
			Device: device, Mountpoint: "/run/mnt", Fstype: "nfs", MonitorWrite: true, DiskTimeout: time.Second,
			Options: []string{"hard", "timeo=10", "retrans=1", "actimeo=0", vers},
		}
		t.Run("Life", func(t *testing.T) { nfsLife(t, o) })
		for _, how := range users {
			t.Run("ServerDies/"+how, func(t *testing.T) { nfsDies(t, o, how) })
		}
	}
}

func nfsLife(t *testing.T, o Options) {
	f := unmounted(t, o)
	wantState(t, f, resources.Inactive)
	if err := f.Check(deadline(t, time.Minute)); err != nil {
		t.Error(err)
	}
	f = mounted(t, o)
	if err := f.Start(deadline(t, time.Minute)); err != nil {
		t.Error(err)
	}
	put(t, "/run/mnt/file", "data")
	if b, err := os.ReadFile(guestExport + "/file"); err != nil || string(b) != "data" {
		t.Errorf("%q %v", b, err)
	}
	for _, how := range []string{"file", "cwd", "map"} {
		runs := user(t, how, "/run/mnt"+map[string]string{"file": "/file", "map": "/file"}[how])
		mustStop(t, f)
		if runs() {
			t.Errorf("one that used it by %s survives", how)
		}
		if err := f.Start(deadline(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	mustStop(t, f)
}

// nfsDies: the network is cut. Every call ends with its context, and the monitor fails. A stop that nothing in the kernel holds succeeds all the
// same; else it says what is in its way, and succeeds when the server is back.
func nfsDies(t *testing.T, o Options, how string) {
	f := mounted(t, o)
	put(t, "/run/mnt/file", "data")
	runs := func() bool { return false }
	switch how {
	case "file", "write":
		runs = user(t, how, "/run/mnt/file")
	case "cwd":
		runs = user(t, how, "/run/mnt")
	}
	run(t, "ip", "link", "set", "lo", "down")
	inTime := func(what string, limit time.Duration, call func(context.Context) error) error {
		begun := time.Now()
		err := call(deadline(t, limit))
		t.Logf("%s after %s: %v", what, time.Since(begun).Round(time.Millisecond), err)
		if time.Since(begun) > limit+time.Second {
			t.Errorf("%s came back after %s", what, time.Since(begun))
		}
		return err
	}
	for _, limit := range []time.Duration{2 * time.Second, 200 * time.Millisecond} { // beyond disk_timeout, and within it
		_ = inTime("probe", limit, func(ctx context.Context) error {
			state, detail, err := f.Probe(ctx)
			if state == resources.Active || state == resources.Inactive {
				t.Errorf("probe: %s %q", state, detail)
			}
			return err
		})
	}
	err := inTime("stop", 2*time.Second, f.Stop)
	table, readErr := os.ReadFile("/proc/self/mountinfo")
	if readErr != nil {
		t.Fatal(readErr)
	}
	switch is := strings.Contains(string(table), " /run/mnt "); {
	case err == nil && is:
		t.Error("it is still mounted")
	case err == nil && runs():
		t.Error("a process that used it survives")
	case err != nil && o.Options[len(o.Options)-1] != "vers=4.2" && how != "write": // what writes cannot be killed before the server answers
		t.Errorf("stop: %v", err)
	case how == "write" && err != nil && !strings.Contains(err.Error(), "PID "):
		t.Errorf("it does not say who is in its way: %v", err)
	}
	run(t, "ip", "link", "set", "lo", "up")
	mustStop(t, f)
	if runs() {
		t.Error("a process that used it survives")
	}
}

// holders: a disk below another device is not mounted, whatever that is for.
func holders(t *testing.T) {
	const device = "/dev/ubda"
	o := Options{Device: device, Mountpoint: "/run/mnt", Fstype: "ext4"}
	refused := func(words string) {
		t.Helper()
		f := unmounted(t, o)
		for _, err := range []error{f.Start(deadline(t, time.Minute)), f.Check(deadline(t, time.Minute))} {
			if err := wantError(err, resources.ErrElsewhere, words); err != nil {
				t.Error(err)
			}
		}
	}
	run(t, "mkfs.ext4", "-q", device)
	run(t, "dmsetup", "create", "crypt", "--uuid", "CRYPT-LUKS2-1", "--table", "0 2048 linear "+device+" 0", "--noudevrules", "--noudevsync")
	refused("the device-mapper device crypt (dm-0) CRYPT")
	run(t, "dmsetup", "remove", "crypt", "--noudevrules", "--noudevsync")
	f := mounted(t, o)
	mustStop(t, f)

	if err := os.MkdirAll("/run/lvm-conf", 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, "/run/lvm-conf/lvm.conf", "devices { filter = [ \"a|^/dev/ubd|\", \"r|.*|\" ] }\nbackup { backup = 0\n archive = 0 }\n"+
		"activation { udev_sync = 0\n udev_rules = 0\n verify_udev_operations = 0\n reserved_memory = 0\n reserved_stack = 0 }\n")
	t.Setenv("LVM_SYSTEM_DIR", "/run/lvm-conf")
	run(t, "lvm", "vgcreate", "-qq", "--yes", "shared", device)
	run(t, "lvm", "lvcreate", "-qq", "--yes", "-L8M", "-n", "data", "shared")
	refused("the device-mapper device shared-data (dm-0) LVM")
	run(t, "lvm", "vgchange", "-qq", "-an", "shared")
	if out, err := exec.Command("dmsetup", "info", "-c").CombinedOutput(); err != nil || strings.Contains(string(out), "data") {
		t.Errorf("%s %v", out, err)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
