package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
)

// Hello is what every node tells the coordinator again and again: the boot that it is in, how
// far it applied the log, and what it found active without holding a grant.
type Hello struct {
	Boot    string            `json:"boot"`
	Session string            `json:"session"` // names this run of the daemon
	Applied uint64            `json:"applied"`
	Found   map[string]string `json:"found,omitempty"`
	// Ask says that the node trusts nothing that it knew before (it just started, or stood
	// still), and needs an answer that a committed entry stands behind.
	Ask bool `json:"ask,omitempty"`
}

// Welcome is the answer: up to which entry the node must have applied the log before it may
// act on it.
type Welcome struct {
	Index uint64 `json:"index"`
}

// Hello takes note of a node, and joins it to the cluster if the state does not yet say so. An
// answer to a node that asks is preceded by a committed entry: it proves that this node led
// after the question came.
func (c *Coordinator) Hello(ctx context.Context, from string, h Hello) (Welcome, error) {
	if !c.cfg.Replicated.IsCoordinator() {
		return Welcome{}, ErrNotCoordinator
	}
	s := c.cfg.State()
	c.noteHello(from, h, s.Applied)
	n := s.Nodes[from]
	if n == nil && s.Digest == "" {
		return Welcome{}, fmt.Errorf("the cluster has no configuration yet: %w", ErrNotCoordinator)
	}
	if n == nil || n.Boot != h.Boot || n.Session != h.Session || !n.Up || !maps.Equal(found(s, from), unheld(s, from, h)) {
		if _, err := c.commit(ctx, state.Command{Join: &state.Join{Node: from, Boot: h.Boot, Session: h.Session, Found: h.Found}}); err != nil {
			return Welcome{}, err
		}
		if n == nil || n.Boot != h.Boot || !n.Up {
			c.cfg.Log.Info("node joined", "node", from, "boot", h.Boot)
		}
		c.Wake()
	}
	if !h.Ask {
		return Welcome{Index: c.cfg.State().Applied}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DetectionTime)
	defer cancel()
	index, err := c.cfg.Replicated.Barrier(ctx)
	if err != nil {
		return Welcome{}, err
	}
	return Welcome{Index: index}, nil
}

// noteHello remembers what a node said, and since when it stands still.
func (c *Coordinator) noteHello(from string, h Hello, applied uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.hellos[from]
	now := heard{boot: h.Boot, at: time.Now(), applied: h.Applied, stuck: was.stuck}
	switch {
	case was.boot != h.Boot || h.Applied > was.applied || h.Applied >= applied:
		now.stuck = time.Time{}
	case was.stuck.IsZero():
		now.stuck = now.at
	}
	c.hellos[from] = now
	if was.boot != h.Boot {
		c.Wake()
	}
}

// found is what the state says of things found on the node.
func found(s *state.State, node string) map[string]string {
	m := map[string]string{}
	for name, g := range s.Groups {
		if d, ok := g.Found[node]; ok {
			m[name] = d
		}
	}
	return m
}

// unheld is what of a hello the state would note: groups that exist and that this boot was not
// granted.
func unheld(s *state.State, node string, h Hello) map[string]string {
	m := map[string]string{}
	for name, d := range h.Found {
		g := s.Groups[name]
		if g == nil || g.Grant != nil && g.Grant.Node == node && g.Grant.Boot == h.Boot {
			continue
		}
		m[name] = d
	}
	return m
}

// ErrForeign: a node spoke for another one.
var ErrForeign = errors.New("a node speaks only for itself")

// Report commits what a node says of its own grants.
func (c *Coordinator) Report(ctx context.Context, from string, cmd state.Command) error {
	if !c.cfg.Replicated.IsCoordinator() {
		return ErrNotCoordinator
	}
	if err := speaksForItself(from, cmd); err != nil {
		return err
	}
	if _, err := c.commit(ctx, cmd); err != nil {
		return err
	}
	log := c.cfg.Log
	switch {
	case cmd.Started != nil:
		log.Info("group started", "group", cmd.Started.Group, "node", from, "token", cmd.Started.Token)
	case cmd.Stopped != nil:
		log.Info("group stopped", "group", cmd.Stopped.Group, "node", from, "token", cmd.Stopped.Token)
	case cmd.Failed != nil:
		log.Warn("group failed", "group", cmd.Failed.Group, "node", from, "token", cmd.Failed.Token, "resource", cmd.Failed.Resource, "err", cmd.Failed.Error)
	case cmd.StopFailed != nil:
		log.Error("group does not stop", "group", cmd.StopFailed.Group, "node", from, "token", cmd.StopFailed.Token, "resource", cmd.StopFailed.Resource, "err", cmd.StopFailed.Error)
	case cmd.Leave != nil:
		log.Info("node left", "node", from, "boot", cmd.Leave.Boot)
	}
	c.Wake()
	return nil
}

// speaksForItself allows a node the reports about itself and nothing else.
func speaksForItself(from string, cmd state.Command) error {
	var who string
	only := state.Command{Version: cmd.Version, At: cmd.At}
	switch {
	case cmd.Started != nil:
		who, only.Started = cmd.Started.Node, cmd.Started
	case cmd.Stopped != nil:
		who, only.Stopped = cmd.Stopped.Node, cmd.Stopped
	case cmd.Failed != nil:
		who, only.Failed = cmd.Failed.Node, cmd.Failed
	case cmd.StopFailed != nil:
		who, only.StopFailed = cmd.StopFailed.Node, cmd.StopFailed
	case cmd.Leave != nil:
		who, only.Leave = cmd.Leave.Node, cmd.Leave
	}
	if who != from || cmd != only {
		return fmt.Errorf("report of %s: %w", from, ErrForeign)
	}
	return nil
}

// AppliedBy is how far a node said that it applied the log; 0 if it said nothing to this node.
func (c *Coordinator) AppliedBy(node string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hellos[node].applied
}
