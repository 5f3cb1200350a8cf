package consensus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/hamgr/hamgr/cluster/link"
)

// tap counts what leaves a node after its store failed, though its link still works.
type tap struct {
	Link
	failed atomic.Bool
	sent   atomic.Int64
}

type tapped struct {
	net.Conn
	tap *tap
}

func (c tapped) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if c.tap.failed.Load() && n > 0 {
		c.tap.sent.Add(int64(n))
	}
	return n, err
}

// Peer is what accepted connections have.
func (c tapped) Peer() string { return c.Conn.(interface{ Peer() string }).Peer() }

type tappedListener struct {
	net.Listener
	tap *tap
}

func (l tappedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tapped{c, l.tap}, nil
}

func (t *tap) Dial(ctx context.Context, node string, p link.Protocol) (net.Conn, error) {
	c, err := t.Link.Dial(ctx, node, p)
	if err != nil {
		return nil, err
	}
	return tapped{c, t}, nil
}

func (t *tap) Listener(p link.Protocol) net.Listener { return tappedListener{t.Link.Listener(p), t} }

// startTapped starts a node whose link stays when its store fails.
func (n *node) startTapped() *tap {
	t := &tap{}
	n.start(func(cfg *Config) {
		t.Link, cfg.Link = cfg.Link, t
		cfg.Fatal = func(err error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.fatal = err
			t.failed.Store(true)
		}
	})
	return t
}

// stuck is a log store of which some calls hang.
type stuck struct {
	logStore
	mu    sync.Mutex
	gates map[string]chan struct{}
}

func (s *stuck) hang(call string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gates[call] = make(chan struct{})
	return s.clear
}

func (s *stuck) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, gate := range s.gates {
		close(gate)
	}
	clear(s.gates)
}

func (s *stuck) pass(call string) {
	s.mu.Lock()
	gate := s.gates[call]
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (s *stuck) GetLog(i uint64, e *raft.Log) error {
	s.pass("read an entry")
	return s.logStore.GetLog(i, e)
}

func (s *stuck) Get(k []byte) ([]byte, error) {
	s.pass("read a value")
	return s.logStore.Get(k)
}

func (s *stuck) GetUint64(k []byte) (uint64, error) {
	s.pass("read a value")
	return s.logStore.GetUint64(k)
}

func (s *stuck) SetUint64(k []byte, v uint64) error {
	s.pass("store a value")
	return s.logStore.SetUint64(k, v)
}

func (s *stuck) StoreLogs(e []*raft.Log) error {
	s.pass("store entries")
	return s.logStore.StoreLogs(e)
}

func (s *stuck) DeleteRange(first, last uint64) error {
	s.pass("delete entries")
	if last == 0 {
		return nil // of the test
	}
	return s.logStore.DeleteRange(first, last)
}

// TestHungDisks: the disk hangs under the leader, a follower, two of three, all. Who hangs says so within the detection time and
// sends nothing any more; who leads gives up in that time; what was proposed ends as unknown; the late write is all that
// ever reaches the disk; and Stop returns with its context.
func TestHungDisks(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]struct {
		leader    bool
		followers int
	}{"leader": {true, 0}, "follower": {false, 1}, "both followers": {false, 2}, "leader and follower": {true, 1}, "all": {true, 2}} {
		t.Run(name, func(t *testing.T) {
			for trial := range 5 {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, time.Second, 3)
					taps := make(map[*node]*tap)
					for _, n := range c.nodes {
						taps[n] = n.startTapped()
					}
					leader := c.coordinator(2 * time.Second)
					c.allVote(2 * time.Second)
					time.Sleep(time.Duration(trial) * 37 * time.Millisecond)
					kept := leader.mustPropose("before")
					sick := c.others(leader)[:hangs.followers]
					if hangs.leader {
						sick = append(sick, leader)
					}
					hungDisks(t, c, leader, sick, taps, kept)
				})
			}
		})
	}
}

