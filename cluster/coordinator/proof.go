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
	d, off := c.cfg.DetectionTime, proof.OffSince()
	at, ever, quiet := c.heard(o)
	if ever && off.Sub(at) < d {
		if !pause(ctx, time.Until(off.Add(quiet))) {
			return ctx.Err()
		}
		at, ever, _ = c.heard(o)
	}
	if !ever || !at.After(off) {
		return nil
	}
	return fmt.Errorf("%w: %s says off, but %s was heard %s after that", errConflict,
		proof.Plugs[0].Device, o.Node, at.Sub(off).Round(time.Millisecond))
}

var errConflict = errors.New("device and node contradict each other")

// heard is when the operation's target last spoke to this node, if ever, and how long it may be silent while
// it is alive: packets come all the time, but greetings through third nodes about once in a detection time.
func (c *Coordinator) heard(o state.Operation) (at time.Time, ever bool, quiet time.Duration) {
	d := c.cfg.DetectionTime
	s := c.cfg.Look()[o.Node]
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hellos[o.Node]; h.relayed && h.boot == o.Boot && h.at.After(s.Contact) {
		return h.at, true, d + d/2
	}
	return s.Contact, s.Heard, d / 2
}
