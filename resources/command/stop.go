package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/notes"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// Stop implements resources.Resource. It ends every process of the resource, under
// whatever token, and looks at the whole host once more before it says so.
func (c *command) Stop(ctx context.Context) error {
	held, err := notes.Lock(ctx, c.dir)
	if err != nil {
		return fmt.Errorf("stop %s: %w", c.opts.name(), err)
	}
	begun := time.Now()
	err = process.Beside(ctx, func() error {
		defer held.Close()
		return c.stop(ctx)
	})
	if err != nil {
		return fmt.Errorf("stop %s after %s: %w", c.opts.name(), time.Since(begun).Round(time.Millisecond), err)
	}
	return nil
}

func (c *command) stop(ctx context.Context) error {
	rec, err := readRecord(c.dir)
	if errors.Is(err, errNoRecord) {
		state, _, err := c.probe(ctx)
		if err != nil || state == resources.Inactive {
			return err
		}
		rec = record{Boot: c.env.Boot, Done: true} // somebody else has started it
	} else if err != nil {
		return err
	}
	if err := c.callOff(); err != nil {
		return err
	}
	rec.Ending = true
	if err := writeRecord(c.dir, rec); err != nil { // a full disk keeps nobody from stopping
		c.env.Log.Warn("that it is being stopped cannot be recorded", "op", "stop", "err", err)
	}
	if c.runs() {
		err = c.end(ctx, rec, nil)
	} else {
		err = c.stopService(ctx, rec)
	}
	if err != nil {
		return err
	}
	return removeRecord(c.dir)
}

// stopService has the command stop what start has started, and then ends what it has left. What was started by halves is ended before,
// too: a start and a stop that work at the same time might leave anything.
func (c *command) stopService(ctx context.Context, rec record) error {
	if rec.Boot != c.env.Boot && rec.Boot != "" && len(c.opts.Monitor) == 0 {
		return c.end(ctx, rec, nil) // all that was started died with its kernel
	}
	if !rec.Done {
		if err := c.end(ctx, rec, nil); err != nil {
			return err
		}
	}
	// Those that are there now are waited for by their numbers: while they end they bear no mark.
	known, err := c.members(ctx, rec)
	if err != nil {
		return err
	}
	ordered := c.orderStop(ctx)
	if err := c.end(ctx, rec, known); err != nil {
		return errors.Join(err, ordered)
	}
	if len(c.opts.Monitor) == 0 {
		return ordered
	}
	state, detail, err := c.monitor(ctx)
	if err == nil && state != resources.Inactive {
		err = fmt.Errorf("monitor says that it is %s: %s", state, detail)
	}
	if err != nil {
		return errors.Join(err, ordered)
	}
	if ordered != nil {
		c.env.Log.Warn("monitor says that the service is inactive, though its stop has failed", "op", "stop", "err", ordered)
	}
	return nil
}

func (c *command) orderStop(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok { // the killing needs some of it, and the monitor
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)*3/4)
		defer cancel()
	}
	end, err := c.act(ctx, c.opts.Stop)
	if err == nil && end.status != 0 {
		err = errors.New(end.words)
	}
	return err
}

// end leaves no process of the resource, and no unit. known are some that were seen before.
func (c *command) end(ctx context.Context, rec record, known []process.Process) error {
	k := c.kin(rec)
	err := process.Ending{
		Find:    k.find,
		Known:   known,
		Signal:  c.signal,
		Grace:   c.opts.KillAfter,
		KillAll: k.killGroup,
		Reap:    c.exits.reap,
	}.End(ctx)
	if err != nil || rec.Unit == "" || rec.Boot != c.env.Boot {
		return err
	}
	err = c.endUnit(ctx, rec.Unit)
	if err != nil && rec.Done && ctx.Err() == nil {
		// What was started has been seen, and all of it is gone; the permission to start more is gone, too.
		c.env.Log.Warn("all processes have ended, but systemd does not say so", "op", "stop", "err", err)
		return nil
	}
	return err
}
