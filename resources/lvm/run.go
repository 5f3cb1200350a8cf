package lvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// programPath is where the programs of Debian, Fedora and SUSE are.
const programPath = "/usr/sbin:/sbin:/usr/bin:/bin"

const (
	lockFile  = "lock"
	lockPause = 10 * time.Millisecond
	// termTime and killTime are how long an end by SIGTERM and one by SIGKILL are waited for after the context has
	// ended. LVM holds SIGTERM back while it has a volume suspended.
	termTime = 15 * time.Millisecond
	killTime = 20 * time.Millisecond
	// mostOutput bounds what is kept of a program's output.
	mostOutput = 8 << 20
)

var errHangs = errors.New("an LVM command hangs in the kernel")

// hold waits until no LVM command of this resource runs any more, that of a daemon which died included, and lets none run until
// the file is closed. Commands get the file as their standard input (LVM closes every other descriptor
// that it is given), so what outlives its call, or its daemon, goes on holding the lock.
func (v *volumeGroup) hold(ctx context.Context) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(v.env.Dir, lockFile), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	tick := time.NewTicker(lockPause)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("an earlier LVM command still runs: %w", ctx.Err())
		}
	}
}

// busy reports whether an LVM command of this resource runs.
func (v *volumeGroup) busy() (bool, error) {
	f, err := os.Open(filepath.Join(v.env.Dir, lockFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock: %w", err)
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// failure is a program that ended with an error.
type failure struct {
	program string
	status  string
	says    string
}

func (f *failure) Error() string {
	if f.says == "" {
		return f.program + ": " + f.status
	}
	return f.program + ": " + f.says
}

// lvm runs a command of LVM, with settings beside the pinned ones, and gives its standard output.
func (v *volumeGroup) lvm(ctx context.Context, held *os.File, command, settings string, args ...string) ([]byte, error) {
	return v.run(ctx, held, "lvm", append([]string{command, "--config", pinned() + " " + settings}, args...)...)
}

// pinned are the settings that must not be the host's: a list of devices from the last time may lack a disk that another
// host has added to the group, and reports look as they are parsed.
func pinned() string {
	c := `devices/hints="none" activation/activation_mode="complete" activation/retry_deactivation=0 log/report_command_log=0 log/verbose=0`
	if !hasUdev() { // then LVM has to make the device nodes itself
		c += ` activation/udev_sync=0 activation/udev_rules=0 activation/verify_udev_operations=0`
	}
	return c
}

// hasUdev reports whether udevd runs, as libudev tells it.
func hasUdev() bool {
	_, err := os.Stat("/run/udev/control")
	return !errors.Is(err, os.ErrNotExist)
}

// run runs a program, and ends it, with all that it has started in its process group, when ctx ends.
func (v *volumeGroup) run(ctx context.Context, held *os.File, program string, args ...string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path, err := v.find(program)
	if err != nil {
		return nil, err
	}
	var stdout, stderr head
	cmd := &exec.Cmd{
		Path: path, Args: append([]string{program}, args...), Dir: "/", Env: v.environ(),
		Stdin: held, Stdout: &stdout, Stderr: &stderr, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		WaitDelay: 100 * time.Millisecond, // a daemon of LVM's that it has started may keep the pipes
	}
	if err := process.Ordinarily(cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	leader, err := process.Look(cmd.Process.Pid) // it is not reaped yet, so it is there
	if err != nil {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		go process.Reap(cmd.Wait)
		return nil, fmt.Errorf("look at %s: %w", program, err)
	}
	why := leader.Wait(ctx)
	if why != nil {
		gone := end(leader)
		go process.Reap(cmd.Wait) // for what it has started, too, if that keeps the pipes
		if !gone {
			return nil, fmt.Errorf("%s: %w: %w", title(program, args), errHangs, why)
		}
		return nil, fmt.Errorf("%s was ended: %w", title(program, args), why)
	}
	err = process.Reap(cmd.Wait)
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return stdout.buf, nil
	}
	return nil, &failure{program: title(program, args), status: cmd.ProcessState.String(), says: stderr.text()}
}

// end ends the process group of a process that is not reaped yet, and reports whether that process is gone.
func end(leader process.Process) bool {
	for _, s := range []struct {
		signal unix.Signal
		time   time.Duration
	}{{unix.SIGTERM, termTime}, {unix.SIGKILL, killTime}} {
		_ = unix.Kill(-leader.PID, s.signal)
		ctx, cancel := context.WithTimeout(context.Background(), s.time)
		err := leader.Wait(ctx)
		cancel()
		if err == nil {
			_ = unix.Kill(-leader.PID, unix.SIGKILL) // the rest of the group
			return true
		}
	}
	return false
}

func (v *volumeGroup) find(program string) (string, error) {
	for dir := range strings.SplitSeq(v.path, ":") {
		path := filepath.Join(dir, program)
		if unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: there is no %s on this host; install it with: apt-get install lvm2 (or dnf, zypper)", resources.ErrNode, program)
}

// environ is the environment of LVM's programs. They are told where their configuration is as an operator's are.
func (v *volumeGroup) environ() []string {
	env := []string{"LC_ALL=C", "PATH=" + v.path}
	if dir, ok := os.LookupEnv("LVM_SYSTEM_DIR"); ok {
		env = append(env, "LVM_SYSTEM_DIR="+dir)
	}
	return env
}

// title names a command for operators: without the pinned settings.
func title(program string, args []string) string {
	if program == "lvm" && len(args) > 0 {
		program, args = args[0], args[1:]
	}
	if i := slices.Index(args, "--config"); i >= 0 && i+2 <= len(args) {
		args = slices.Delete(slices.Clone(args), i, i+2)
	}
	const most = 60
	s := strings.Join(append([]string{program}, args...), " ")
	if len(s) > most {
		s = program
	}
	return s
}

// head keeps the beginning of what is written to it.
type head struct{ buf []byte }

func (h *head) Write(p []byte) (int, error) {
	h.buf = append(h.buf, p[:min(len(p), mostOutput-len(h.buf))]...)
	return len(p), nil
}

// text is it on one line, for an error; not more than an operator wants to read.
func (h *head) text() string {
	const most = 600
	var lines []string
	for line := range bytes.Lines(h.buf) {
		if s := strings.TrimSpace(string(line)); s != "" {
			lines = append(lines, strings.ToValidUTF8(s, "?"))
		}
	}
	s := strings.Join(lines, "; ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
