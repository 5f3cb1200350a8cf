package coordinator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
)

// Hello is what every node tells the coordinator again and again: the boot that it is in, how
// far it applied the log, and what it found active without holding a grant.
type Hello struct {
	Boot    string            `json:"boot"`
	Session string            `json:"session"`           // names this run of the daemon
	Digest  string            `json:"digest"`            // of its configuration file
	Fencing string            `json:"fencing,omitempty"` // digest of what that file says feeds each node
	Unarmed bool              `json:"unarmed,omitempty"` // it works no fence device
	Text    string            `json:"text,omitempty"`    // digest of the configuration text that it runs with
	Speaks  int               `json:"speaks,omitempty"`  // the newest version of the log's format that it knows; 0 is the first
	Applied uint64            `json:"applied"`
	Found   map[string]string `json:"found,omitempty"`
	// Machine is what the host says of its hardware; empty fields are not known.
	Machine state.Machine `json:"machine,omitzero"`
	// Watchdog is what the node claims of its watchdog; nil for none.
	Watchdog *state.WatchdogClaim `json:"watchdog,omitempty"`
	// Ask says that the node trusts nothing that it knew before (it just started, or stood
	// still), and needs an answer that a committed entry stands behind.
	Ask bool `json:"ask,omitempty"`
	// Deaf says that the node's log has failed, so that it never applies anything again, whatever is granted to it.
	Deaf bool `json:"deaf,omitempty"`
	// Line is that of the cluster's history on which the node's log is.
	Line string `json:"line,omitempty"`
	// Echo is the riddle of the last Welcome that had one.
	Echo string `json:"echo,omitempty"`
	// Relayed says that it came through a third node. It is set by the coordinator's side.
	Relayed bool `json:"-"`
}

// speaks is what the node knows of the log's format: the first daemons did not say.
func (h Hello) speaks() int { return max(state.Oldest, h.Speaks) }

// Welcome is the answer: up to which entry the node must have applied the log before it may
// act on it.
type Welcome struct {
	Index uint64 `json:"index"`
	// Riddle, if there is one, is all of the answer: the boot or the daemon is new, and is believed only
	// when its next hello repeats this. A hello that was under way since an earlier one cannot.
	Riddle string `json:"riddle,omitempty"`
	// Text is the cluster's configuration, and Configured its index, for a node that has not applied it yet: where the log
	// comes from a node that its own configuration does not know, it never would.
	Text       string `json:"text,omitempty"`
	Configured uint64 `json:"configured,omitempty"`
}

// claim is what of the greeting the state can keep, in the format to which the cluster keeps.
func (h Hello) claim(s *state.State) *state.WatchdogClaim {
	if s.Format() < 2 {
		return nil
	}
	return h.Watchdog
}

// Hello takes note of a node, and joins it to the cluster if the state does not yet say so. What the node claims of its
// watchdog is committed before it is answered: the node goes by what was answered, and the next coordinator by what was committed. An
// answer to a node that asks is preceded by a committed entry: it proves that this node led
// after the question came.
func (c *Coordinator) Hello(ctx context.Context, from string, h Hello) (Welcome, error) {
	if !c.cfg.Replicated.IsCoordinator() {
		return Welcome{}, ErrNotCoordinator
	}
	if err := c.mayBeTold(from, h); err != nil {
		return Welcome{}, err
	}
	s := c.cfg.State()
	n := s.Nodes[from]
	switch {
	case s.Digest == "":
		return Welcome{}, fmt.Errorf("the cluster has no configuration yet: %w", ErrNotCoordinator)
	case n == nil:
		return Welcome{}, fmt.Errorf("node %q is not in the cluster's configuration: %w", from, state.ErrUnknown)
	case h.speaks() < s.Format():
		return Welcome{}, fmt.Errorf("node %s knows version %d of the log's format, and the cluster keeps to %d: install a newer hamgr on it: %w", from, h.speaks(), s.Format(), state.ErrVersion)
	case slices.Contains(n.Ended, h.Boot):
		return Welcome{}, fmt.Errorf("hello of %s in boot %s: %w", from, h.Boot, state.ErrBootEnded)
	}
	if n.Boot != "" && (n.Boot != h.Boot || n.Session != h.Session) {
		if riddle, err := c.doubt(n, h); err != nil || riddle != "" {
			return Welcome{Riddle: riddle}, err
		}
		c.devices.forgetReader(from)
	}
	c.noteHello(from, h, s.Applied)
	if n.Boot != h.Boot || n.Session != h.Session || !n.Up || h.Machine != (state.Machine{}) && h.Machine.Kept() != n.Machine ||
		!h.claim(s).Same(n.Watchdog) || !maps.Equal(found(s, from), unheld(s, from, h)) {
		join := state.Join{Node: from, Boot: h.Boot, Session: h.Session, Found: h.Found, Machine: h.Machine, Watchdog: h.claim(s)}
		if _, err := c.commit(ctx, state.Command{Join: &join}); err != nil {
			return Welcome{}, err
		}
		if n.Boot != h.Boot || !n.Up {
			c.cfg.Log.Info("node joined", "node", from, "boot", h.Boot)
		}
		c.Wake()
	}
	if !h.Ask {
		return c.welcome(h, c.cfg.State().Applied), nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DetectionTime)
	defer cancel()
	index, err := c.cfg.Replicated.Barrier(ctx)
	if err != nil {
		return Welcome{}, err
	}
	return c.welcome(h, index), nil
}

