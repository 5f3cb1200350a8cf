package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	osexec "os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/hamgr/hamgr/agents"
)

const (
	// killPatience is how long a call waits for what it has killed. A process that hangs in the
	// kernel dies later, and is waited for in the background.
	killPatience = 30 * time.Millisecond
	// pipePatience is how long the output of an agent that has ended may stay open. Only a
	// child that has left the process group can hold it.
	pipePatience = 250 * time.Millisecond

	mostStdout = 64 << 10
	mostList   = 1 << 20
	mostStderr = 16 << 10
)

// environment is all that an agent inherits. UTF-8 is what Python takes LANG=C for.
var environment = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C", "HOME=/"}

// result is what a program that ended by itself has left.
type result struct {
	status int    // exit status; -1 if a signal ended it
	ending string // in words
	stdout string
	cut    bool // stdout was longer, or may be incomplete
	stderr string
}

// execute runs a program without arguments, with stdin for its standard input, and gives what it
// printed. When ctx ends, its whole process group is killed.
func execute(ctx context.Context, path string, stdin []byte, mostOut int) (result, error) {
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	p := &process{done: make(chan struct{})}
	go p.run(path, stdin, mostOut)
	select {
	case <-p.done:
		return p.result, p.err
	case <-ctx.Done():
	}
	p.kill()
	patience := time.NewTimer(killPatience)
	defer patience.Stop()
	select {
	case <-p.done:
	case <-patience.C:
	}
	return result{}, fmt.Errorf("killed: %w", ctx.Err())
}

// process is one run of a program.
type process struct {
	done chan struct{} // closed when result and err are there
	result
	err error

	mu     sync.Mutex
	killed bool
	group  int // the number of its process group while that cannot be another's; else 0
}

func (p *process) run(path string, stdin []byte, mostOut int) {
	defer close(p.done)
	// The kernel sends Pdeathsig when the thread that started the program ends, so that thread
	// has to be kept. With it, an agent does not outlive a daemon that is killed.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	if err := ordinarily(func() error { p.execute(path, stdin, mostOut); return nil }); err != nil {
		p.err = err
	}
}

// execute starts the program and waits for its end.
func (p *process) execute(path string, stdin []byte, mostOut int) {
	stdout, stderr := &head{most: mostOut}, &tail{most: mostStderr}
	cmd := osexec.Command(path)
	cmd.Dir, cmd.Env = "/", environment
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = pipePatience
	if p.err = p.start(cmd); p.err != nil {
		return
	}
	held, err := p.wait(cmd)
	if ended := (*osexec.ExitError)(nil); err != nil && !errors.As(err, &ended) && !errors.Is(err, osexec.ErrWaitDelay) {
		p.err = err
	}
	p.result.stdout, p.result.cut, p.result.stderr = stdout.text(), stdout.cut || held, stderr.text()
	p.result.status, p.result.ending = cmd.ProcessState.ExitCode(), cmd.ProcessState.String()
}

func (p *process) start(cmd *osexec.Cmd) error {
	p.mu.Lock()
	killed := p.killed
	p.mu.Unlock()
	if killed {
		return context.Canceled
	}
	if err := cmd.Start(); err != nil {
		return startError(err)
	}
	unprotect(cmd.Process.Pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.group = cmd.Process.Pid
	if p.killed {
		_ = syscall.Kill(-p.group, syscall.SIGKILL)
	}
	return nil
}

// wait ends all that the program has left behind in its process group before the program itself is
// reaped: until then its number, which is the group's too, cannot go to a stranger. held tells that its
// output may not have come to an end.
func (p *process) wait(cmd *osexec.Cmd) (held bool, err error) {
	if err := awaitEnd(cmd.Process.Pid); err != nil {
		return true, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	p.mu.Lock()
	_ = syscall.Kill(-p.group, syscall.SIGKILL)
	p.group = 0
	p.mu.Unlock()
	// ErrWaitDelay is not told beside another exit status than 0; the time tells it.
	start := time.Now()
	err = cmd.Wait()
	return time.Since(start) >= pipePatience, err
}

// kill ends the process group, at once.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	if p.group != 0 {
		_ = syscall.Kill(-p.group, syscall.SIGKILL)
	}
}

// awaitEnd waits until a child has ended, and leaves it to be reaped: waitid(2), which package
// syscall does not wrap.
func awaitEnd(pid int) error {
	const idPID = 1 // P_PID of bits/waitflags.h
	var info [128]byte
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idPID, uintptr(pid), uintptr(unsafe.Pointer(&info)),
			syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return fmt.Errorf("wait for PID %d: %w", pid, errno)
		}
	}
}

// startError tells a program that cannot run at all from a host that cannot start one just now.
func startError(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // also of the interpreter in its first line
		return fmt.Errorf("%w: it, or its interpreter, is not installed", agents.ErrUnfit)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: it cannot be started: %w", agents.ErrUnfit, err)
	}
	return fmt.Errorf("start: %w", err)
}
