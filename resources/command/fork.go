package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// fork starts a program in a session of its own. The child is to be reaped by the caller, if there is one, even with an error.
func (c *command) fork(ctx context.Context, p prepared, in, out *os.File) (*os.Process, process.Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, process.Process{}, err
	}
	var child *os.Process
	err := process.Ordinarily(func() (err error) {
		child, err = c.spawn(p.path, p.argv, &os.ProcAttr{
			Dir:   c.workDir(),
			Env:   p.env,
			Files: []*os.File{in, out, out},
			Sys:   &syscall.SysProcAttr{Setsid: true, Credential: p.who.credential()},
		})
		return err
	})
	if err != nil {
		return nil, process.Process{}, startError(err)
	}
	leader, err := process.Look(child.Pid) // it is not reaped yet, so it is there
	if err == nil {
		err = resetOOM(leader)
	}
	if err != nil {
		_ = child.Kill()
		return child, process.Process{}, fmt.Errorf("look at what was started: %w", err)
	}
	return child, leader, nil
}

// startError tells a program that cannot run at all from a host that cannot start one just now.
func startError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist): // of the interpreter in its first line: the program was there
		return fmt.Errorf("%w: its interpreter is not installed: %w", resources.ErrNode, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: it cannot be started: %w", resources.ErrSetup, err)
	}
	return err
}

// resetOOM takes back the daemon's own protection from the out-of-memory killer, which
// the process has inherited. Raising one's own value needs no privilege.
func resetOOM(p process.Process) error {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil || string(own) == "0\n" {
		return err
	}
	err = os.WriteFile(filepath.Join("/proc", strconv.Itoa(p.PID), "oom_score_adj"), []byte("0"), 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) || errors.Is(err, unix.ESRCH) {
		return nil // ended already, or has more privileges than the daemon: nothing to protect
	}
	return err
}
