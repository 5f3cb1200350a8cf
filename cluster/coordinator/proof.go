package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// covers refuses a proof that does not speak of every feed of one level, as this node's file has them: an
// executor that runs with another file may know fewer.
func covers(levels [][]stonith.Device, o state.Operation, proof stonith.Proof) error {
	if proof.Level < 1 || proof.Level > len(levels) || o.Level != 0 && o.Level != proof.Level {
		return fmt.Errorf("%s proved level %d of %s, which was not asked for: %w", o.Executor, proof.Level, o.Node, errFeeds)
	}
	read := map[feed]bool{}
	for _, p := range proof.Plugs {
		read[feed{p.Device, p.Plug}] = true
	}
	feeds := feedsOf(levels[proof.Level-1 : proof.Level])
	for _, f := range feeds {
		if !read[f] {
			return fmt.Errorf("%s did not read %s, which feeds %s: %w", o.Executor, f, o.Node, errFeeds)
		}
	}
	if len(feeds) == 0 {
		return fmt.Errorf("level %d of %s has no feed: %w", proof.Level, o.Node, errFeeds)
	}
	return nil
}

var errFeeds = errors.New("no proof of every feed: is its configuration file the same?")

// contradicted refuses a proof against a node that is heard after its power was first read off, be it through a third
// node: the device speaks of another machine, or lies. Of a node that was silent before, that is
// seen at once; one that was just heard has to stay silent for a while.
func (c *Coordinator) contradicted(ctx context.Context, o state.Operation, proof stonith.Proof) error {
	off := proof.OffSince()
	if !pause(ctx, time.Until(off.Add(c.quiet(o, off)))) {
		return ctx.Err()
	}
	at := c.heard(o)
	if !at.After(off) {
		return nil
	}
	return fmt.Errorf("%w: %s says off, but %s was heard %s after that", errConflict,
		proof.Plugs[0].Device, o.Node, at.Sub(off).Round(time.Millisecond))
}

var errConflict = errors.New("device and node contradict each other")

// quiet is for how long the operation's target has to be silent from then on. Packets come all the time, but greetings
// through third nodes about once in a detection time. That those hear it is what gossip says of one that this node does
// not hear.
func (c *Coordinator) quiet(o state.Operation, off time.Time) time.Duration {
	d := c.cfg.DetectionTime
	s := c.cfg.Look()[o.Node]
	switch {
	case s.Gossip == "alive" && off.Sub(s.Contact) >= d/2, off.Sub(c.relayed(o)) < d+d/2:
		return d + d/2
	case s.Heard && off.Sub(s.Contact) < d:
		return d / 2
	}
	return 0
}

// heard is when the operation's target last spoke to this node, itself or through a third one; zero if never.
func (c *Coordinator) heard(o state.Operation) time.Time {
	at := c.relayed(o)
	s := c.cfg.Look()[o.Node]
	if s.Last.IsZero() {
		s.Last = s.Contact
	}
	if s.Heard && s.Last.After(at) {
		at = s.Last
	}
	return at
}

// relayed is when the target last greeted this node through a third one, if it did not greet directly since.
func (c *Coordinator) relayed(o state.Operation) (at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hellos[o.Node]; h.relayed && h.boot == o.Boot {
		at = h.at
	}
	return at
}
