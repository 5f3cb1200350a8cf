package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/scheduler"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// Observation is how one node last found one plug of a fence device. It says who would shoot
// best; it never forbids a shot.
type Observation struct {
	stonith.Health
	Target string    // the node that the device is to fence
	Reader string    // the node that asked the device
	At     time.Time // when it answered; monotonic
}

// Elsewhere has other nodes do what this one cannot, or should not, do itself.
type Elsewhere interface {
	// Off and On carry out an operation at its executor. OffSince of the proof is this
	// node's time, and never earlier than what it stands for.
	Off(ctx context.Context, o state.Operation, m stonith.Machine) (stonith.Proof, error)
	On(ctx context.Context, o state.Operation, m stonith.Machine) error
	// Check has the reader look at the fence devices of the target.
	Check(ctx context.Context, reader, target string, m stonith.Machine) ([]stonith.Health, error)
	// Contact is how long ago the asked node heard of the other one; false if never.
	Contact(ctx context.Context, asked, node string) (age time.Duration, heard bool, err error)
}

const (
	// givesWay is how long a shot waits for a check of its devices to end: BMCs have few
	// sessions, and a cancelled check gives its own back at once.
	givesWay = 100 * time.Millisecond
	// sideBySide bounds the checks that run at once.
	sideBySide = 8
)

// devices is what is known of the fence devices, and who may talk to them just now: one check at a
// time on each, from whichever node, and none where a shot is under way.
type devices struct {
	mu sync.Mutex
	// Guarded by mu:
	seen    map[plugSeen]Observation
	checks  map[string]*check // by device
	shots   map[string]int    // by device
	changed chan struct{}     // closed, and made anew, when a check or a shot ends
}

type plugSeen struct{ target, reader, device, plug string }

// check is one reading of the devices of one target.
type check struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

func newDevices() *devices {
	return &devices{
		seen: map[plugSeen]Observation{}, checks: map[string]*check{}, shots: map[string]int{},
		changed: make(chan struct{}),
	}
}

var errForShot = errors.New("gave way to a fencing order")

// begin waits until nobody uses the devices, and takes them for a check.
func (d *devices) begin(ctx context.Context, names []string) (context.Context, *check, error) {
	for {
		d.mu.Lock()
		free := !slices.ContainsFunc(names, func(n string) bool { return d.checks[n] != nil || d.shots[n] > 0 })
		if free {
			ctx, cancel := context.WithCancelCause(ctx)
			ch := &check{cancel: cancel, done: make(chan struct{})}
			for _, n := range names {
				d.checks[n] = ch
			}
			d.mu.Unlock()
			return ctx, ch, nil
		}
		wait := d.changed
		d.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-wait:
		}
	}
}

func (d *devices) end(names []string, ch *check) {
	ch.cancel(nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range names {
		delete(d.checks, n)
	}
	close(ch.done)
	d.wake()
}

// wake tells those who wait. Called with mu held.
func (d *devices) wake() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// shoot takes the devices for a shot: checks of them are ended, and none begins until the
// returned func is called.
func (d *devices) shoot(ctx context.Context, names []string) (over func()) {
	d.mu.Lock()
	var ending []*check
	for _, n := range names {
		d.shots[n]++
		if ch := d.checks[n]; ch != nil {
			ch.cancel(errForShot)
			ending = append(ending, ch)
		}
	}
	d.mu.Unlock()
	patience := time.NewTimer(givesWay)
	defer patience.Stop()
	for _, ch := range ending {
		select {
		case <-ch.done:
			continue
		case <-ctx.Done():
		case <-patience.C:
		}
		break
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, n := range names {
			if d.shots[n]--; d.shots[n] == 0 {
				delete(d.shots, n)
			}
		}
		d.wake()
	}
}

// note keeps what a check found. It returns what is news.
func (d *devices) note(target, reader string, found []stonith.Health) (news []Observation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for _, h := range found {
		if h.GaveWay {
			continue
		}
		key := plugSeen{target, reader, h.Device, h.Plug}
		was, known := d.seen[key]
		is := Observation{Health: h, Target: target, Reader: reader, At: now}
		d.seen[key] = is
		if !known && !h.Healthy() || known && was.Trouble != h.Trouble {
			news = append(news, is)
		}
	}
	return news
}

func (d *devices) all() []Observation {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []Observation
	for _, o := range d.seen {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b Observation) int {
		if a.Level != b.Level && a.Target == b.Target {
			return a.Level - b.Level
		}
		return strings.Compare(a.Target+"\x00"+a.Device+"\x00"+a.Plug+"\x00"+a.Reader, b.Target+"\x00"+b.Device+"\x00"+b.Plug+"\x00"+b.Reader)
	})
	return all
}

