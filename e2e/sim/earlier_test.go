package sim

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/state"
	storage "github.com/hamgr/hamgr/resources/fake"
	"github.com/hamgr/hamgr/stonith"
)

// desk is a coordinator alone, at node alpha, whose log commits everything after a millisecond. beta holds db.
type desk struct {
	*coordinator.Coordinator
	mu    sync.Mutex
	now   *state.State
	index uint64
}

func newDesk(t *testing.T) *desk {
	d := &desk{now: &state.State{}}
	seed := state.Configure{Cluster: "sim", Digest: "1", Groups: []state.ConfigGroup{{Name: "db"}}}
	for _, n := range []string{"alpha", "beta", "gamma"} {
		seed.Nodes = append(seed.Nodes, state.ConfigNode{Name: n, Role: state.Member})
	}
	d.Coordinator = coordinator.New(coordinator.Config{
		Self: "alpha", Boot: "alpha-1", DetectionTime: time.Second, FenceAction: state.FenceReboot, Seed: seed,
		Replicated: d, State: d.state,
		Look:   func() map[string]coordinator.Sighting { return nil },
		Levels: func(string) [][]stonith.Device { return nil },
		Log:    slog.New(slog.DiscardHandler),
	})
	d.must(t, state.Command{Configure: &seed})
	d.must(t, state.Command{Join: &state.Join{Node: "beta", Boot: "beta-1", Session: "first"}})
	d.must(t, state.Command{Grant: &state.GrantGroup{Group: "db", Node: "beta", Boot: "beta-1"}})
	return d
}

func (d *desk) must(t *testing.T, c state.Command) {
	t.Helper()
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if res, _, err := d.Propose(t.Context(), b); err != nil || res.(state.Result).Err != nil {
		t.Fatal(err, res)
	}
}

// joins greets as a daemon does that is asked a riddle.
func (d *desk) joins(t *testing.T, h coordinator.Hello) {
	t.Helper()
	w, err := d.Hello(t.Context(), "beta", h)
	if err == nil && w.Riddle != "" {
		h.Echo = w.Riddle
		w, err = d.Hello(t.Context(), "beta", h)
	}
	if err != nil || w.Riddle != "" {
		t.Fatal(w, err)
	}
}

func (d *desk) state() *state.State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

func (d *desk) IsCoordinator() bool { return true }

func (d *desk) Propose(ctx context.Context, b []byte) (any, uint64, error) {
	time.Sleep(time.Millisecond)
	cmd, err := state.Decode(b)
	if err != nil {
		return nil, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.index++
	var res state.Result
	d.now, res = state.Apply(d.now, d.index, cmd)
	return res, d.index, nil
}

func (d *desk) Barrier(context.Context) (uint64, error) {
	time.Sleep(time.Millisecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.index, nil
}

func (d *desk) Transfer(context.Context) error { return errors.New("nobody to hand over to") }

// TestTwoBootsThatSpeak: two hosts go by one name. The one that joined holds db and greets as a node does,
// half a detection time after each answer; the other one tries as often as a node that is refused
// does. The first one is alive, so its boot is not over.
func TestTwoBootsThatSpeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		rng := rand.New(rand.NewPCG(1, 0))
		var mu sync.Mutex
		wire := func() { // as in the other tests of this package
			mu.Lock()
			way := 200*time.Microsecond + time.Duration(rng.Int64N(int64(400*time.Microsecond)))
			mu.Unlock()
			time.Sleep(way)
		}
		greet := func(h coordinator.Hello) (coordinator.Welcome, error) {
			wire()
			defer wire()
			return d.Hello(ctx, "beta", h)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := greet(coordinator.Hello{Boot: "beta-1", Session: "first"}); err != nil {
					return
				}
				time.Sleep(500 * time.Millisecond)
			}
		})
		wg.Go(func() {
			time.Sleep(time.Second)
			for began := time.Now(); ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
				h := coordinator.Hello{Boot: "clone-1", Session: "clone"}
				if w, err := greet(h); err == nil && w.Riddle != "" {
					h.Echo = w.Riddle
					greet(h)
				}
				if g := d.state().Groups["db"]; g.Grant == nil {
					t.Errorf("after %s the clone took db from the boot that runs it and speaks: %+v", time.Since(began), g.Released.Proof)
					cancel()
				}
			}
		})
		wg.Wait()
	})
}

