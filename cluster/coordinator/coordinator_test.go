package coordinator_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// office is a coordinator alone, at node alpha, with a log that always commits, devices that always
// fence, and sightings as the test sets them.
type office struct {
	*coordinator.Coordinator
	mu      sync.Mutex
	leads   bool
	now     *state.State
	index   uint64
	commits int
	looks   map[string]coordinator.Sighting
	talking map[string]bool // is in contact at every look
	shots   []stonith.Order
	onFails bool          // power on never succeeds
	every   time.Duration // how often those in contact are heard; 0 is at each look
	lying   bool          // the device says off, and the node runs on
	applied func()        // is called before a proposer learns that its command is applied

	seed      state.Configure
	elsewhere coordinator.Elsewhere
	watchdog  func(string) time.Duration
	text      string                                                      // that it runs with
	newest    string                                                      // that the log has; empty: none
	levels    [][]stonith.Device                                          // of every node
	off       func(context.Context, stonith.Order) (stonith.Proof, error) // nil is a device that does its work
	check     func() []stonith.Health
	lose      func(state.Command) bool // the answer to its commit
}

func newOffice(t *testing.T, setup ...state.Command) *office {
	t.Helper()
	o := &office{
		now: &state.State{}, looks: map[string]coordinator.Sighting{}, talking: map[string]bool{},
		levels: [][]stonith.Device{{{Name: "bmc", Plugs: []string{""}, Timeout: 5 * time.Second}}},
	}
	seed := state.Configure{Cluster: "sim", Digest: "1", Groups: []state.ConfigGroup{{Name: "db", Rules: state.Rules{Prefer: []string{"beta"}}}}}
	for _, n := range []string{"alpha", "beta", "gamma"} {
		seed.Nodes = append(seed.Nodes, state.ConfigNode{Name: n, Role: state.Member})
		if n != "alpha" {
			o.looks[n] = coordinator.Sighting{Gossip: "alive", GossipBoot: n + "-1", Heard: true}
			o.talking[n] = true
		}
	}
	o.must(t, state.Command{Configure: &seed})
	for _, n := range seed.Nodes {
		o.must(t, state.Command{Join: &state.Join{Node: n.Name, Boot: n.Name + "-1"}})
	}
	o.must(t, state.Command{Grant: &state.GrantGroup{Group: "db", Node: "beta", Boot: "beta-1"}})
	for _, c := range setup {
		o.must(t, c)
	}
	o.seed = seed
	o.open(seed)
	return o
}

func (o *office) open(seed state.Configure) {
	o.Coordinator = coordinator.New(coordinator.Config{
		Self: "alpha", Boot: "alpha-1", DetectionTime: time.Second, FenceAction: state.FenceReboot, Seed: seed,
		Replicated: o, Fencer: o, State: o.state, Look: o.look,
		Elsewhere: o.elsewhere,
		Watchdog:  o.watchdog,
		Text:      o.text,
		Outdated:  func(_ *state.State, text string) bool { return o.newest != "" && text != o.newest },
		Levels:    func(string) [][]stonith.Device { return o.levels },
		Log:       slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

func (o *office) must(t *testing.T, c state.Command) uint64 {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.index++
	var res state.Result
	if o.now, res = state.Apply(o.now, o.index, c); res.Err != nil {
		t.Fatal(res.Err)
	}
	return o.index
}

func (o *office) state() *state.State {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now
}

func (o *office) look() map[string]coordinator.Sighting {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := map[string]coordinator.Sighting{}
	for n, s := range o.looks {
		if o.talking[n] {
			s.Contact = time.Now().Truncate(o.every)
		}
		seen[n] = s
	}
	return seen
}

func (o *office) set(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

func (o *office) IsCoordinator() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.leads
}

func (o *office) Propose(ctx context.Context, b []byte) (any, uint64, error) {
	time.Sleep(time.Millisecond)
	cmd, err := state.Decode(b)
	if err != nil {
		return nil, 0, err
	}
	o.mu.Lock()
	o.index++
	o.commits++
	index := o.index
	var res state.Result
	o.now, res = state.Apply(o.now, index, cmd)
	o.mu.Unlock()
	o.Wake() // as every applied entry does
	if o.applied != nil {
		o.applied()
	}
	if o.lose != nil && o.lose(cmd) {
		return nil, 0, errors.New("unknown outcome")
	}
	return res, index, nil
}

func (o *office) Barrier(context.Context) (uint64, error) {
	time.Sleep(time.Millisecond)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.index, nil
}

func (o *office) Transfer(context.Context) error { return errors.New("nobody to hand over to") }

func (o *office) Off(ctx context.Context, order stonith.Order) (stonith.Proof, error) {
	o.set(func() { o.shots = append(o.shots, order) })
	if o.off != nil {
		return o.off(ctx, order)
	}
	if !o.lying {
		time.Sleep(100 * time.Millisecond)
		o.set(func() { o.talking[order.Node] = false })
	}
	off := stonith.PlugProof{Device: "bmc", Detail: "off", OffSince: time.Now()}
	time.Sleep(20 * time.Millisecond) // to settle
	return stonith.Proof{Node: order.Node, Boot: order.Boot, Op: order.Op, Level: 1, Plugs: []stonith.PlugProof{off}}, nil
}

func (o *office) Check(context.Context, stonith.Target) []stonith.Health {
	if o.check == nil {
		return nil
	}
	return o.check()
}

func (o *office) On(context.Context, stonith.Order) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.onFails {
		return errors.New("a device of level 1 does not answer")
	}
	return nil
}

// greets says hello for a node that is well.
func (o *office) greets(t *testing.T, node string) {
	t.Helper()
	if _, err := o.Hello(t.Context(), node, coordinator.Hello{Boot: node + "-1", Applied: o.state().Applied}); err != nil {
		t.Fatal(err)
	}
}

// act lets the coordinator act for a while.
func (o *office) act(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { o.Run(ctx) })
	time.Sleep(d)
	cancel()
	wg.Wait()
}

// TestEarlierTermIsForgotten: in the last moment of a term of office a node lagged by one entry, as it
// does all the time. When this coordinator is elected again, much later, the node is well: what it
// said long ago is no reason to shoot it.
func TestEarlierTermIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.leads = true
		for range 2 { // two greetings within the time that a commit takes to reach beta
			if _, err := o.Hello(t.Context(), "beta", coordinator.Hello{Boot: "beta-1", Applied: o.state().Applied - 1}); err != nil {
				t.Fatal(err)
			}
		}
		o.set(func() { o.leads = false })
		o.act(t.Context(), time.Hour)
		o.set(func() { o.leads = true })
		o.act(t.Context(), 200*time.Millisecond) // before beta's next greeting
		if len(o.shots) > 0 || len(o.state().Operations) > 0 {
			t.Errorf("beta answers and is well, yet: %d shots, operations %v", len(o.shots), o.state().Operations)
		}
	})
}

