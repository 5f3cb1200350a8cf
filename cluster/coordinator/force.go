package coordinator

import (
	"context"
	"fmt"

	"github.com/hamgr/hamgr/cluster/state"
)

// force commits an operator's word that the majority is gone, before anything else: no token may be given, and nothing
// taken over, by a log that does not say yet what it may have missed. Committed twice it does no harm.
func (c *Coordinator) force(ctx context.Context) error {
	if c.cfg.Forced == nil {
		return nil
	}
	f, err := c.cfg.Forced()
	if err != nil {
		return fmt.Errorf("forced quorum: %w", err)
	}
	if f == nil {
		return nil
	}
	if c.cfg.State().Format() < state.Version { // who would have to know it is gone
		if _, err := c.commit(ctx, state.Command{Upgrade: &state.Upgrade{Version: state.Version}}); err != nil {
			return err
		}
	}
	if _, err := c.commit(ctx, state.Command{Force: f}); err != nil {
		return err
	}
	c.cfg.Log.Warn("quorum was forced", "node", f.Node, "by", f.By, "reason", f.Reason, "token", c.cfg.State().LastToken)
	return c.cfg.ForceDone()
}
