package filesystem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources/internal/process"
)

// searched is where programs of mounts and checks lie; the daemon's own PATH may lack them.
var searched = []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"}

// programError is a program that ended with a failure.
type programError struct {
	program string
	code    int // -1: ended by a signal
	output  string
}

func (e *programError) Error() string {
	end := fmt.Sprintf("%s failed with exit code %d", e.program, e.code)
	if e.code < 0 {
		end = e.program + " was killed"
	}
	if e.output == "" {
		return end
	}
	return end + ": " + e.output
}

// runProgram runs a program until it ends, with all that it started in its process group, killed when the context
// ends. It comes back only when the program is gone: the caller must not wait for it without bound.
func runProgram(ctx context.Context, argv ...string) (code int, err error) {
	path, err := programPath(argv[0])
	if err != nil {
		return -1, err
	}
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	// Nothing of the daemon's environment: it may hold secrets, and rpc.statd, which mount.nfs starts, goes on for ever.
	cmd.Dir, cmd.Env = "/", []string{"LC_ALL=C", "PATH=" + strings.Join(searched, ":")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 100 * time.Millisecond // a daemon that it started (rpc.statd) may keep the pipe
	var out tail
	cmd.Stdout, cmd.Stderr = &out, &out
	if err = process.Ordinarily(cmd.Start); err == nil {
		err = process.Reap(cmd.Wait)
	}
	switch exited := (*exec.ExitError)(nil); {
	case ctx.Err() != nil && (err == nil || cmd.ProcessState != nil && !cmd.ProcessState.Success()):
		return -1, fmt.Errorf("%s: %w", argv[0], ctx.Err())
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return 0, nil
	case errors.As(err, &exited):
		return exited.ExitCode(), &programError{argv[0], exited.ExitCode(), out.String()}
	default:
		return -1, err
	}
}

// programPath finds a program.
func programPath(name string) (string, error) {
	for _, dir := range searched {
		if info, err := os.Stat(dir + "/" + name); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return dir + "/" + name, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// tail keeps the end of a program's output.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-2000):]
	return len(p), nil
}

// String is one line of printable text.
func (t *tail) String() string {
	return strings.Join(strings.Fields(string(bytes.ToValidUTF8(t.b, []byte("?")))), " ")
}