// TestShotNeedsOwnAgreement: the coordinator before this one ordered a shot, by a false rumour. This one
// hears the target all the time, though gossip has not come round yet. It must not shoot.
func TestShotNeedsOwnAgreement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, state.Command{Order: &state.Order{Node: "beta", Boot: "beta-1", Action: state.FenceReboot, Reason: "silent", By: state.ByCluster}})
		o.leads = true
		o.looks["beta"] = coordinator.Sighting{Gossip: "dead", GossipBoot: "beta-1", Heard: true}
		o.act(t.Context(), 300*time.Millisecond)
		if len(o.shots) > 0 {
			t.Errorf("shot while it was heard at every moment: %+v", o.state().Operations)
		}
	})
}

// TestRefusedConfigurationIsNotRepeatedForEver: the file of this coordinator lacks a node that holds a
// group. The refusal stands in the log once, not thousands of times.
func TestRefusedConfigurationIsNotRepeatedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.open(state.Configure{Cluster: "sim", Digest: "2", Nodes: []state.ConfigNode{{Name: "alpha", Role: state.Member}, {Name: "gamma", Role: state.Member}},
			Groups: []state.ConfigGroup{{Name: "db"}}})
		o.leads = true
		o.act(t.Context(), 10*time.Second)
		if o.commits > 100 {
			t.Errorf("%d commits within 10 s, to say nothing new", o.commits)
		}
	})
}

// TestPowerOnDoesNotBlockFencing: an operator's power on does not succeed, since one device of several
// is out of order. When the node then fails, it must still be fenced.
func TestPowerOnDoesNotBlockFencing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, state.Command{Order: &state.Order{Node: "beta", Boot: "beta-1", Action: state.FenceOn, Reason: "by hand", By: "operator"}})
		o.leads, o.onFails = true, true
		o.talking["beta"] = false
		o.looks["beta"] = coordinator.Sighting{Gossip: "dead", GossipBoot: "beta-1", Heard: true, Contact: time.Now()}
		o.act(t.Context(), 10*time.Minute)
		if g := o.state().Groups["db"]; g.Released == nil {
			t.Errorf("10 minutes after beta died db is still held by it: %+v, operations:", *g.Grant)
			for _, op := range o.state().Operations {
				t.Errorf("%+v", *op)
			}
		}
	})
}

// TestRefusedNodeDoesNotFillTheLog: a node whose boot is proven over greets again and again. Each answer is no,
// and none of them needs an entry.
func TestRefusedNodeDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, state.Command{Join: &state.Join{Node: "beta", Boot: "beta-2"}})
		o.leads = true
		for range 200 {
			if _, err := o.Hello(t.Context(), "beta", coordinator.Hello{Boot: "beta-1"}); !errors.Is(err, state.ErrBootEnded) {
				t.Fatal(err)
			}
		}
		if o.commits > 10 {
			t.Errorf("%d entries for 200 greetings that were refused", o.commits)
		}
	})
}

