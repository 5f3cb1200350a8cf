package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith/watchdog"
)

// dog joins the host's watchdog with what this node holds, and with whom it hears.
type dog struct {
	*watchdog.Guard
	n *Node

	mu      sync.Mutex
	claimed state.WatchdogClaim // the last one that was made
	stopped map[string]bool     // what is proven stopped, and not released yet
}

// startDog takes over what an earlier daemon of this boot left armed, and what it started.
func (n *Node) startDog(ctx context.Context) error {
	conf, _ := n.Config.Node(n.Self)
	if err := os.MkdirAll(n.RunDir, 0o700); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	guard, err := watchdog.Start(ctx, watchdog.Options{
		Path: cmp.Or(conf.Watchdog, watchdog.Off), Timing: WatchdogTiming(n.Config),
		Dir: n.RunDir, DataDir: n.DataDir, Boot: n.Boot,
		Held: n.heldBefore(), LetsGo: letsGo(n.Config), Alive: n.progress.alive,
		Log: n.Log, Open: n.Watchdog, Now: n.uptime,
	})
	if err != nil {
		return err
	}
	n.dog = &dog{Guard: guard, n: n, stopped: map[string]bool{}}
	return nil
}

// letsGo reports whether a node that hears no coordinator stops what it holds, wherever others could take over.
func letsGo(c *config.Config) bool { return c.Cluster.OnQuorumLoss == "stop" && !c.Cluster.TwoNode }

// WatchdogTiming gives the times of every node's watchdog.
func WatchdogTiming(c *config.Config) watchdog.Timing {
	return watchdog.Derive(c.Cluster.DetectionTime, slowestStop(c))
}

// slowestStop is the longest that any group may take to stop. A stop waits for a start that is under way.
func slowestStop(c *config.Config) time.Duration {
	var slowest time.Duration
	for _, g := range c.Groups {
		var stops, start time.Duration
		for _, r := range g.Resources {
			stops += r.StopTimeout
			start = max(start, r.StartTimeout)
		}
		slowest = max(slowest, stops+start+callGrace)
	}
	return slowest
}

// heldName names a group under one grant: the release of an earlier one must not be taken for that of the present one.
func heldName(group string, token uint64) string { return group + " " + strconv.FormatUint(token, 10) }

// heldBefore names what an earlier daemon of this boot started. What cannot be read counts as held, for good.
func (n *Node) heldBefore() []string {
	groups, err := n.recalled()
	var names []string
	if err != nil {
		n.Log.Error("what was started in this boot cannot be listed; the watchdog stays armed", "err", err)
		names = append(names, "what cannot be listed")
	}
	for _, g := range groups {
		switch h, err := n.recall(g); {
		case err != nil:
			names = append(names, g+" under an unknown token")
		case h != nil:
			names = append(names, heldName(g, h.Token))
		}
	}
	return names
}

// hold returns nil once the watchdog guards the group: before that nothing of it may be started.
func (d *dog) hold(ctx context.Context, group string, token uint64) error {
	ctx, cancel := context.WithTimeout(ctx, max(d.n.Config.Cluster.DetectionTime, slowestDriver))
	defer cancel()
	err := d.Hold(ctx, heldName(group, token))
	if err != nil {
		d.release(group, token)
	}
	return err
}

// slowestDriver is for how long a driver is waited for.
const slowestDriver = 5 * time.Second

// release says that all of the group is proven stopped, in the background: a driver that hangs must not keep others from
// being told.
func (d *dog) release(group string, token uint64) {
	name := heldName(group, token)
	d.mu.Lock()
	d.stopped[name] = true
	d.mu.Unlock()
	d.n.spawn(func() { d.releaseNow(d.n.ctx, name) })
}

