package coordinator_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// delegate is the other nodes.
type delegate struct {
	off func(context.Context, state.Operation) (stonith.Proof, error)
	on  func(context.Context, state.Operation) error
}

func (d delegate) Off(ctx context.Context, o state.Operation, _ stonith.Machine) (stonith.Proof, error) {
	return d.off(ctx, o)
}

func (d delegate) On(ctx context.Context, o state.Operation, _ stonith.Machine) error {
	return d.on(ctx, o)
}

func (delegate) Check(context.Context, string, string, stonith.Machine) ([]stonith.Health, error) {
	return nil, nil
}

func (delegate) Contact(context.Context, string, string) (time.Duration, bool, error) {
	return 0, false, nil
}

// delegating is an office whose own attempt at beta has failed, so that gamma is next.
func delegating(t *testing.T, levels [][]stonith.Device, others delegate) *office {
	t.Helper()
	o := newOffice(t)
	op := o.must(t, state.Command{Order: &state.Order{Node: "beta", Boot: "beta-1", Action: state.FenceReboot, Reason: "by hand", By: "anna"}})
	o.must(t, state.Command{Shoot: &state.Shoot{Op: op, Executor: "alpha"}})
	o.must(t, state.Command{ShotFailed: &state.ShotFailed{Op: op, Executor: "alpha", Error: "unreachable"}})
	o.leads, o.levels, o.elsewhere = true, levels, others
	o.off = func(context.Context, stonith.Order) (stonith.Proof, error) {
		return stonith.Proof{}, errors.New("unreachable")
	}
	o.talking["beta"] = false
	o.looks["beta"] = coordinator.Sighting{Gossip: "dead", GossipBoot: "beta-1", Heard: true, Contact: time.Now()}
	o.open(o.seed)
	return o
}

func readOff(o state.Operation, level int, plugs ...string) stonith.Proof {
	p := stonith.Proof{Node: o.Node, Boot: o.Boot, Op: o.ID, Level: level}
	for _, name := range plugs {
		p.Plugs = append(p.Plugs, stonith.PlugProof{Device: "pdu", Plug: name, Detail: "off", OffSince: time.Now()})
	}
	return p
}

// TestProofOfEveryFeed: the executor runs with an older file, which knows one of the two feeds only. What
// it proves is not what this node's file asks for.
func TestProofOfEveryFeed(t *testing.T) {
	two := [][]stonith.Device{{{Name: "pdu", Plugs: []string{"1", "2"}, Timeout: 5 * time.Second}}}
	for name, c := range map[string]struct {
		level  int
		plugs  []string
		proven bool
	}{
		"every feed":        {1, []string{"2", "1"}, true},
		"one of two":        {1, []string{"1"}, false},
		"one of them twice": {1, []string{"1", "1"}, false},
		"another level":     {2, []string{"1", "2"}, false},
		"no level":          {0, []string{"1", "2"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := false
				o := delegating(t, two, delegate{
					off: func(_ context.Context, op state.Operation) (stonith.Proof, error) {
						asked = true
						return readOff(op, c.level, c.plugs...), nil
					},
					on: func(context.Context, state.Operation) error { return nil },
				})
				o.act(t.Context(), time.Minute)
				if !asked {
					t.Fatal("gamma was never asked")
				}
				if r := o.state().Groups["db"].Released; (r != nil) != c.proven {
					t.Errorf("released: %+v, want a proof: %t", r, c.proven)
				}
			})
		})
	}
}