// forget drops what an earlier term saw: it may be old by now.
func (d *devices) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.seen)
}

// forgetReader drops what a daemon saw that is replaced by a new one, with another file maybe.
func (d *devices) forgetReader(reader string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.seen, func(key plugSeen, _ Observation) bool { return key.reader == reader })
}

// Devices gives what the coordinator knows of the fence devices, sorted by target, level, device, plug
// and reader; nothing where this node does not coordinate.
func (c *Coordinator) Devices() []Observation {
	if !c.cfg.Replicated.IsCoordinator() {
		return nil
	}
	return c.devices.all()
}

// watchDevices has every device read by every node that may have to use it, again and again, until
// the term of office ends.
func (c *Coordinator) watchDevices(ctx context.Context) {
	if c.cfg.HealthInterval <= 0 {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	room := make(chan struct{}, sideBySide)
	for _, node := range c.cfg.Seed.Nodes {
		target := node.Name
		if len(c.cfg.Levels(target)) == 0 {
			continue
		}
		wg.Go(func() {
			// Nodes that start together are to be there when they are asked to read.
			for wait := c.cfg.DetectionTime; pause(ctx, wait); wait = jittered(c.cfg.HealthInterval) {
				for _, reader := range c.readers(target) {
					select {
					case <-ctx.Done():
						return
					case room <- struct{}{}:
					}
					c.checkDevices(ctx, reader, target)
					<-room
				}
			}
		})
	}
}

// jittered is d with a random tenth more or less, so that nodes and devices do not fall into step.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

// readers are the nodes that may have to shoot the target and answer now, this one first.
func (c *Coordinator) readers(target string) []string {
	v := c.view()
	var readers []string
	for _, name := range c.armed(c.cfg.State()) {
		if name != target && v.Nodes[name].Reachable && (name == c.cfg.Self || c.cfg.Elsewhere != nil) {
			readers = append(readers, name)
		}
	}
	slices.SortStableFunc(readers, func(a, b string) int { return isSelf(b, c.cfg.Self) - isSelf(a, c.cfg.Self) })
	return readers
}

// armed are the nodes that work fence devices, by name.
func (c *Coordinator) armed(s *state.State) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(s.NodeNames(), func(name string) bool { return c.unarmed(s, name) })
}

// unarmed reports whether a node works no fence device: it said so, or is a witness and did not say anything yet, or it runs
// with another configuration than the cluster's. By that the devices may feed other nodes by now. Called with mu held.
func (c *Coordinator) unarmed(s *state.State, name string) bool {
	if name == c.cfg.Self {
		return c.cfg.Unarmed || c.outdated(s, c.cfg.Text)
	}
	h := c.hellos[name]
	return c.outdated(s, h.text) || h.unarmed || h.at.IsZero() && s.Nodes[name].Role == state.Witness
}

func (c *Coordinator) outdated(s *state.State, text string) bool {
	return c.cfg.Outdated != nil && c.cfg.Outdated(s, text)
}

// upToDate refuses to have a node switch or read what its configuration may be wrong about.
func (c *Coordinator) upToDate(executor string) error {
	text, s := c.cfg.Text, c.cfg.State()
	if executor != c.cfg.Self {
		c.mu.Lock()
		text = c.hellos[executor].text
		c.mu.Unlock()
	}
	if c.outdated(s, text) {
		return fmt.Errorf("%s does not run with configuration %d, which the cluster goes by: its fence devices may feed other nodes by now", executor, s.Configured.Index)
	}
	return nil
}

func isSelf(name, self string) int {
	if name == self {
		return 1
	}
	return 0
}