func (d *dog) releaseNow(ctx context.Context, name string) {
	err := d.Release(ctx, name)
	if ctx.Err() != nil {
		return // it did not come to that, as far as is known
	}
	if err != nil {
		d.n.Log.Error("the watchdog is not disarmed", "held", name, "err", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.stopped, name)
}

// end ends the guard. What still holds the watchdog is left to the next daemon, what was stopped is not: after the last daemon
// nobody would feed.
func (d *dog) end(ctx context.Context) error {
	d.mu.Lock()
	names := slices.Sorted(maps.Keys(d.stopped))
	d.mu.Unlock()
	quick, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, name := range names {
		if d.releaseNow(quick, name); quick.Err() != nil {
			d.n.Log.Error("the watchdog's driver hangs: if no daemon follows, it resets this host, though nothing is held", "held", name)
		}
	}
	return d.Stop(ctx)
}

// claim is what goes with a question to the coordinator; nil where there is no watchdog.
func (d *dog) claim() (*state.WatchdogClaim, watchdog.Mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, mark := d.Ask()
	if d.Path == watchdog.Off || d.Path == watchdog.Fake {
		return nil, mark
	}
	is := state.WatchdogClaim{
		Number: d.claimed.Number, Armed: c.Armed, Tested: c.Tested, Why: state.Kept(c.Why),
		ExpiryMS: (c.Expiry + time.Millisecond - 1).Milliseconds(),
	}
	if is != d.claimed || is.Number == 0 {
		is.Number++
		d.claimed = is
	}
	return &is, mark
}

// leftAlone says why something that runs here would not be stopped if no coordinator were heard; empty if all would. It is
// called with the groups' lock.
func (gs *groups) leftAlone(s *state.State) string {
	if gs.banished != "" {
		return ""
	}
	for name, r := range gs.runners {
		if gs.mustEnd(s, r, "alone") == "" {
			return fmt.Sprintf("group %s is left alone: %s", name, maintained(s, r))
		}
	}
	started, err := gs.n.recalled()
	if err != nil {
		return "" // it was said already
	}
	for _, name := range started {
		if gs.runners[name] != nil {
			continue
		}
		if h, err := gs.n.recall(name); err == nil && h != nil && h.Maintained {
			return fmt.Sprintf("group %s is left alone: it was in maintenance when the last daemon ended", name)
		}
	}
	return ""
}

// progress is when each of the daemon's loops went round last.
type progress struct {
	n *Node

	mu    sync.Mutex
	beats map[string]time.Time
}

// The loops, and for how many detection times a round of each may last.
const (
	loopGroups = "the loop that drives the groups"
	loopGreet  = "the loop that greets the coordinator"

	groupsTimes = 3
	greetTimes  = 6
)

func newProgress(n *Node) *progress {
	p := &progress{n: n, beats: map[string]time.Time{}}
	p.beat(loopGroups)
	p.beat(loopGreet)
	return p
}

func (p *progress) beat(loop string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beats[loop] = time.Now()
}

// over says that a loop has ended, as it should.
func (p *progress) over(loop string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.beats, loop)
}

// alive says why this daemon makes no progress; nil if it does.
func (p *progress) alive(context.Context) error {
	d := p.n.Config.Cluster.DetectionTime
	p.mu.Lock()
	defer p.mu.Unlock()
	for loop, times := range map[string]time.Duration{loopGroups: groupsTimes, loopGreet: greetTimes} {
		if at, runs := p.beats[loop]; runs && time.Since(at) > times*d {
			return fmt.Errorf("%s stands still for %s", loop, time.Since(at).Round(time.Millisecond))
		}
	}
	if busy := p.n.replica.busy(); busy > coordinator.StallLimit(d) {
		return fmt.Errorf("an entry of the log is being applied for %s", busy.Round(time.Millisecond))
	}
	return nil
}

// watchdogExpiry gives after how much silence a node's watchdog must have reset it; 0 where it is none of its fencing levels.
func (n *Node) watchdogExpiry(node string) time.Duration {
	if conf, _ := n.Config.Node(node); conf.WatchdogLevel() == 0 {
		return 0
	}
	return WatchdogTiming(n.Config).Expiry
}
