package coordinator

import (
	"context"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
)

// configure makes this node's configuration file the cluster's, where the cluster has none yet. After that the log has
// the word: the file of one node, which may be older, changes nothing because that node leads.
func (c *Coordinator) configure(ctx context.Context) error {
	s := c.cfg.State()
	seed := c.cfg.Seed
	if s.Format() < 2 { // the rest is sent after it when all nodes know what to do with it
		seed.Text, seed.TwoNode = "", false
	}
	rest := s.Text == "" && s.Digest == seed.Digest && (seed.Text != "" || seed.TwoNode && !s.TwoNode)
	if s.Digest != "" && !rest {
		return nil
	}
	if _, err := c.commit(ctx, state.Command{Configure: &seed}); err != nil {
		return err
	}
	c.cfg.Log.Info("configuration committed", "cluster", seed.Cluster, "digest", seed.Digest)
	return nil
}

// Configure commits a configuration that was judged before, unless there was another one meanwhile.
func (c *Coordinator) Configure(ctx context.Context, cmd state.Configure) error {
	if !c.cfg.Replicated.IsCoordinator() {
		return ErrNotCoordinator
	}
	if _, err := c.commit(ctx, state.Command{Configure: &cmd}); err != nil {
		return err
	}
	c.cfg.Log.Warn("configuration changed", "cluster", cmd.Cluster, "digest", cmd.Digest, "by", cmd.By)
	c.Wake()
	return nil
}

// upgrade raises the format of the log to what every configured node said lately that it knows. Who is away may be
// older, and would not understand what it missed.
func (c *Coordinator) upgrade(ctx context.Context) error {
	s := c.cfg.State()
	if s.Digest == "" || c.cfg.Speaks <= s.Format() {
		return nil
	}
	all := c.cfg.Speaks
	c.mu.Lock()
	for name := range s.Nodes {
		if h := c.hellos[name]; name == c.cfg.Self {
			continue
		} else if time.Since(h.at) < c.cfg.DetectionTime {
			all = min(all, h.speaks)
		} else {
			all = 0
		}
	}
	c.mu.Unlock()
	if all <= s.Format() {
		return nil
	}
	if _, err := c.commit(ctx, state.Command{Upgrade: &state.Upgrade{Version: all}}); err != nil {
		return err
	}
	c.cfg.Log.Info("log format raised", "from", s.Format(), "to", all, "reason", "every node knows it")
	return nil
}

// RunWith tells, node by node, the digest of the configuration text that each said lately that it runs with.
func (c *Coordinator) RunWith() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	texts := map[string]string{}
	for name, h := range c.hellos {
		if time.Since(h.at) < c.cfg.DetectionTime {
			texts[name] = h.text
		}
	}
	return texts
}
