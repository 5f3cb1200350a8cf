package command

import (
	"context"
	"errors"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// Died implements resources.Watcher.
func (c *command) Died(ctx context.Context) error {
	return process.Beside(ctx, func() error { return c.died(ctx) })
}

func (c *command) died(ctx context.Context) error {
	rec, err := readRecord(c.dir)
	if err != nil {
		return err
	}
	if !c.runs() {
		return c.serviceDied(ctx, rec)
	}
	leader, err := c.leader(rec)
	if err != nil {
		return err
	}
	if leader.PID != 0 {
		if err := leader.Wait(ctx); err != nil {
			return err
		}
	}
	c.exits.reap(rec.process())
	return errors.New(c.reason(ctx, rec))
}

// serviceDied waits until no process of the service is left, if it has any. Where there is a monitor, that has the last word.
func (c *command) serviceDied(ctx context.Context, rec record) error {
	for rec.Left != 0 {
		p, err := c.watched(ctx, rec)
		if err != nil {
			return err
		}
		if p.PID != 0 {
			if err := p.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		if len(c.opts.Monitor) == 0 {
			return errors.New("all of its processes have ended")
		}
		state, detail, err := c.Probe(ctx)
		if err == nil && (state == resources.Inactive || state == resources.Failed) {
			return errors.New("all of its processes have ended: " + detail)
		}
		break
	}
	<-ctx.Done()
	return ctx.Err()
}