// TestGreetingOfAnEarlierDaemon: a greeting and the report of a stop, both of beta's first daemon, were held
// up by a cut. Its second daemon asked by another way, was answered, and started db again under the same grant. What the first one
// said must not end that grant.
func TestGreetingOfAnEarlierDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		late := coordinator.Hello{Boot: "beta-1", Session: "first"}
		stopped := state.Command{Version: state.Version, Stopped: &state.Report{Group: "db", Token: 1, Node: "beta", Boot: "beta-1", Session: "first"}}
		d.joins(t, coordinator.Hello{Boot: "beta-1", Session: "second", Ask: true, Relayed: true})
		d.must(t, state.Command{Started: &state.Report{Group: "db", Token: 1, Node: "beta", Boot: "beta-1", Session: "second"}})
		_, hello := d.Hello(t.Context(), "beta", late)
		report := d.Report(t.Context(), "beta", stopped)
		if g := d.state().Groups["db"]; g.Grant == nil {
			t.Errorf("db runs on beta, and is released by what its earlier daemon said: %+v (hello: %v, report: %v)", g.Released.Proof, hello, report)
		}
	})
}

// TestStopReportAfterLateGreeting: the same late greeting, just before the second daemon reports its own stop. The proof must
// not be refused as no longer wanted: it is never sent again.
func TestStopReportAfterLateGreeting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.joins(t, coordinator.Hello{Boot: "beta-1", Session: "second", Ask: true})
		_, hello := d.Hello(t.Context(), "beta", coordinator.Hello{Boot: "beta-1", Session: "first"})
		err := d.Report(t.Context(), "beta", state.Command{Version: state.Version, Stopped: &state.Report{Group: "db", Token: 1, Node: "beta", Boot: "beta-1", Session: "second"}})
		if err != nil {
			t.Errorf("the running daemon's stop is refused for good (late hello: %v): %v", hello, err)
		}
	})
}

// TestGreetingHeldByOneLink: one of two links between the owner and the coordinator is cut for a few seconds, and
// with it a greeting. Meanwhile the owner's daemon restarts, and is believed over the other link. When the first link
// heals, the greeting of the earlier daemon arrives; at that moment the service dies for good. The group has to run elsewhere.
func TestGreetingHeldByOneLink(t *testing.T) {
	for seed := range uint64(10) {
		pick(t, Options{Seed: seed}, false, func(t *testing.T, c *Cluster, owner string) {
			first := c.Coordinator()
			time.Sleep(time.Duration(seed) * 100 * time.Millisecond)
			earlier := c.State().Nodes[owner].Session
			c.Net.CutLink(0, owner, first)
			c.Net.CutLink(0, first, owner)
			time.Sleep(1400 * time.Millisecond) // about one greeting
			c.RestartDaemon(owner, 100*time.Millisecond)
			c.WaitFor(time.Minute, "the new daemon has joined", func() bool { return c.State().Nodes[owner].Session != earlier })
			time.Sleep(5 * time.Second)
			fired := c.when(first, func(_, after *state.State) bool { return after.Nodes[owner].Session == earlier }, func() {
				c.note("the earlier daemon is believed again")
				c.Storage.Set(owner, "db", "app", "start", storage.Fails)
				c.Storage.Kill(owner, "db", "app")
			})
			c.Net.HealAll()
			time.Sleep(10 * time.Second)
			if !fired() {
				return
			}
			c.WaitFor(10*time.Minute, "db runs elsewhere", func() bool { return c.Owner("db") != owner && c.Runs("db") })
		})
		if t.Failed() {
			return
		}
	}
	t.Log("no greeting was held up")
}
