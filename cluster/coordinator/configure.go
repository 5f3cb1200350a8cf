package coordinator

import (
	"context"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
)

// configure makes this node's configuration file the cluster's: where the cluster has none yet, or
// where all nodes that are in it run with the same new one. The file of one node alone, which may be
// older than the cluster's, never stops a group because that node leads.
func (c *Coordinator) configure(ctx context.Context) error {
	s := c.cfg.State()
	if s.Digest == c.cfg.Seed.Digest || s.Digest != "" && !c.agreed(s) {
		return nil
	}
	seed := c.cfg.Seed
	res, err := c.commit(ctx, state.Command{Configure: &seed})
	if refused(res) {
		c.mu.Lock()
		c.refusedFile = true
		c.mu.Unlock()
		c.cfg.Log.Error("configuration refused", "err", err)
		return nil
	}
	if err == nil {
		c.cfg.Log.Info("configuration committed", "cluster", seed.Cluster, "digest", seed.Digest)
	}
	return err
}

// agreed reports whether every node that is in the cluster, and a majority of all, said lately that it runs with
// the same file as this one. Which nodes there are cannot be changed in this way: it is for the voters'
// configuration to change first.
func (c *Coordinator) agreed(s *state.State) bool {
	if !sameNodes(s, c.cfg.Seed) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusedFile {
		return false
	}
	agree := 0
	for name, n := range s.Nodes {
		h := c.hellos[name]
		same := h.digest == c.cfg.Seed.Digest && time.Since(h.at) < c.cfg.DetectionTime
		switch {
		case name == c.cfg.Self || same:
			agree++
		case n.Up:
			return false
		}
	}
	return agree > len(s.Nodes)/2
}

func sameNodes(s *state.State, seed state.Configure) bool {
	if len(seed.Nodes) != len(s.Nodes) {
		return false
	}
	for _, n := range seed.Nodes {
		if known := s.Nodes[n.Name]; known == nil || known.Role != n.Role {
			return false
		}
	}
	return true
}
