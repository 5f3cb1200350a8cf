package guard

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// killAfter is the time between SIGTERM and SIGKILL for a command whose context ended.
const killAfter = 10 * time.Second

// Run runs a command, with this process's standard files and environment, while the
// token's lock is held, and returns its exit status: 128 plus the signal if one killed
// it, as shells do. The error is for a command that did not run at all.
//
// The command inherits the lock (as file descriptor 3): if this process is killed, a
// higher token still waits for the command, and for those of its children that keep
// the descriptor open. When ctx ends the command is sent SIGTERM, and SIGKILL ten
// seconds later; Run returns when it has ended.
func (g *Guard) Run(ctx context.Context, name string, token uint64, argv []string) (status int, err error) {
	if len(argv) == 0 {
		return 0, errors.New("guard: no command")
	}
	l, err := g.enter(ctx, name, token)
	if err != nil {
		return 0, err
	}
	defer l.close()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{l.file}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killAfter
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	err = cmd.Wait()
	if cmd.ProcessState == nil {
		return 0, err
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}