func (c *Coordinator) welcome(h Hello, index uint64) Welcome {
	w := Welcome{Index: index}
	if s := c.cfg.State(); s.Text != "" && h.Applied < s.Configured.Index {
		w.Text, w.Configured = s.Text, s.Configured.Index
	}
	return w
}

// mayBeTold refuses a node whose log is on another line of the cluster's history: what it runs by a grant of that line it does
// not count as found, so that nobody here would know of it. It is told that it was dismissed, and then says all: who has applied
// nothing knows of no grant. And where quorum was forced, nobody is taken in, or told to go by the log, before the log says so.
func (c *Coordinator) mayBeTold(from string, h Hello) error {
	if c.cfg.Line != nil && h.Line != c.cfg.Line() && h.Applied > 0 {
		return fmt.Errorf("hello of %s, whose log is on another line of the cluster's history: %w", from, state.ErrConflict)
	}
	if c.cfg.Forced == nil {
		return nil
	}
	if f, err := c.cfg.Forced(); err != nil || f != nil {
		return fmt.Errorf("that quorum was forced is not in the log yet: %w", errors.Join(ErrNotCoordinator, err))
	}
	return nil
}

// doubtTimes is for how many detection times a boot must have been silent before another one of the
// same node is believed. Hellos come twice in a detection time, through a third node about once.
const doubtTimes = 2

// doubt is what a hello of a new boot or a new daemon has to get past. A new boot ends the one before by
// proof (c), and a new daemon silences the one before: so it must have been made after it was asked
// for. And the old boot must have fallen silent, if it was not proven over: two boots that
// both speak are two hosts with one name.
func (c *Coordinator) doubt(n *state.Node, h Hello) (riddle string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.Boot != h.Boot && n.Up {
		spoke := c.began // it may have spoken to the coordinator before this one until then
		if last := c.hellos[n.Name]; last.boot == n.Boot {
			spoke = last.at
		}
		if silent := time.Since(spoke); silent < doubtTimes*c.cfg.DetectionTime {
			return "", fmt.Errorf("hello of %s in boot %s: boot %s is silent for only %s: %w", n.Name, h.Boot, n.Boot, silent.Round(time.Millisecond), state.ErrConflict)
		}
	}
	if want := c.riddles[n.Name]; want == "" || want != h.Echo {
		c.riddles[n.Name] = rand.Text()
		return c.riddles[n.Name], nil
	}
	delete(c.riddles, n.Name)
	return "", nil
}

// noteHello remembers what a node said, and since when it stands still.
func (c *Coordinator) noteHello(from string, h Hello, applied uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.hellos[from]
	now := heard{boot: h.Boot, speaks: h.speaks(), text: h.Text, fencing: h.Fencing, unarmed: h.Unarmed, at: time.Now(), applied: h.Applied, relayed: h.Relayed, stuck: was.stuck}
	switch {
	case h.Relayed && !h.Deaf: // the link between this node and that one is cut, and the log with it
		now.stuck = time.Time{}
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
		m[name] = state.Kept(d)
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
	case cmd.Away != nil:
		log.Info("daemon restarts", "node", from, "for_ms", cmd.Away.For, "reason", cmd.Away.Reason)
	case cmd.Leaving != nil:
		log.Info("node is being stopped", "node", from)
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
	case cmd.Away != nil:
		who, only.Away = cmd.Away.Node, cmd.Away
	case cmd.Leaving != nil:
		who, only.Leaving = cmd.Leaving.Node, cmd.Leaving
	}
	if who != from || cmd != only {
		return fmt.Errorf("report of %s: %w", from, ErrForeign)
	}
	return nil
}

// OtherFencing gives the nodes whose configuration files say otherwise than this node's what feeds each node. None of
// them should prove anything off.
func (c *Coordinator) OtherFencing() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var others []string
	for _, name := range slices.Sorted(maps.Keys(c.hellos)) {
		if h := c.hellos[name]; h.fencing != "" && h.fencing != c.cfg.Fencing && time.Since(h.at) < c.cfg.DetectionTime {
			others = append(others, name)
		}
	}
	return others
}

// AppliedBy is how far a node said that it applied the log; 0 if it said nothing to this node.
func (c *Coordinator) AppliedBy(node string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hellos[node].applied
}
