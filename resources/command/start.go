package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// Start implements resources.Resource. It returns as soon as the program was
// executed (an unknown program is an error here), or ReadyAfter later.
func (c *command) Start(ctx context.Context) error {
	unlock, err := lock(ctx, c.dir)
	if err != nil {
		return err
	}
	state, detail, err := c.probe()
	if err != nil || state != resources.Inactive {
		unlock()
		if state == resources.Active {
			return nil
		}
		if err != nil {
			return fmt.Errorf("start %s: %w", c.opts.Run[0], err)
		}
		return fmt.Errorf("start %s: %s; it must be stopped first", c.opts.Run[0], detail)
	}
	// A hanging file system can hold the launch for ever. It keeps the lock then,
	// so that no later Stop takes the resource for inactive.
	done := make(chan error, 1)
	go func() {
		defer unlock()
		done <- c.launch(ctx)
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		err = c.ready(ctx)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", c.opts.Run[0], err)
	}
	return nil
}

// ready waits until the process has lived long enough.
func (c *command) ready(ctx context.Context) error {
	if c.opts.ReadyAfter == 0 {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, c.opts.ReadyAfter)
	defer cancel()
	err := c.Died(wait)
	if errors.Is(err, context.DeadlineExceeded) {
		return ctx.Err()
	}
	return err
}

// launch makes the process. What it leaves behind on an error is found by Stop.
func (c *command) launch(ctx context.Context) error {
	program, output, err := c.prepare()
	if err != nil {
		return err
	}
	defer output.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	if err := ctx.Err(); err != nil {
		return err
	}
	rec := record{Boot: c.env.Boot, Token: c.env.Token}
	if err := writeRecord(c.dir, rec); err != nil {
		return err
	}
	var child *os.Process
	err = process.Ordinarily(func() (err error) {
		child, err = c.spawn(program, c.opts.Run, &os.ProcAttr{
			Dir:   c.workDir(),
			Env:   c.environ(),
			Files: []*os.File{null, output, output},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
		return err
	})
	if err != nil {
		return errors.Join(err, removeRecord(c.dir))
	}
	defer func() { _ = child.Release() }() // reaped by exits, because it may outlive every wait of ours
	started, err := process.Look(child.Pid)
	if err != nil {
		return fmt.Errorf("look at what was started: %w", err)
	}
	rec.PID, rec.Start = started.PID, started.Start
	err = errors.Join(c.resetOOM(started), writeRecord(c.dir, rec), ctx.Err())
	if err != nil {
		// Nobody waits for it any more, or nobody could find it: it must not go on.
		return errors.Join(err, started.Signal(unix.SIGKILL))
	}
	return nil
}

// prepare touches every file that the launch needs. The runtime stands still while a
// child is between fork and exec, so a file system that hangs must hang here, where
// it holds but one goroutine.
func (c *command) prepare() (program string, output *os.File, err error) {
	program, err = exec.LookPath(c.opts.Run[0])
	if err != nil {
		return "", nil, err
	}
	if f, err := os.Open(program); err == nil { // a program may be executable and not readable
		_, _ = f.Read(make([]byte, 1))
		f.Close()
	}
	if _, err := os.Stat(c.workDir()); err != nil {
		return "", nil, fmt.Errorf("working directory: %w", err)
	}
	log := c.opts.LogFile
	if log == "" {
		log = os.DevNull
	}
	output, err = os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return "", nil, fmt.Errorf("log file: %w", err)
	}
	return program, output, nil
}

func (c *command) workDir() string {
	if c.opts.Dir == "" {
		return "/"
	}
	return c.opts.Dir
}

// environ hands down only the harmless part of the daemon's environment: the rest may
// hold secrets, and the daemon's own contract with its service manager.
func (c *command) environ() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for name, v := range c.opts.Env {
		env = append(env, name+"="+v)
	}
	slices.Sort(env[len(env)-len(c.opts.Env):])
	env = append(env, c.env.Environ()...)
	return append(env, dirVariable+c.dir) // of equal names the last one wins
}

// resetOOM takes back the daemon's own protection from the out-of-memory killer, which
// the process has inherited. Raising one's own value needs no privilege.
func (c *command) resetOOM(p process.Process) error {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil || string(own) == "0\n" {
		return err
	}
	path := filepath.Join("/proc", strconv.Itoa(p.PID), "oom_score_adj")
	err = os.WriteFile(path, []byte("0"), 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) || errors.Is(err, unix.ESRCH) {
		return nil // ended already, or has more privileges than the daemon: nothing to protect
	}
	return err
}

// Stop implements resources.Resource. It ends every process of the resource, under
// whatever token, and looks at the whole host once more before it says so.
func (c *command) Stop(ctx context.Context) error {
	unlock, err := lock(ctx, c.dir)
	if err != nil {
		return fmt.Errorf("stop %s: %w", c.opts.Run[0], err)
	}
	defer unlock()
	rec, err := readRecord(c.dir)
	if errors.Is(err, errNoRecord) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", c.opts.Run[0], err)
	}
	begun := time.Now()
	err = process.Ending{
		Find:   func(context.Context) ([]process.Process, error) { return c.members(rec) },
		Signal: c.signal,
		Grace:  c.opts.KillAfter,
		Reap:   c.exits.reap,
	}.End(ctx)
	if err != nil {
		return fmt.Errorf("stop %s after %s: %w", c.opts.Run[0], time.Since(begun).Round(time.Millisecond), err)
	}
	return removeRecord(c.dir)
}
