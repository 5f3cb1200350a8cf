package coordinator

import (
	"context"
	"fmt"

	"github.com/hamgr/hamgr/cluster/state"
)

// shotBefore commits the order against the node that this one fenced by the two-node rule, when there was no quorum to order it.
func (c *Coordinator) shotBefore(ctx context.Context) error {
	if c.cfg.Shot == nil {
		return nil
	}
	o, err := c.cfg.Shot()
	if err != nil {
		return fmt.Errorf("the shot of the two-node rule: %w", err)
	}
	if o == nil {
		return nil
	}
	if n := c.cfg.State().Nodes[o.Node]; n != nil && n.Up && n.Boot == o.Boot && n.Op == 0 {
		o.Action = c.cfg.FenceAction
		res, err := c.commit(ctx, state.Command{Order: o})
		if err != nil && !refused(res) {
			return err
		}
		if err == nil {
			c.logCommitted(state.Command{Order: o}, res, o.Reason)
		}
	}
	return c.cfg.ShotDone()
}
