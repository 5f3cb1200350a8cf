package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith/watchdog"
)

// card is a watchdog that never fires, and says what was done to it.
type card struct {
	mu    sync.Mutex
	err   error // of the next open
	hangs chan struct{}
	armed bool
}

func (c *card) open(ctx context.Context) (watchdog.Device, error) {
	if c.hangs != nil {
		select {
		case <-c.hangs:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	c.armed = true
	return c, nil
}

func (c *card) isArmed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.armed
}

func (c *card) Info() watchdog.Info {
	return watchdog.Info{Name: "iTCO_wdt", Options: unix.WDIOF_SETTIMEOUT | unix.WDIOF_KEEPALIVEPING | unix.WDIOF_MAGICCLOSE}
}
func (c *card) SetTimeout(d time.Duration) (time.Duration, error) { return d, nil }
func (c *card) Feed() error                                       { return nil }
func (c *card) Close() error                                      { return nil }
func (c *card) Disarm() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	return nil
}

// guardedStage is a stage whose node has that watchdog.
func guardedStage(t *testing.T, c *card, scripts ...*script) *stage {
	t.Helper()
	s := newStage(t, config.OnFailMove, scripts...)
	if err := s.n.dog.end(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.n.DataDir = t.TempDir()
	s.n.Config.Nodes[0].Watchdog, s.n.Config.Cluster.OnQuorumLoss, s.n.Watchdog = "/dev/watchdog0", "stop", c.open
	if err := s.n.startDog(s.n.ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNothingStartsUnguarded: a watchdog that cannot be armed keeps everything from being started, in bounded time, and it
// is nobody's fault but the node's.
func TestNothingStartsUnguarded(t *testing.T) {
	for name, hangs := range map[string]bool{"in use": false, "hangs": true} {
		synctest.Test(t, func(t *testing.T) {
			c := &card{err: watchdog.ErrBusy}
			if hangs {
				c.hangs = make(chan struct{})
			}
			one := &script{}
			s := guardedStage(t, c, one)
			s.begin(t, state.Granted)
			time.Sleep(2 * slowestDriver)
			if s.has(func(c state.Command) bool { return c.Started != nil }) || !s.has(func(c state.Command) bool { return c.Stopped != nil }) {
				t.Errorf("%s: %+v", name, s.reports)
			}
			if f := s.failed(); len(f) != 1 || f[0].Resource != "" || !strings.Contains(f[0].Error, "watchdog") {
				t.Errorf("%s: %+v", name, f)
			}
			if h, err := s.n.recall("db"); h != nil || err != nil {
				t.Errorf("%s: recorded as started: %+v %v", name, h, err)
			}
		})
	}
}

// TestArmedWhileItRuns: before the first start, until everything is proven stopped.
func TestArmedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &card{}
		s := guardedStage(t, c, &script{})
		s.begin(t, state.Granted)
		time.Sleep(5 * time.Second)
		if claim, _ := s.n.dog.claim(); !c.isArmed() || !claim.Armed || claim.Tested {
			t.Errorf("armed %v: %+v", c.isArmed(), claim)
		}
		if w := s.n.dog.status(); !w.Armed || w.Test != "untested" || w.Counts || w.Why == "" {
			t.Errorf("%+v", w)
		}
		s.r.stop("enough")
		time.Sleep(5 * time.Second)
		if claim, _ := s.n.dog.claim(); c.isArmed() || claim.Armed {
			t.Errorf("armed %v: %+v", c.isArmed(), claim)
		}
	})
}

// TestDisarmedBeforeTheDaemonEnds: the group was stopped right before; nobody would feed the watchdog after that.
func TestDisarmedBeforeTheDaemonEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &card{}
		s := guardedStage(t, c)
		if err := s.n.dog.hold(t.Context(), "db", 7); err != nil {
			t.Fatal(err)
		}
		s.n.cancel()
		s.n.dog.release("db", 7)
		s.n.wg.Wait()
		if err := s.n.dog.end(context.Background()); err != nil || c.isArmed() {
			t.Errorf("armed %v, %v", c.isArmed(), err)
		}
	})
}

// TestAnotherGrantIsGuarded: the release of a grant that is over does not leave the next one unguarded.
func TestAnotherGrantIsGuarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &card{}
		s := guardedStage(t, c)
		for token := range uint64(2) {
			if err := s.n.dog.hold(t.Context(), "db", token); err != nil {
				t.Fatal(err)
			}
		}
		s.n.dog.release("db", 0)
		time.Sleep(5 * time.Second)
		if !c.isArmed() {
			t.Error("not armed")
		}
	})
}

