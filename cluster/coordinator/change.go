package coordinator

import (
	"context"

	"github.com/hamgr/hamgr/cluster/scheduler"
	"github.com/hamgr/hamgr/cluster/state"
)

// Change commits an operator's word on a node or a group, and tells what comes of it; a dry run only tells. A command
// that changes nothing is not committed.
func (c *Coordinator) Change(ctx context.Context, cmd state.Command, dry bool) (scheduler.Forecast, error) {
	if !c.cfg.Replicated.IsCoordinator() {
		return scheduler.Forecast{}, ErrNotCoordinator
	}
	f, err := scheduler.Foresee(c.cfg.State(), c.view(), cmd)
	if err != nil || dry || !f.Changed {
		return f, err
	}
	res, err := c.commit(ctx, cmd)
	if err != nil {
		return scheduler.Forecast{}, err
	}
	c.logCommitted(cmd, res, "")
	c.Wake()
	return f, nil
}
