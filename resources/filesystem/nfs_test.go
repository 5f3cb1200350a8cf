package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// The tests of NFS run a mount.nfs of their own, which does what the name of the server says: not every kernel has NFS.
const fakeMountNFS = `#!/bin/sh
case $1 in
hang:*) echo "$$" > "${1#hang:}"; sleep 600 & wait ;;
denied:*) echo "mount.nfs: access denied by server while mounting $1" >&2; exit 32 ;;
gone:*) echo "mount.nfs: Connection timed out" >&2; exit 32 ;;
odd:*) echo "mount.nfs: something odd" >&2; exit 32 ;;
daemon:*) setsid sleep 20 & exit 0 ;;
esac
exit 0
`

// fakePrograms puts it before all others. It is called once, before any test runs.
func fakePrograms() error {
	dir, err := os.MkdirTemp("", "filesystem")
	if err != nil {
		return err
	}
	if err := unix.Mount("programs", dir, "tmpfs", 0, ""); err != nil { // gone with the namespace
		return err
	}
	searched = append([]string{dir}, searched...)
	return os.WriteFile(filepath.Join(dir, mountNFS), []byte(fakeMountNFS), 0o755)
}

func nfs(t *testing.T, device string, options ...string) *filesystem {
	t.Helper()
	return unmounted(t, Options{Device: device, Mountpoint: t.TempDir(), Fstype: "nfs", Options: options})
}

func TestMountNFSCommand(t *testing.T) {
	for want, o := range map[string]Options{
		"mount.nfs s:/x /m":                          {Device: "s:/x", Fstype: "nfs"},
		"mount.nfs4 s:/x /m":                         {Device: "s:/x", Fstype: "nfs4", Options: []string{"_netdev,nofail", "x-systemd.automount", "defaults"}},
		"mount.nfs s:/x /m -o ro,vers=4.2,soft,hard": {Device: "s:/x", Fstype: "nfs", Options: []string{"ro,vers=4.2,_netdev", "soft", "hard"}},
	} {
		o.Mountpoint = "/m"
		f := filesystem{opts: o}
		if got := strings.Join(f.mountProgram(), " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A server that does not answer hangs neither the start nor the stop after it, and leaves no process.
func TestMountNFSHangs(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	f := nfs(t, "hang:"+pidFile)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		eventually(t, "mount.nfs runs", func() bool { b, err := os.ReadFile(pidFile); return err == nil && len(b) > 1 })
	}()
	if err := f.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v", err)
	}
	mustStop(t, f)
	b, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	fmt.Sscan(string(b), &pid)
	eventually(t, "its processes are gone", func() bool {
		_, _ = unix.Wait4(-pid, nil, unix.WNOHANG, nil) // this process is their init
		return pid > 1 && errors.Is(unix.Kill(-pid, 0), unix.ESRCH)
	})
}

func TestMountNFSRefuses(t *testing.T) {
	for device, test := range map[string]struct {
		sentinel error
		want     string
	}{
		"denied:/x": {resources.ErrSetup, "access denied"},
		"gone:/x":   {resources.ErrNode, "timed out"},
		"odd:/x":    {nil, "something odd"},
		"fine:/x":   {nil, "the kernel does not show it"}, // an accepted command is no proof
		"daemon:/x": {nil, "the kernel does not show it"}, // and its daemon keeps nobody waiting
	} {
		f := nfs(t, device, "_netdev")
		begin := time.Now()
		if err := wantError(f.Start(deadline(t, time.Minute)), test.sentinel, test.want); err != nil {
			t.Errorf("%s: %v", device, err)
		}
		if took := time.Since(begin); device == "daemon:/x" && took > 10*time.Second {
			t.Errorf("the start waited %s for a daemon", took)
		}
		mustStop(t, f)
	}
}

// nfs that speaks version 4 is shown as nfs4, and slashes at the end of an export mean nothing.
func TestNFSIsKnownByItsSource(t *testing.T) {
	f := nfs(t, "server:/export/")
	s, err := f.source()
	if err != nil || s.missing || s.block {
		t.Fatalf("%+v %v", s, err)
	}
	for e, want := range map[entry]bool{
		{fstype: "nfs4", source: "server:/export"}:  true,
		{fstype: "nfs", source: "server:/export/"}:  true,
		{fstype: "nfs", source: "other:/export"}:    false,
		{fstype: "tmpfs", source: "server:/export"}: false,
	} {
		if got := f.isOurs(e, s); got != want {
			t.Errorf("%+v: %v", e, got)
		}
	}
}

// The probe of a network file system reads the table alone: a path above it that is a link is followed, the mount
// itself is not touched.
func TestNetworkMountIsNotTouched(t *testing.T) {
	root := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), root); err != nil {
		t.Fatal(err)
	}
	o := Options{Device: "x", Mountpoint: filepath.Join(root, "a b"), Fstype: "tmpfs"}
	mounted(t, o)
	f := filesystem{opts: Options{Device: "s:/x", Mountpoint: o.Mountpoint, Fstype: "nfs"}}
	v, err := f.look()
	if err != nil || v.top == nil || v.ours || v.top.source != "x" {
		t.Errorf("%+v %v", v, err)
	}
}

func TestCheckNFS(t *testing.T) {
	f := nfs(t, "server:/x")
	err := f.Check(deadline(t, time.Minute))
	known, _ := os.ReadFile("/proc/filesystems")
	if slices.Contains(strings.Fields(string(known)), "nfs") {
		if err != nil {
			t.Error(err)
		}
	} else if err := wantError(err, resources.ErrSetup, "this kernel does not know the file system nfs"); err != nil {
		t.Error(err)
	}
}

// What is run has nothing of the daemon's environment.
func TestProgramsGetNoSecrets(t *testing.T) {
	t.Setenv("HAMGR_SECRET", "mouse")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "env-of"), []byte("#!/bin/sh\nenv; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := searched
	defer func() { searched = before }()
	searched = append([]string{dir}, searched...)
	_, err := runProgram(t.Context(), "env-of")
	if err == nil || !strings.Contains(err.Error(), "LC_ALL=C") || strings.Contains(err.Error(), "mouse") {
		t.Errorf("%v", err)
	}
}
