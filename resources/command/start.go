package command

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/notes"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// Start implements resources.Resource. With run it returns as soon as the program was
// executed (an unknown program is an error here), or ReadyAfter later; with start, when that has ended with status 0 and
// monitor, if there is one, says that the service is active.
func (c *command) Start(ctx context.Context) error {
	held, err := notes.Lock(ctx, c.dir)
	if err != nil {
		return fmt.Errorf("start %s: %w", c.opts.name(), err)
	}
	// A hanging file system can hold the launch for ever. It keeps the lock then,
	// so that no later Stop takes the resource for inactive.
	err = process.Beside(ctx, func() error {
		defer held.Close()
		return c.start(ctx)
	})
	if err == nil {
		err = c.ready(ctx)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", c.opts.name(), err)
	}
	return nil
}

// start is called with the lock held.
func (c *command) start(ctx context.Context) error {
	state, detail, err := c.probe(ctx)
	switch {
	case err != nil:
		return err
	case state == resources.Active:
		return nil
	case state != resources.Inactive:
		return fmt.Errorf("%s; it must be stopped first", detail)
	}
	if err := c.launch(ctx); err != nil {
		return err
	}
	if len(c.opts.Monitor) == 0 {
		return nil
	}
	state, detail, err = c.probe(ctx)
	if err == nil && state != resources.Active {
		err = fmt.Errorf("start ended with status 0, but monitor says that the service is %s: %s", state, detail)
	}
	return err
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

// launch starts run, or carries start out. What it leaves behind on an error is found by Stop.
func (c *command) launch(ctx context.Context) error {
	argv := c.opts.Run
	if !c.runs() {
		argv = c.opts.Start
	}
	p, err := c.prepare(ctx, argv, dirVariable)
	if err != nil {
		return err
	}
	output, err := c.openLog()
	if err != nil {
		return err
	}
	defer output.Close()
	m := c.systemd(ctx)
	if m != nil {
		defer m.Close()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	rec := record{Boot: c.env.Boot, Token: c.env.Token}
	if m != nil {
		rec.Unit = c.unitName()
	}
	if err := writeRecord(c.dir, rec); err != nil {
		return err
	}
	if m != nil {
		return c.launchUnit(ctx, m, p, rec)
	}
	return c.launchFork(ctx, p, output, rec)
}

// launchFork makes the program a child of the daemon. It may outlive every wait of ours, so it is reaped by exits.
func (c *command) launchFork(ctx context.Context, p prepared, output *os.File, rec record) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	child, leader, err := c.fork(ctx, p, null, output)
	if child != nil {
		defer func() { _ = child.Release() }()
	}
	if child == nil && err != nil {
		return errors.Join(err, removeRecord(c.dir)) // there is nothing
	}
	if err != nil {
		return err
	}
	rec.PID, rec.Start = leader.PID, leader.Start
	late := ctx.Err()
	rec.Done = c.runs() && late == nil
	if err := errors.Join(writeRecord(c.dir, rec), late); err != nil {
		// Nobody waits for it any more, or nobody could find it: it must not go on.
		return errors.Join(err, leader.Signal(unix.SIGKILL))
	}
	if c.runs() {
		return nil
	}
	if err := leader.Wait(ctx); err != nil {
		return errors.Join(fmt.Errorf("it did not end in time, and is killed: %w", err), leader.Signal(unix.SIGKILL))
	}
	c.exits.reap(leader)
	if !c.exits.succeeded(leader) {
		return fmt.Errorf("%s%s", c.exits.reason(leader), c.seeLog(rec))
	}
	return c.started(ctx, rec)
}

// started records that start has done its work, and what it has left.
func (c *command) started(ctx context.Context, rec record) error {
	rec.Done = true
	left, err := c.members(ctx, rec)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		rec.Left, rec.LeftStart = left[0].PID, left[0].Start
	}
	return writeRecord(c.dir, rec)
}

// runs reports whether the resource is one process that runs, and not what commands start and stop.
func (c *command) runs() bool { return len(c.opts.Run) > 0 }

// seeLog says where more is written, if anywhere.
func (c *command) seeLog(rec record) string {
	switch {
	case c.opts.LogFile != "":
		return "; see " + c.opts.LogFile
	case rec.Unit != "":
		return "; see journalctl -u " + rec.Unit
	}
	return "; set log_file to see its output"
}