// TestGreetingOfAnEarlierBoot: a greeting of a boot that ended before it ever joined arrives late. It
// must not end the boot that runs now, and holds a group.
func TestGreetingOfAnEarlierBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.leads = true
		_, err := o.Hello(t.Context(), "beta", coordinator.Hello{Boot: "beta-0"})
		if g := o.state().Groups["db"]; g.Grant == nil {
			t.Errorf("the late greeting (answer %v) took db from the boot that runs: %+v", err, g.Released)
		}
	})
}

// TestOperatorIsNotLeftAlone: the term of office ends between the commit of an operator's order and
// the moment at which he begins to follow it, as it does when the coordinator is the target. He has to
// be told.
func TestOperatorIsNotLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.leads = true
		o.applied = func() {
			o.set(func() { o.leads = false })
			time.Sleep(100 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(50 * time.Millisecond)
			began := time.Now()
			_, err := o.Fence(ctx, state.Order{Node: "alpha", Action: state.FenceOff, Reason: "by hand", By: "operator"}, func(coordinator.Progress) {})
			if took := time.Since(began); took > time.Minute {
				t.Errorf("told after %s: %v", took, err)
			}
		})
		o.act(t.Context(), 2*time.Minute)
		wg.Wait()
	})
}

// TestLyingDevice: a device says off of a node that could not stop a group, runs on, and is heard ten
// times in a detection time. However often it is tried, that is a conflict and never a proof.
func TestLyingDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, state.Command{StopFailed: &state.Report{Group: "db", Token: 1, Node: "beta", Boot: "beta-1", Resource: "data", Error: "busy"}})
		o.leads, o.lying, o.every = true, true, 100*time.Millisecond
		o.greets(t, "beta")
		o.act(t.Context(), 10*time.Minute)
		if r := o.state().Groups["db"].Released; r != nil {
			t.Errorf("db was taken from beta, which runs: %+v", r.Proof)
		}
		if len(o.shots) == 0 {
			t.Error("nothing was tried")
		}
	})
}

// TestTargetThatNeverGreets: a node that could not stop a group answers, by what gossip says in the boot
// that is to be shot, but has not greeted this coordinator. It needs the shot all the same.
func TestTargetThatNeverGreets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, state.Command{StopFailed: &state.Report{Group: "db", Token: 1, Node: "beta", Boot: "beta-1", Resource: "data", Error: "busy"}})
		o.leads = true
		o.act(t.Context(), 10*time.Minute)
		if len(o.shots) == 0 {
			t.Errorf("no attempt within 10 minutes: %+v", o.state().OpenOperation("beta"))
		}
	})
}

// TestStandsForItsExecutorOnly: a node that was an operation's executor once gets no leave for a command.
func TestStandsForItsExecutorOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		op := o.must(t, state.Command{Order: &state.Order{Node: "beta", Boot: "beta-1", Action: state.FenceOff, Reason: "test", By: "anna"}})
		o.must(t, state.Command{Shoot: &state.Shoot{Op: op, Executor: "gamma"}})
		o.must(t, state.Command{Shoot: &state.Shoot{Op: op, Executor: "alpha"}})
		o.set(func() { o.leads = true })
		now := *o.state().Operations[op]
		if err := o.Stands(t.Context(), now, "gamma"); err == nil {
			t.Error("gamma may shoot, though the operation is alpha's")
		}
		if err := o.Stands(t.Context(), now, "alpha"); err != nil {
			t.Errorf("alpha may not: %v", err)
		}
		other := now
		other.Boot = "beta-0"
		if err := o.Stands(t.Context(), other, "alpha"); err == nil {
			t.Error("another boot than the committed one may be shot")
		}
	})
}

// TestOddTextDoesNotFillTheLog: the firmware says of itself what is no text, or more than is kept; so does what was found
// active. It is noted once, and not again with each greeting.
func TestOddTextDoesNotFillTheLog(t *testing.T) {
	for name, odd := range map[string]string{
		"no text": "SN\xff\xff\xff", "control characters": "SN\x01\x02", "long": strings.Repeat("<&>", 85),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOffice(t)
				o.leads = true
				hello := coordinator.Hello{Boot: "gamma-1", Machine: state.Machine{Serial: odd}, Found: map[string]string{"db": odd}}
				for range 20 {
					hello.Applied = o.state().Applied
					if _, err := o.Hello(t.Context(), "gamma", hello); err != nil {
						t.Fatal(err)
					}
				}
				if o.commits != 1 {
					t.Errorf("%d entries, machine %q, found %q", o.commits, o.state().Nodes["gamma"].Machine, o.state().Groups["db"].Found)
				}
			})
		})
	}
}