// TestHungExecutor: the executor is there, takes the order, and never answers. It does not hold up the
// operation for ever, be it to switch off or on.
func TestHungExecutor(t *testing.T) {
	one := [][]stonith.Device{{{Name: "pdu", Plugs: []string{"1"}, Timeout: 5 * time.Second}}}
	hang := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	t.Run("off", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := delegating(t, one, delegate{off: func(ctx context.Context, _ state.Operation) (stonith.Proof, error) {
				return stonith.Proof{}, hang(ctx)
			}})
			o.off = func(_ context.Context, order stonith.Order) (stonith.Proof, error) {
				return readOff(state.Operation{ID: order.Op, Node: order.Node, Boot: order.Boot}, 1, "1"), nil
			}
			o.act(t.Context(), time.Minute)
			if o.state().Groups["db"].Released == nil {
				t.Errorf("beta is not fenced after a minute: %+v", o.state().OpenOperation("beta"))
			}
		})
	})
	t.Run("on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := delegating(t, one, delegate{
				off: func(_ context.Context, op state.Operation) (stonith.Proof, error) { return readOff(op, 1, "1"), nil },
				on:  func(ctx context.Context, _ state.Operation) error { return hang(ctx) },
			})
			o.act(t.Context(), 2*time.Minute)
			if op := o.state().OpenOperation("beta"); op != nil {
				t.Errorf("beta is not on after two minutes: %+v", op)
			}
		})
	})
}

// TestStricterOrderUnderWay: an operator takes over the cluster's reboot while it is being carried out, and wants the
// node to stay off. It is the same shot: nothing is refused or begun anew.
func TestStricterOrderUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		op := o.must(t, state.Command{Order: &state.Order{Node: "beta", Boot: "beta-1", Action: state.FenceReboot, Reason: "silent", By: state.ByCluster}})
		o.must(t, state.Command{Shoot: &state.Shoot{Op: op, Executor: "alpha"}})
		before := *o.state().Operations[op]
		o.must(t, state.Command{Order: &state.Order{Node: "beta", Boot: "beta-1", Action: state.FenceOff, Reason: "smoke", By: "anna"}})
		o.leads = true
		if err := o.Stands(t.Context(), before, "alpha"); err != nil {
			t.Error(err)
		}
	})
}

// TestCommitOfProofOfUnknownOutcome: the answer to the commit of a proof is lost, but not the commit. The
// operation has not failed.
func TestCommitOfProofOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		op := o.must(t, state.Command{Order: &state.Order{Node: "beta", Boot: "beta-1", Action: state.FenceReboot, Reason: "silent", By: "anna"}})
		o.leads = true
		o.talking["beta"] = false
		o.looks["beta"] = coordinator.Sighting{Gossip: "dead", GossipBoot: "beta-1", Heard: true, Contact: time.Now()}
		o.lose = func(c state.Command) bool { return c.ShotProven != nil }
		o.act(t.Context(), time.Minute)
		if now := o.state().Operations[op]; now.Phase != state.Done || now.Failures > 0 {
			t.Errorf("%+v", *now)
		}
	})
}

// TestLiarHeardThroughOthers: the device says off of a node that runs, and that greets through third nodes only, as rarely
// as such greetings come. No attempt proves it off.
func TestLiarHeardThroughOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, state.Command{StopFailed: &state.Report{Group: "db", Token: 1, Node: "beta", Boot: "beta-1", Resource: "data", Error: "busy"}})
		o.leads, o.lying = true, true
		o.talking["beta"] = false
		o.looks["beta"] = coordinator.Sighting{Gossip: "alive", GossipBoot: "beta-1", Heard: true, Contact: time.Now().Add(-time.Hour)}
		ctx, end := context.WithTimeout(t.Context(), 10*time.Minute)
		defer end()
		go func() {
			for ctx.Err() == nil {
				o.Hello(ctx, "beta", coordinator.Hello{Boot: "beta-1", Applied: o.state().Applied, Relayed: true})
				time.Sleep(1200 * time.Millisecond)
			}
		}()
		o.act(ctx, 9*time.Minute)
		end()
		if r := o.state().Groups["db"].Released; r != nil {
			t.Errorf("db was taken from beta, which runs: %+v", r.Proof)
		}
		if len(o.shots) == 0 {
			t.Error("nothing was tried")
		}
		time.Sleep(2 * time.Second)
	})
}
