package coordinator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
	"github.com/hamgr/hamgr/stonith/watchdog"
)

// expired judges whether the operation's target must have been reset by its own watchdog (proof (e)): by what the node
// claimed last, as it is committed, and by a silence that this node measured itself, in this term.
func (c *Coordinator) expired(o state.Operation) watchdog.Verdict {
	never := func(why string) watchdog.Verdict {
		return watchdog.Verdict{Never: why, Why: "the watchdog proves nothing: " + why}
	}
	expiry := time.Duration(0)
	if c.cfg.Watchdog != nil {
		expiry = c.cfg.Watchdog(o.Node)
	}
	s := c.cfg.State()
	n := s.Nodes[o.Node]
	switch {
	case expiry <= 0:
		return never("it is none of the node's fencing levels")
	case c.outdated(s, c.cfg.Text):
		return never("this coordinator does not run with the cluster's configuration")
	case s.TwoNode:
		return never("of two nodes the one that is left must see for itself that the other is off")
	case n == nil || n.Boot != o.Boot:
		return never("the node is in another boot")
	}
	return watchdog.Decide(watchdog.Case{Boot: o.Boot, Claim: claimOf(n), Silent: c.silent(o.Node), Expiry: expiry})
}

// claimOf gives what the node told of its watchdog in its present boot.
func claimOf(n *state.Node) *watchdog.Claim {
	if n.Watchdog == nil {
		return nil
	}
	return &watchdog.Claim{
		Boot: n.Boot, Armed: n.Watchdog.Armed, Tested: n.Watchdog.Tested, Why: n.Watchdog.Why,
		Expiry: time.Duration(n.Watchdog.ExpiryMS) * time.Millisecond,
	}
}

// silent is for how long nothing of a node came here, on any link or through a third node. What came before this term
// went to another coordinator, which may have answered; and one that gossip says is alive is heard by others.
func (c *Coordinator) silent(node string) time.Duration {
	sight, known := c.cfg.Look()[node]
	c.mu.Lock()
	defer c.mu.Unlock()
	if !known || !c.leading || sight.Gossip == "alive" {
		return 0
	}
	last := c.began
	for _, at := range []time.Time{sight.Contact, c.hellos[node].at} {
		if at.After(last) {
			last = at
		}
	}
	return time.Since(last)
}

// rest is the pause after a failed attempt, in which no command is under way. It ends early when the target's watchdog
// proves what its devices did not.
func (c *Coordinator) rest(ctx context.Context, o state.Operation) {
	attempt := stonith.Budget(c.cfg.Levels(o.Node)) // what another one may take: none is begun that could end too late
	for end := time.Now().Add(retryPause(o.Failures)); ; {
		v := c.expired(o)
		if v.Proven && c.proveExpired(ctx, o) {
			return
		}
		over := time.Now().After(end) && (v.Wait <= 0 || v.Wait >= attempt)
		if over || !pause(ctx, c.cfg.DetectionTime/8) {
			return
		}
	}
}

// proveExpired looks once more, and commits the proof.
func (c *Coordinator) proveExpired(ctx context.Context, o state.Operation) bool {
	// If this process stood still, what came meanwhile waits in the sockets, and that it did is noticed within that time.
	if !pause(ctx, c.cfg.DetectionTime/2) || c.barrier(ctx) != nil {
		return false
	}
	if by := c.heardBy(ctx, o.Node); len(by) > 0 {
		c.cfg.Log.Error("the watchdog should have reset the node, which is still heard", "node", o.Node, "boot", o.Boot, "op", o.ID, "by", strings.Join(by, ", "))
		return false
	}
	v := c.expired(o)
	if !v.Proven {
		return false
	}
	now := c.cfg.State().Operations[o.ID]
	if now == nil || !now.CutsPower() {
		return false
	}
	proof := state.ShotProven{Op: o.ID, Executor: now.Executor, Kind: state.Watchdog, Evidence: []string{v.Why, c.figures(o)}}
	if _, err := c.commit(ctx, state.Command{ShotProven: &proof}); err != nil {
		c.cfg.Log.Warn("the watchdog's proof is not committed", "node", o.Node, "op", o.ID, "err", err)
		return false
	}
	c.cfg.Log.Warn("node's watchdog has expired; nothing was read off", "node", o.Node, "boot", o.Boot, "op", o.ID, "reason", v.Why)
	return true
}

// figures tells all that the proof rests on.
func (c *Coordinator) figures(o state.Operation) string {
	claim := time.Duration(0)
	if n := c.cfg.State().Nodes[o.Node]; n != nil && n.Watchdog != nil {
		claim = time.Duration(n.Watchdog.ExpiryMS) * time.Millisecond
	}
	c.mu.Lock()
	led := time.Since(c.began)
	c.mu.Unlock()
	return fmt.Sprintf("armed and tested, reset for certain after %s by its own word, %s by the configuration; measured by %s, which leads for %s; nothing was read off",
		claim, c.cfg.Watchdog(o.Node), c.cfg.Self, led.Round(time.Millisecond))
}

// withWatchdog completes the error of an attempt with what the watchdog says meanwhile.
func (c *Coordinator) withWatchdog(o state.Operation, text string) string {
	if c.cfg.Watchdog == nil || c.cfg.Watchdog(o.Node) <= 0 || !o.CutsPower() {
		return text
	}
	return text + "; " + c.expired(o).Why
}

// Awaits says what is waited for where an operation waits for its target's watchdog; empty if it does not.
func (c *Coordinator) Awaits(o state.Operation) string {
	if !o.CutsPower() || o.Failures == 0 {
		return ""
	}
	v := c.expired(o)
	if v.Wait <= 0 {
		return ""
	}
	return fmt.Sprintf("its watchdog, for another %s: %s", v.Wait.Round(time.Second), v.Why)
}

// heardBy lists the other nodes that heard a node lately.
func (c *Coordinator) heardBy(ctx context.Context, node string) []string {
	var (
		mu sync.Mutex
		by []string
	)
	c.askContacts(ctx, node, func(reader string, age time.Duration, ever bool, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil && ever && age < aliveTimes*c.cfg.DetectionTime {
			by = append(by, fmt.Sprintf("%s, %s ago", reader, age.Round(time.Millisecond)))
		}
	})
	return by
}

// askContacts asks every other node at once when it heard a node last.
func (c *Coordinator) askContacts(ctx context.Context, node string, say func(reader string, age time.Duration, ever bool, err error)) {
	var wg sync.WaitGroup
	for _, reader := range c.readers(node) {
		if reader == c.cfg.Self {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, c.cfg.DetectionTime)
			defer cancel()
			age, ever, err := c.cfg.Elsewhere.Contact(ctx, reader, node)
			say(reader, age, ever, err)
		})
	}
	wg.Wait()
}
