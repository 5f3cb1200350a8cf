package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/scheduler"
)

// Sighting is what this node knows first-hand of another one.
type Sighting struct {
	// Gossip is SWIM's word: "alive", "dead", "left" or "unknown" (never seen).
	Gossip string
	// GossipBoot is the boot that the node gossips; empty if it is not known.
	GossipBoot string
	// Contact is when this node last had authenticated contact with it, on any link.
	// What cannot be counted as silence (the time before this daemon started, or
	// in which it was stopped itself) is taken off: never older than that.
	Contact time.Time
	// Last is the same, and nothing is taken off for the times in which this node was cut off itself. Zero: it
	// is as Contact.
	Last time.Time
	// Heard says whether Contact was a real receipt.
	Heard bool
}

// heard is what a node said in its last hello.
type heard struct {
	boot    string
	speaks  int
	text    string
	fencing string
	unarmed bool
	at      time.Time
	applied uint64
	relayed bool // by a third node
	// since when the node applies nothing although there is something to apply; zero while
	// it keeps up.
	stuck time.Time
}

// stallTimes is for how many detection times a node may answer without applying anything
// before it counts as failed. A follower's log may lag up to 10 s after a long cut, though the node is well.
const stallTimes = 5

// stallFloor is the least time for the same.
const stallFloor = 15 * time.Second

// StallLimit is for how long a node may answer without making progress.
func StallLimit(detection time.Duration) time.Duration {
	return max(stallTimes*detection, stallFloor)
}

// watch turns sightings into liveness, and logs the turns.
type watch struct {
	cfg Config

	mu   sync.Mutex
	seen map[string]string // the verdict on each node
}

func newWatch(cfg Config) *watch { return &watch{cfg: cfg, seen: map[string]string{}} }

// observe logs how the verdicts turned since the last look, on every node: which of them
// coordinates may be known only later.
func (w *watch) observe(look map[string]Sighting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, node := range slices.Sorted(maps.Keys(look)) {
		s := look[node]
		was, is := w.seen[node], w.verdict(s)
		if was == is {
			continue
		}
		w.seen[node] = is
		silent := time.Since(s.Contact).Round(time.Millisecond)
		switch {
		case is == suspected:
			w.cfg.Log.Warn("node suspected", "node", node, "silent", silent, "gossip", s.Gossip)
		case is == dead:
			w.cfg.Log.Warn("node dead", "node", node, "silent", silent, "gossip", s.Gossip)
		case is == disagreement:
			w.cfg.Log.Warn("gossip disagrees with contact", "node", node, "silent", silent, "gossip", s.Gossip)
		case is == alive && was != "":
			w.cfg.Log.Info("node alive", "node", node)
		}
	}
}

// The verdicts that are logged.
const (
	unseen       = "unseen"
	alive        = "alive"
	suspected    = "suspected"
	dead         = "dead"
	disagreement = "disagreement"
)

// verdict names a node's liveness for the log.
func (w *watch) verdict(s Sighting) string {
	age := time.Since(s.Contact)
	switch {
	case w.gone(s):
		return dead
	case s.Gossip == "dead" && age < w.cfg.DetectionTime/2:
		return disagreement
	case s.Gossip == "unknown" && !s.Heard:
		return unseen
	case age > w.cfg.DetectionTime/4:
		return suspected
	}
	return alive
}

// gone is the coordinator's own agreement: SWIM does not see the node, and neither did this
// node, on any link, for the detection time.
func (w *watch) gone(s Sighting) bool {
	return s.Gossip != "alive" && time.Since(s.Contact) >= w.cfg.DetectionTime
}

// next is when a look is due at the latest: in time for each node whose silence is about to last for
// the detection time. Everything else wakes the coordinator by itself.
func (w *watch) next(look map[string]Sighting) time.Duration {
	wait := w.cfg.DetectionTime / 4
	for _, s := range look {
		if left := w.cfg.DetectionTime - time.Since(s.Contact); left > 0 {
			wait = min(wait, left)
		}
	}
	return wait
}

// liveness judges one node.
func (w *watch) liveness(s Sighting, h heard) scheduler.Liveness {
	age := time.Since(s.Contact)
	l := scheduler.Liveness{Reachable: s.Heard && s.Gossip == "alive" && age < w.cfg.DetectionTime/2}
	greeted := !h.at.IsZero() && time.Since(h.at) < w.cfg.DetectionTime
	switch {
	case !greeted:
		if s.Gossip == "alive" { // what is dead is in no boot
			l.Boot = s.GossipBoot
		}
	case s.GossipBoot == "" || s.GossipBoot == h.boot:
		l.Boot = h.boot
	} // else it just came back: its next hello will tell
	limit := StallLimit(w.cfg.DetectionTime)
	switch {
	case w.gone(s):
		l.Gone = fmt.Sprintf("silent on every link for %s, gossip says %s", age.Round(time.Millisecond), s.Gossip)
	case greeted && !h.stuck.IsZero() && time.Since(h.stuck) > limit:
		l.Gone = fmt.Sprintf("answers, but applied nothing after entry %d for %s", h.applied, time.Since(h.stuck).Round(time.Millisecond))
		l.Reachable = false
	}
	return l
}

// view is what the scheduler gets to see.
func (c *Coordinator) view() scheduler.View {
	look := c.cfg.Look()
	c.watch.observe(look)
	var voters []string
	if c.cfg.Voters != nil {
		voters = c.cfg.Voters()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v := scheduler.View{
		Self:        c.cfg.Self,
		Nodes:       map[string]scheduler.Liveness{c.cfg.Self: {Reachable: true, Boot: c.cfg.Boot}},
		Busy:        map[uint64]bool{},
		Settled:     c.settled,
		FenceAction: c.cfg.FenceAction,
		Policy:      c.cfg.Policy,
		Voters:      voters,
		Since:       c.sinceTick(),
		Minute:      minuteOfDay(time.Now()),
		Unarmed:     c.cfg.Unarmed || c.outdated(c.cfg.State(), c.cfg.Text),
	}
	for node, s := range look {
		v.Nodes[node] = c.watch.liveness(s, c.hellos[node])
	}
	for op := range c.shots {
		v.Busy[op] = true
	}
	if c.leading {
		v.Executors = c.executors(c.cfg.State(), v)
	}
	return v
}

// minuteOfDay is of local time. It moves what runs well at a time that suits people, and decides nothing else.
func minuteOfDay(t time.Time) int { return t.Hour()*60 + t.Minute() }

// View gives what the coordinator observes, for status.
func (c *Coordinator) View() scheduler.View { return c.view() }
