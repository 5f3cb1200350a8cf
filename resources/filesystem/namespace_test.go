package filesystem

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// elsewhere runs a shell script in a mount namespace of its own, which took along what is mounted here, until
// its first line of output. The function tells whether it still runs.
func elsewhere(t *testing.T, script string) (pid int, runs func() bool) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script+"; echo up; exec sleep 600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS} // no Pdeathsig: threads that unmount in another namespace end
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("%s: %q %v", script, line, err)
	}
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	return cmd.Process.Pid, func() bool {
		select {
		case <-ended:
			return false
		case <-time.After(20 * time.Millisecond):
			p, err := process.Look(cmd.Process.Pid) // one that has just ended may not have been waited for yet
			return err == nil && !p.Ended()
		}
	}
}

// B26: nested mounts, a bind mount of the inner one, and processes in mount namespaces of their own that took all of
// them along. Who holds the inner mount is ended, wherever it lives, and nobody else.
func TestB26OnlyUsersOfThisMountAreEnded(t *testing.T) {
	outer := mounted(t, Options{Device: disk(t), Mountpoint: filepath.Join(t.TempDir(), "a b"), Fstype: "ext4"})
	inner := mounted(t, Options{Device: disk(t), Mountpoint: filepath.Join(outer.opts.Mountpoint, "b\nc"), Fstype: "ext4"})
	bound := mounted(t, Options{Device: inner.opts.Mountpoint, Mountpoint: filepath.Join(t.TempDir(), `b\`), Fstype: "none", Options: []string{"bind"}})
	quoted := func(path string) string { return "'" + path + "'" }
	users, bystanders := map[string]func() bool{}, map[string]func() bool{}
	_, users["private namespace"] = elsewhere(t, "cd "+quoted(inner.opts.Mountpoint))
	_, users["private namespace, by a file"] = elsewhere(t, "exec 9< "+quoted(inner.opts.Mountpoint))
	_, bystanders["private namespace, only lives in it"] = elsewhere(t, ":")
	_, bystanders["private namespace, user of the parent"] = elsewhere(t, "cd "+quoted(outer.opts.Mountpoint))
	users["here"] = user(t, "cwd", inner.opts.Mountpoint)
	bystanders["parent"] = user(t, "cwd", outer.opts.Mountpoint)
	bystanders["bind mount"] = user(t, "cwd", bound.opts.Mountpoint)

	if err := inner.Stop(deadline(t, 5*time.Second)); err == nil || !strings.Contains(err.Error(), bound.opts.Mountpoint) {
		t.Errorf("stop while the bind mount holds the device: %v", err)
	}
	if users["here"]() {
		t.Error("the user in this namespace still runs")
	}
	for who, runs := range bystanders {
		if !runs() {
			t.Errorf("bystander %s was ended", who)
		}
	}
}

// Without the bind mount the same stop is complete: copies in other namespaces go as well.
func TestB26StopReachesAllNamespaces(t *testing.T) {
	for _, propagation := range []string{"private", "slave"} {
		outer := mounted(t, Options{Device: disk(t), Mountpoint: filepath.Join(t.TempDir(), "a"), Fstype: "ext4"})
		if err := unix.Mount("", outer.opts.Mountpoint, "", unix.MS_SHARED, ""); err != nil {
			t.Fatal(err)
		}
		inner := mounted(t, Options{Device: disk(t), Mountpoint: filepath.Join(outer.opts.Mountpoint, "b"), Fstype: "ext4"})
		into := "mount --make-r" + propagation + " '" + outer.opts.Mountpoint + "'; "
		_, user := elsewhere(t, into+"cd '"+inner.opts.Mountpoint+"'")
		_, lives := elsewhere(t, into+":")
		_, parent := elsewhere(t, into+"cd '"+outer.opts.Mountpoint+"'")
		mustStop(t, inner)
		if user() || !lives() || !parent() {
			t.Errorf("%s: user runs %v, one that only lives there %v, a user of the parent %v", propagation, user(), lives(), parent())
		}
		if v, err := inner.look(); err != nil || v.holder != "" {
			t.Errorf("%s: after the stop the device is held by %q %v", propagation, v.holder, err)
		}
	}
}

// What somebody mounted in another namespace is named, and neither unmounted nor covered.
func TestMountedInAnotherNamespace(t *testing.T) {
	device, path := disk(t), t.TempDir()
	pid, runs := elsewhere(t, "mount "+device+" '"+path+"'")
	f := unmounted(t, Options{Device: device, Mountpoint: filepath.Join(t.TempDir(), "m"), Fstype: "ext4"})
	wantDetail(t, f, resources.Failed, path, "mount namespace of PID")
	if err := wantError(f.Start(deadline(t, time.Minute)), resources.ErrElsewhere, path); err != nil {
		t.Error(err)
	}
	if err := f.Stop(deadline(t, time.Second)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("stop: %v", err)
	}
	if !runs() {
		t.Errorf("PID %d was ended", pid)
	}
}

// A copy is the same part of the same file system at the same path.
func TestCopiesAreOfTheSamePath(t *testing.T) {
	mount := entry{id: 1, dev: 5, root: "/", mountpoint: "/a"}
	for _, e := range []entry{{dev: 5, root: "/", mountpoint: "/b"}, {dev: 6, root: "/", mountpoint: "/a"}, {dev: 5, root: "/sub", mountpoint: "/a"}} {
		if isCopy(e, mount) {
			t.Errorf("%+v is taken for a copy", e)
		}
	}
	if !slices.ContainsFunc([]entry{{id: 2, dev: 5, root: "/", mountpoint: "/a"}}, func(e entry) bool { return isCopy(e, mount) }) {
		t.Error("a copy is none")
	}
}