// TestClaimsAreCounted: each change gets a number of its own, and nothing else does.
func TestClaimsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := guardedStage(t, &card{})
		last := uint64(0)
		is := func(changed bool) {
			t.Helper()
			time.Sleep(time.Second)
			for range 3 {
				claim, _ := s.n.dog.claim()
				if (claim.Number != last) != changed || claim.Number < last {
					t.Errorf("%d after %d: %+v", claim.Number, last, claim)
				}
				last, changed = claim.Number, false
			}
		}
		is(true)
		if err := s.n.dog.hold(t.Context(), "db", 1); err != nil {
			t.Fatal(err)
		}
		is(true)
		s.n.dog.Excuse("maintenance")
		is(true)
		s.n.dog.Excuse("")
		is(true)
		is(false)
	})
}

// TestHeldBefore: what cannot be read counts as held, so that nothing is disarmed by mistake.
func TestHeldBefore(t *testing.T) {
	n := aloneNode(t)
	if err := n.hold("db", nil, held{Token: 9}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.heldDir(), "web.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if names := strings.Join(n.heldBefore(), ", "); names != "db 9, web under an unknown token" {
		t.Error(names)
	}
	if err := errors.Join(os.RemoveAll(n.heldDir()), os.WriteFile(n.heldDir(), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if names := n.heldBefore(); len(names) != 1 {
		t.Error(names)
	}
}

// TestProgress: a loop that stands still is no progress, one that has ended in order is none to wait for.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := aloneNode(t)
		p := newProgress(n)
		time.Sleep(groupsTimes * n.Config.Cluster.DetectionTime)
		if err := p.alive(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Millisecond)
		if err := p.alive(t.Context()); err == nil || !strings.Contains(err.Error(), loopGroups) {
			t.Error(err)
		}
		p.over(loopGroups)
		if err := p.alive(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(greetTimes * n.Config.Cluster.DetectionTime)
		if err := p.alive(t.Context()); err == nil || !strings.Contains(err.Error(), loopGreet) {
			t.Error(err)
		}
		p.beat(loopGreet)
		began := time.Now()
		n.replica.applies.Store(&began)
		time.Sleep(time.Minute)
		p.beat(loopGreet)
		if err := p.alive(t.Context()); err == nil || !strings.Contains(err.Error(), "entry") {
			t.Error(err)
		}
	})
}

// TestWatchdogProblems: what protects nothing is said loudly.
func TestWatchdogProblems(t *testing.T) {
	n := aloneNode(t)
	n.Config.Nodes[0].Fencing = [][]string{{"bmc"}, {config.WatchdogDevice}}
	for want, w := range map[string]*api.WatchdogStatus{
		"":                         {Test: watchdog.Passed, Armed: true, Counts: true},
		"alarm: PROTECTS NOTHING":  {Test: watchdog.Passed, Trouble: "in use"},
		"alarm: is not fed":        {Test: watchdog.Passed, Armed: true, Starved: "alone"},
		"warn: test untested":      {Test: "untested"},
		"warn: proves nothing now": {Test: watchdog.Passed, Armed: true, Why: "it is part of the kernel"},
	} {
		var said []string
		say := func(kind string) func(text, cure string) {
			return func(text, _ string) { said = append(said, kind+": "+text) }
		}
		n.watchdogProblems([]api.NodeStatus{{Name: "alpha", Watchdog: w}, {Name: "beta"}}, say("alarm"), say("warn"))
		kind, text, _ := strings.Cut(want, ": ")
		if all := strings.Join(said, "; "); (want == "") != (len(said) == 0) || !strings.HasPrefix(all, kind) || !strings.Contains(all, text) {
			t.Errorf("want %q: %q", want, said)
		}
	}
}

// TestWatchdogTimes: a stop may have to wait for a start, and the worst case of a failover waits for the watchdog.
func TestWatchdogTimes(t *testing.T) {
	c := &config.Config{Nodes: []config.Node{{Name: "alpha", Role: config.Member, Watchdog: "/dev/watchdog0", Fencing: [][]string{{config.WatchdogDevice}}}}}
	c.Cluster.DetectionTime = 3 * time.Second
	c.Groups = []config.Group{{Resources: []config.Resource{
		{StartTimeout: 20 * time.Second, StopTimeout: 10 * time.Second}, {StartTimeout: 5 * time.Second, StopTimeout: 30 * time.Second}}}}
	want := watchdog.Derive(3*time.Second, 60*time.Second+callGrace)
	if got := WatchdogTiming(c); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	timings, failovers := Timings(c)
	if last := timings[len(timings)-1]; last.Name != "watchdog expiry" || last.Value != want.Expiry || failovers[0].Fence < want.Expiry {
		t.Errorf("%+v %+v", last, failovers)
	}
}
