package ocf

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

const (
	// killTime is how long killing is tried; it takes some 10 ms. What hangs in the kernel dies later, and is
	// then only known by its mark.
	killTime = 2 * time.Second
)

// job is one run of an agent.
type job struct {
	path, action string
	env          []string
	secrets      []string
	mark         string // of this run alone
	most         int    //  bytes of standard output that are kept
	alone        bool   // it is to leave nothing behind, so what it leaves is killed
}

// run makes the agent carry out one action. The record of it stays if something of it may still run.
func (o *ocf) run(ctx context.Context, c call) (result, error) {
	env, secrets, err := o.environ(ctx, c)
	if err != nil {
		return result{}, err
	}
	if _, err := o.name.look(o.opts.Root); err != nil {
		return result{}, err
	}
	if err := os.MkdirAll(o.tmp, 0o755); err != nil {
		return result{}, fmt.Errorf("directory for the agents' own records: %w", err)
	}
	mark := newMark()
	if err := o.note(runningFile, mark); err != nil {
		return result{}, err
	}
	began := time.Now()
	r, err := execute(ctx, job{path: o.path, action: c.action, env: env, secrets: secrets, mark: mark, most: mostStdout, alone: c.action == "validate-all"})
	took := time.Since(began).Round(time.Millisecond)
	if errors.Is(err, process.ErrHangs) {
		return result{}, err
	}
	if err := errors.Join(err, o.forget(runningFile)); err != nil {
		return result{}, err
	}
	o.env.Log.Debug("agent ran", "op", c.action, "agent", o.name.String(), "took", took, "says", r.says())
	return r, nil
}

// earlier are the processes of a run that nobody waits for any more: that of a daemon which died, or what
// hung in the kernel when it was killed.
func (o *ocf) earlier(ctx context.Context) ([]process.Process, error) {
	rec, err := o.recall(runningFile)
	if err != nil || rec == nil {
		return nil, err
	}
	k := kin{mark: rec.Mark}
	left, err := k.find(ctx)
	if err == nil && len(left) == 0 {
		err = o.forget(runningFile)
	}
	return left, err
}

// endEarlier kills them.
func (o *ocf) endEarlier(ctx context.Context) error {
	left, err := o.earlier(ctx)
	if err != nil || len(left) == 0 {
		return err
	}
	o.env.Log.Warn("an earlier action still runs and is killed", "processes", process.List(left))
	rec, err := o.recall(runningFile)
	if err != nil || rec == nil {
		return err
	}
	k := kin{mark: rec.Mark}
	if err := k.killWithin(ctx); err != nil {
		return fmt.Errorf("an earlier action still runs: %w", err)
	}
	return o.forget(runningFile)
}

// newMark is the value of HAMGR_RUN: no other run has it.
func newMark() string { return rand.Text() }

// execute runs a program with one argument, and nothing on its standard input. When ctx ends, all that it has
// made is killed. It comes back when the program is gone, which can take for ever.
func execute(ctx context.Context, j job) (result, error) {
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	stdout, stderr := &head{most: j.most}, &tail{most: mostStderr}
	out, err := newCapture(stdout)
	if err != nil {
		return result{}, err
	}
	defer out.finish()
	errs, err := newCapture(stderr)
	if err != nil {
		return result{}, err
	}
	defer errs.finish()
	cmd, leader, err := j.spawn(ctx, out.w, errs.w)
	if err != nil {
		return result{}, err
	}
	k := kin{leader: leader, mark: j.mark}
	why := leader.Wait(ctx)
	var hangs error
	if why != nil || j.alone {
		hangs = k.kill()
	}
	_ = leader.Wait(context.Background())
	_ = process.Reap(cmd.Wait) // its state says all
	out.finish()
	errs.finish()
	status := cmd.ProcessState.ExitCode()
	r := result{
		status: status, ending: describeEnding(status, cmd.ProcessState.String()), secrets: j.secrets,
		stdout: string(stdout.buf), cut: stdout.cut, stderr: stderr.text(),
	}
	switch {
	case hangs != nil:
		return result{}, errors.Join(fmt.Errorf("%s was killed, and %w: %w", j.action, process.ErrHangs, hangs), why)
	case why != nil:
		r.ending = j.action + " was killed"
		return result{}, fmt.Errorf("%s: %w", r.says(), why)
	}
	return r, nil
}

// spawn starts the program, in a session of its own. The runtime stands still while a child is between fork and
// exec, so a file system that hangs is made to hang before, where it holds but one goroutine.
func (j job) spawn(ctx context.Context, stdout, stderr *os.File) (*exec.Cmd, process.Process, error) {
	if f, err := os.Open(j.path); err == nil { // a program may be executable and not readable
		_, _ = f.Read(make([]byte, 1))
		f.Close()
	}
	if err := ctx.Err(); err != nil {
		return nil, process.Process{}, err
	}
	cmd := &exec.Cmd{
		Path: j.path, Args: []string{j.path, j.action}, Dir: "/", Env: append(j.env, markVariable+j.mark),
		Stdout: stdout, Stderr: stderr, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := process.Ordinarily(cmd.Start); err != nil {
		return nil, process.Process{}, startError(err)
	}
	leader, err := process.Look(cmd.Process.Pid) // it is not reaped yet, so it is there
	if err == nil {
		err = resetOOM(leader)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = process.Reap(cmd.Wait)
		return nil, process.Process{}, fmt.Errorf("look at what was started: %w", err)
	}
	return cmd, leader, nil
}

// startError tells a program that cannot run at all from a host that cannot start one just now.
func startError(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // of the interpreter in its first line: the program was there
		return fmt.Errorf("%w: its interpreter is not installed", resources.ErrNode)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: it cannot be started: %w", resources.ErrSetup, err)
	}
	return fmt.Errorf("start the agent: %w", err)
}

// resetOOM takes back the daemon's own protection from the out-of-memory killer, which the agent, and the
// service after it, would inherit.
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
