//go:build systemdhost

package hosts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Everything that a lab has on the machine besides its folder bears the folder's name, or lies on a file in it. So it can be
// found and removed by anybody: by the lab at its end; by its janitor, a process of its own, when the lab was killed; and by
// the next test, when the janitor was killed too.

const (
	labPrefix   = "hamgr-hosts-"
	janitorName = "janitor"
	sweepTime   = 20 * time.Second
)

// claim takes the lock that says that the lab in the folder is alive. It is there, and held, before the name "lock" is.
func claim(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock.new"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, "lock"))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// hire starts the janitor of a lab: it waits until this process ends, or closes the pipe, and then removes what is left.
func hire(dir string) (leave func(), err error) {
	cmd := exec.Command("/proc/self/exe", dir)
	cmd.Args[0] = janitorName
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the test
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		pipe.Close()
		cmd.Wait()
	}, nil
}

// janitor is the janitor's main program.
func janitor(dir string) int {
	io.Copy(io.Discard, os.Stdin)
	if err := sweepDead(dir, 0); err != nil { // the process is about to let go of the lock
		fmt.Fprintln(os.Stderr, "after a test that was killed:", err)
		return 1
	}
	return 0
}

// sweepStale removes all labs whose test is no more.
func sweepStale() error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), labPrefix+"*"))
	for _, dir := range dirs {
		err = errors.Join(err, sweepDead(dir, syscall.LOCK_NB))
	}
	return err
}

// sweepDead removes a lab whose lock nobody holds. It waits for that, unless how is LOCK_NB.
func sweepDead(dir string, how int) error {
	lock, err := os.Open(filepath.Join(dir, "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|how) != nil {
		return nil
	}
	return sweep(dir)
}

// sweep removes all that a lab has on the machine: processes, namespaces with their bridges and wires, loop devices, files.
func sweep(dir string) error {
	name := filepath.Base(dir)
	if !strings.HasPrefix(name, labPrefix) {
		return fmt.Errorf("%s is no folder of a lab", dir)
	}
	var errs []error
	if base, err := cgroupBase(dir); err == nil {
		errs = append(errs, endCgroup(filepath.Join(base, name)))
	}
	spaces, _ := filepath.Glob(filepath.Join("/run/netns", name+"*"))
	for _, s := range spaces {
		errs = append(errs, command("ip", "netns", "del", filepath.Base(s)))
	}
	errs = append(errs, detachLoops(dir))
	if own := filepath.Join(dir, "cgroup"); exists(own) {
		errs = append(errs, syscall.Unmount(own, 0))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return os.RemoveAll(dir)
}

// cgroupBase is where the machine has its unified hierarchy (no controllers are needed), or where the lab has mounted it.
func cgroupBase(dir string) (string, error) {
	table, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" && !strings.Contains(f[1], labPrefix) {
			return f[1], nil
		}
	}
	own := filepath.Join(dir, "cgroup")
	if exists(own) {
		return own, nil
	}
	if err := os.Mkdir(own, 0o755); err != nil {
		return "", err
	}
	return own, syscall.Mount("none", own, "cgroup2", 0, "")
}

// endCgroup kills all that is in a cgroup, waits until nothing is, and removes it.
func endCgroup(dir string) error {
	for end := time.Now().Add(sweepTime); ; time.Sleep(2 * time.Millisecond) {
		err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		events, _ := os.ReadFile(filepath.Join(dir, "cgroup.events"))
		if err == nil && strings.Contains(string(events), "populated 0") {
			if err = removeCgroup(dir); err == nil {
				return nil
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes in %s survive: %v: %s", dir, err, events)
		}
	}
}

func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return syscall.Rmdir(dir)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// command runs a program and tells what it said when it failed.
func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