func hungDisks(t *testing.T, c *cluster, leader *node, sick []*node, taps map[*node]*tap, kept uint64) {
	var releases []func()
	lasts := make(map[*node]uint64)
	for _, n := range sick {
		lasts[n], _ = n.stores.log.LastIndex()
		release := n.stores.Hang()
		defer release()
		releases = append(releases, release)
	}
	hung := time.Now()
	healthy := len(c.names) - len(sick)
	var pending sync.WaitGroup
	for i := range 3 {
		pending.Go(func() {
			time.Sleep(time.Duration(i) * c.detection / 10)
			_, err := leader.propose(fmt.Sprint("pending ", i))
			took := time.Since(hung)
			if healthy >= 2 && leader != sick[len(sick)-1] {
				if err != nil {
					t.Errorf("a majority is well, and %d: %v", i, err)
				}
				return
			}
			if took > c.detection || !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNotCoordinator) || i == 0 && !errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("proposal %d ended after %s: %v", i, took, err)
			}
		})
	}
	if healthy < 2 || leader == sick[len(sick)-1] {
		c.within(c.detection, "the leader gives up", func() bool { return !leader.log.IsCoordinator() })
	}
	pending.Wait()
	limit := c.detection
	if leader == sick[len(sick)-1] {
		limit = 3 * c.detection // a follower's disk is asked for nothing before the next election
	}
	c.within(limit-time.Since(hung), "the sick say so", func() bool {
		for _, n := range sick {
			if healthy == 0 && n != leader {
				continue // the one whose disk is asked for nothing cannot know
			}
			if !errors.Is(n.failedWith(), ErrStoreHung) || n.log.Status().Role != RoleFailed {
				return false
			}
		}
		return true
	})
	if healthy >= 2 {
		c.within(2*c.detection-time.Since(hung), "the others go on", func() bool { return len(c.coordinators()) == 1 && c.coordinators()[0].failedWith() == nil })
		kept = c.coordinators()[0].mustPropose("meanwhile")
	}
	for _, n := range sick {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if start := time.Now(); true {
			_ = n.log.Stop(ctx) // of files it waits for the late write
			if took := time.Since(start); took > 31*time.Millisecond {
				t.Errorf("%s: Stop while the disk hangs took %s", n.name, took)
			}
		}
		cancel()
	}
	for _, release := range releases {
		release() // the late writes land
	}
	synctest.Wait()
	for _, n := range sick {
		if n.failedWith() == nil {
			continue
		}
		last, _ := n.stores.log.LastIndex()
		if last > lasts[n]+4 { // what was on its way: a probe and the proposals
			t.Errorf("%s: entries up to %d landed, from %d on", n.name, last, lasts[n]+1)
		}
		landed := mustContent(t, n.stores.log)
		time.Sleep(2 * c.detection)
		if again := mustContent(t, n.stores.log); again.brief() != landed.brief() {
			t.Errorf("%s went on: %s, then %s", n.name, landed.brief(), again.brief())
		}
		if sent := taps[n].sent.Load(); sent != 0 {
			t.Errorf("%s sent %d bytes after its disk had failed", n.name, sent)
		}
	}
	for _, n := range sick {
		n.stop() // the process ends
		n.fatal = nil
		n.start()
	}
	c.within(5*c.detection, "whole again", func() bool { return len(c.coordinators()) == 1 })
	end := c.coordinators()[0].mustPropose("end")
	for _, n := range c.nodes {
		if err := n.log.WaitApplied(shortly(t), max(kept, end)); err != nil || !n.fsm.has("before") || healthy >= 2 && !n.fsm.has("meanwhile") {
			t.Errorf("%s lost something: %v", n.name, err)
		}
	}
	c.mustAgree()
}

// TestEveryCallOfTheStoreHasADeadline: reads, values and deletions hang like writes.
func TestEveryCallOfTheStoreHasADeadline(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"read an entry", "read a value", "store a value", "store entries", "delete entries"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, time.Second, 3)
				for _, n := range c.nodes {
					n.stores.log = &stuck{logStore: n.stores.log, gates: make(map[string]chan struct{})}
				}
				c.startAll()
				leader := c.coordinator(2 * time.Second)
				c.allVote(2 * time.Second)
				follower, other := c.others(leader)[0], c.others(leader)[1]
				c.network.Isolate(other.name)
				for i := range 300 {
					leader.mustPropose(fmt.Sprint(i))
				}
				sick := []*node{follower}
				switch call {
				case "read an entry": // the leader does, for a follower that was away
					sick = []*node{leader}
				case "read a value", "store a value": // who stands for election does, and who votes
					c.network.HealAll()
					c.within(2*time.Second, "caught up", func() bool { return other.fsm.has("299") })
					sick = append(sick, other)
				}
				for _, n := range sick {
					defer n.stores.log.(*stuck).hang(call)()
				}
				switch call {
				case "read an entry":
					c.network.HealAll()
				case "delete entries":
					go func() {
						_ = guardedLog{follower.log.guard, follower.stores.log, follower.stores.snapshots}.DeleteRange(0, 0)
					}()
				case "store entries":
					go func() { _, _ = leader.propose("x") }()
				default:
					c.network.Isolate(leader.name)
				}
				failed := func(n *node) bool { return errors.Is(n.failedWith(), ErrStoreHung) }
				c.within(3*c.detection, "it says so", func() bool { return slices.ContainsFunc(sick, failed) })
				for _, n := range sick {
					n.stores.log.(*stuck).clear()
				}
				c.network.HealAll()
				for _, n := range sick {
					if failed(n) {
						n.stop()
						n.start()
					}
				}
				c.within(5*c.detection, "whole again", func() bool { return len(c.coordinators()) == 1 })
				c.coordinators()[0].mustPropose("end")
				c.within(15*c.detection, "all have all", func() bool {
					for _, n := range c.nodes {
						if !n.fsm.has("end") {
							return false
						}
					}
					return true
				})
				c.mustAgree()
			})
		})
	}
}