// checkDevices has one node read the devices of another, when nobody uses them.
func (c *Coordinator) checkDevices(ctx context.Context, reader, target string) []stonith.Health {
	levels := c.cfg.Levels(target)
	names := deviceNames(levels)
	checking, ch, err := c.devices.begin(ctx, names)
	if err != nil {
		return nil
	}
	defer c.devices.end(names, ch)
	checking, cancel := context.WithTimeout(checking, longest(levels)+c.cfg.DetectionTime)
	defer cancel()
	m := machine(c.cfg.State(), target)
	var found []stonith.Health
	if reader == c.cfg.Self {
		found = c.cfg.Fencer.Check(checking, stonith.Target{Node: target, Levels: levels, Machine: m})
	} else if found, err = c.cfg.Elsewhere.Check(checking, reader, target, m); err != nil {
		if ctx.Err() == nil && !errors.Is(context.Cause(checking), errForShot) {
			c.cfg.Log.Debug("fence devices not read", "node", target, "reader", reader, "err", err)
		}
		return nil
	}
	if checking.Err() != nil {
		return nil
	}
	for _, o := range c.devices.note(target, reader, found) {
		log := c.cfg.Log.With("device", o.Device, "plug", o.Plug, "node", target, "reader", reader)
		if o.Healthy() {
			log.Info("fence device is well again")
		} else {
			log.Warn("fence device in trouble: fencing by it may fail", "trouble", o.Trouble, "err", o.Error)
		}
	}
	return found
}

// TestDevices has the devices of a node (of all, if it is empty) read now by every node that may have
// to use them, and gives what was found.
func (c *Coordinator) TestDevices(ctx context.Context, node string) ([]Observation, error) {
	if !c.cfg.Replicated.IsCoordinator() {
		return nil, ErrNotCoordinator
	}
	began := time.Now()
	var wg sync.WaitGroup
	room := make(chan struct{}, sideBySide)
	for _, target := range c.cfg.State().NodeNames() {
		if node != "" && node != target || len(c.cfg.Levels(target)) == 0 {
			continue
		}
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			for _, reader := range c.readers(target) {
				c.checkDevices(ctx, reader, target)
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("test the fence devices: %w", err)
	}
	return slices.DeleteFunc(c.devices.all(), func(o Observation) bool {
		return o.At.Before(began) || node != "" && o.Target != node
	}), nil
}

// executors gives, for each node that is being fenced, who may do it, best first: those who lately read the devices of
// its first level without trouble, this node before others. Called with mu held.
func (c *Coordinator) executors(s *state.State, v scheduler.View) map[string][]string {
	if c.cfg.Elsewhere == nil {
		return nil
	}
	var seen []Observation
	best := map[string][]string{}
	for _, target := range s.NodeNames() {
		if s.OpenOperation(target) == nil {
			continue
		}
		if seen == nil {
			seen = c.devices.all()
		}
		bad := map[string]int{}
		for _, o := range seen {
			if o.Target == target && !o.Healthy() {
				bad[o.Reader] += 1 << (8 * max(0, 3-o.Level)) // the first level counts most
			}
		}
		var names []string
		for _, name := range s.NodeNames() {
			if name != target && v.Nodes[name].Reachable && !c.unarmed(s, name) {
				names = append(names, name)
			}
		}
		slices.SortStableFunc(names, func(a, b string) int {
			if bad[a] != bad[b] {
				return bad[a] - bad[b]
			}
			return isSelf(b, c.cfg.Self) - isSelf(a, c.cfg.Self)
		})
		best[target] = names
	}
	return best
}

// machine is what the node announced of its hardware.
func machine(s *state.State, node string) stonith.Machine {
	n := s.Nodes[node]
	if n == nil {
		return stonith.Machine{}
	}
	return stonith.Machine{UUID: n.Machine.UUID, Serial: n.Machine.Serial}
}

func deviceNames(levels [][]stonith.Device) []string {
	var names []string
	for _, level := range levels {
		for _, d := range level {
			names = append(names, d.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// longest is the longest time that any of the devices may take.
func longest(levels [][]stonith.Device) time.Duration {
	var most time.Duration
	for _, level := range levels {
		for _, d := range level {
			most = max(most, d.Timeout)
		}
	}
	return most
}