// TestSlowDiskIsNoFailure: writes that take long, but not too long, cost time and nothing else.
func TestSlowDiskIsNoFailure(t *testing.T) {
	t.Parallel()
	for name, slow := range map[string]struct {
		share float64 // of the detection time
		nodes int     // 1: the leader; 2: the leader and a follower
	}{"all, D/10": {0.1, 3}, "all, D/4": {0.25, 3}, "leader, just below": {0.45, 1}, "all, just below": {0.45, 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, time.Second, 3)
				c.startAll()
				leader := c.coordinator(2 * time.Second)
				c.allVote(2 * time.Second)
				term := leader.log.Status().Term
				for _, n := range append([]*node{leader}, c.others(leader)...)[:slow.nodes] {
					n.stores.Delay(time.Duration(slow.share * float64(c.detection)))
				}
				var worst time.Duration
				for i := range 20 {
					start := time.Now()
					leader.mustPropose(fmt.Sprint(i))
					worst = max(worst, time.Since(start))
					time.Sleep(c.detection / 3)
				}
				t.Logf("worst commit: %.2f detection times", float64(worst)/float64(c.detection))
				for _, n := range c.nodes {
					if err := n.failedWith(); err != nil {
						t.Errorf("%s: %v", n.name, err)
					}
					n.stores.Delay(0)
				}
				if s := leader.log.Status(); s.Term != term {
					t.Errorf("leadership was lost: term %d, was %d", s.Term, term)
				}
				c.within(2*c.detection, "all have all", func() bool {
					for _, n := range c.nodes {
						if !n.fsm.has("19") {
							return false
						}
					}
					return true
				})
				c.mustAgree()
			})
		})
	}
}

// TestFrozenDisk: the disk under the leader hangs for real, in real time. The others go on, and what lands late changes nothing.
// How fast is measured in virtual time, above; here everything may take as long as on a busy machine.
func TestFrozenDisk(t *testing.T) {
	t.Parallel()
	const long = time.Minute
	d := smallDisk(t, "ext4", 40<<20)
	c := newCluster(t, 3*time.Second, 3)
	victim := onDisk(t, c, d, true)
	id := victim.log.Status().ID
	c.commit("before", long)
	c.within(long, "applied", func() bool { return victim.fsm.has("before") })
	thaw := d.freeze()
	if _, err := victim.propose("hung"); !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNotCoordinator) {
		t.Errorf("proposed on a frozen disk: %v", err)
	}
	c.within(long, "it gives up", func() bool { return !victim.log.IsCoordinator() && errors.Is(victim.failedWith(), ErrStoreHung) })
	c.commit("meanwhile", long)
	if victim.fsm.has("meanwhile") {
		t.Error("it went on without a disk")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := victim.log.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop on a frozen disk: %v", err)
	}
	if _, err := Start(ctx, Config{
		Self: "alpha", Voters: c.names, Link: deadLink{}, FSM: &history{}, DetectionTime: c.detection, Dir: filepath.Join(d.dir, "another"),
	}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Start on a frozen disk: %v", err)
	}
	thaw()
	victim.stop()
	victim.start()
	c.within(long, "back with all", func() bool { return victim.fsm.has("meanwhile") })
	if got := victim.log.Status().ID; got != id {
		t.Errorf("back as %s, was %s", got, id)
	}
	c.mustAgree()
}

// commit commits a command at whoever coordinates.
func (c *cluster) commit(command string, limit time.Duration) {
	c.t.Helper()
	c.within(limit, "committed: "+command, func() bool {
		for _, n := range c.coordinators() {
			if _, err := n.propose(command); err == nil {
				return true
			}
		}
		return false
	})
}

// hangsAt is a log whose disk hangs at one of its reads, until it is released.
type hangsAt struct {
	logStore
	reads   *atomic.Int64
	at      int64
	release chan struct{}
}

func (h hangsAt) read() {
	if h.reads.Add(1) == h.at {
		<-h.release
	}
}

func (h hangsAt) GetLog(index uint64, entry *raft.Log) error {
	h.read()
	return h.logStore.GetLog(index, entry)
}

func (h hangsAt) LastIndex() (uint64, error) {
	h.read()
	return h.logStore.LastIndex()
}

func (h hangsAt) GetUint64(key []byte) (uint64, error) {
	h.read()
	return h.logStore.GetUint64(key)
}

// TestDiskHangsWhileItStarts: what hung is told as such, at whatever read of a start, also where raft gives only the text of an
// error: who starts the log must not try again in the same process.
func TestDiskHangsWhileItStarts(t *testing.T) {
	hung := 0
	for at := int64(1); at <= 12; at++ {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, time.Second, 3)
			c.startAll()
			c.allVote(4 * time.Second)
			n := c.others(c.coordinator(0))[0]
			n.stop()
			whole, release := n.stores.log, make(chan struct{})
			n.stores.log = hangsAt{whole, new(atomic.Int64), at, release}
			time.AfterFunc(3*c.detection, func() { close(release) })
			if err := n.try(); err != nil {
				hung++
				if !errors.Is(err, ErrStoreHung) {
					t.Errorf("at read %d: %v", at, err)
				}
			}
			<-release
			n.stores.log = whole
		})
	}
	if hung == 0 {
		t.Error("no start met the disk while it hung")
	}
}
