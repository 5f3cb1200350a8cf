package coordinator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// expiry is what the tests' watchdogs have to be waited for.
const expiry = 100 * time.Second

var counts = state.WatchdogClaim{Number: 1, Armed: true, Tested: true, ExpiryMS: expiry.Milliseconds()}

// silentOffice has no device that answers, and beta, which claimed that and holds db, falls silent now.
func silentOffice(t *testing.T, claim *state.WatchdogClaim) *office {
	t.Helper()
	o := newOffice(t,
		state.Command{Upgrade: &state.Upgrade{Version: 2}},
		state.Command{Join: &state.Join{Node: "beta", Boot: "beta-1", Watchdog: claim}})
	o.leads = true
	o.watchdog = func(string) time.Duration { return expiry }
	o.off = func(context.Context, stonith.Order) (stonith.Proof, error) {
		time.Sleep(time.Second)
		return stonith.Proof{}, errors.New("unreachable")
	}
	o.silence()
	o.open(o.seed)
	return o
}

func (o *office) silence() {
	o.talking["beta"] = false
	o.looks["beta"] = coordinator.Sighting{Gossip: "dead", GossipBoot: "beta-1", Heard: true, Contact: time.Now()}
}

// provenAfter lets the office act until beta is proven down by its watchdog; 0 if it is not within that time.
func (o *office) provenAfter(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); o.Run(ctx) }()
	defer func() { cancel(); <-done }()
	for began := time.Now(); time.Since(began) < limit; time.Sleep(10 * time.Millisecond) {
		for _, op := range o.state().Operations {
			if op.Proof != nil && op.Proof.Kind == state.Watchdog {
				return time.Since(began)
			}
		}
	}
	return 0
}

// TestWatchdogExpires: no device answers, and the takeover waits for the whole time of the watchdog, and not much longer.
func TestWatchdogExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := silentOffice(t, &counts)
		took := o.provenAfter(t, time.Hour)
		if took < expiry || took > expiry+5*time.Second {
			t.Errorf("proven after %s", took)
		}
		for _, op := range o.state().Operations {
			if !strings.Contains(strings.Join(op.Proof.Evidence, " "), expiry.String()) || op.Phase != state.Done || !strings.Contains(op.Note, "nothing was read off") {
				t.Errorf("%+v %+v", op, op.Proof)
			}
		}
		if len(o.shots) < 3 {
			t.Errorf("the devices were tried %d times meanwhile", len(o.shots))
		}
	})
}

// TestArmedBeforeTheChange: the node was armed by longer times than those of the present configuration, or by shorter ones.
func TestArmedBeforeTheChange(t *testing.T) {
	for _, armed := range []time.Duration{expiry / 2, 2 * expiry} {
		synctest.Test(t, func(t *testing.T) {
			claim := counts
			claim.ExpiryMS = armed.Milliseconds()
			o := silentOffice(t, &claim)
			if took := o.provenAfter(t, time.Hour); took < max(armed, expiry) {
				t.Errorf("armed with %s: proven after %s", armed, took)
			}
		})
	}
}

func TestWatchdogNeverCounts(t *testing.T) {
	untested, disarmed := counts, counts
	untested.Tested, disarmed.Armed = false, false
	for name, c := range map[string]struct {
		claim *state.WatchdogClaim
		alter func(*testing.T, *office)
	}{
		"no claim":    {nil, func(*testing.T, *office) {}},
		"untested":    {&untested, func(*testing.T, *office) {}},
		"disarmed":    {&disarmed, func(*testing.T, *office) {}},
		"no level":    {&counts, func(t *testing.T, o *office) { o.watchdog = func(string) time.Duration { return 0 } }},
		"others hear": {&counts, func(t *testing.T, o *office) { o.elsewhere = hearing{} }},
		"gossip alive": {&counts, func(t *testing.T, o *office) {
			o.looks["beta"] = coordinator.Sighting{Gossip: "alive", GossipBoot: "beta-1", Contact: time.Now()}
			o.must(t, state.Command{Order: &state.Order{Node: "beta", Boot: "beta-1", Action: state.FenceOff, Reason: "by hand", By: "anna"}})
		}},
		"two nodes": {&counts, func(t *testing.T, o *office) {
			o.seed.TwoNode = true
			o.must(t, state.Command{Configure: &o.seed})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := silentOffice(t, c.claim)
				c.alter(t, o)
				o.open(o.seed)
				if took := o.provenAfter(t, 20*expiry); took > 0 {
					t.Errorf("proven after %s", took)
				}
			})
		})
	}
}

// hearing are other nodes that hear everybody.
type hearing struct{ coordinator.Elsewhere }

func (hearing) Off(context.Context, state.Operation, stonith.Machine) (stonith.Proof, error) {
	return stonith.Proof{}, errors.New("unreachable")
}

func (hearing) Contact(context.Context, string, string) (time.Duration, bool, error) {
	return time.Second, true, nil
}

func (hearing) Check(context.Context, string, string, stonith.Machine) ([]stonith.Health, error) {
	return nil, nil
}

// TestSilenceOfThisTermOnly: what came before this coordinator led went to another one, and may have been answered.
func TestSilenceOfThisTermOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := silentOffice(t, &counts)
		o.set(func() { o.leads = false })
		o.act(t.Context(), 10*expiry)
		o.set(func() { o.leads = true })
		if took := o.provenAfter(t, time.Hour); took < expiry {
			t.Errorf("proven %s after the term began", took)
		}
	})
}

// TestRelayedGreetingEndsTheSilence: what comes through a third node was answered too.
func TestRelayedGreetingEndsTheSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := silentOffice(t, &counts)
		spoke := make(chan struct{})
		go func() {
			defer close(spoke)
			time.Sleep(expiry * 9 / 10)
			if _, err := o.Hello(t.Context(), "beta", coordinator.Hello{Boot: "beta-1", Watchdog: &counts, Relayed: true, Speaks: 2}); err != nil {
				t.Error(err)
			}
		}()
		if took := o.provenAfter(t, time.Hour); took < expiry*19/10 {
			t.Errorf("proven after %s, %s after a greeting", took, took-expiry*9/10)
		}
		<-spoke
	})
}

// TestClaimIsCommittedBeforeTheAnswer: the node goes by what was answered.
func TestClaimIsCommittedBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, state.Command{Upgrade: &state.Upgrade{Version: 2}})
		o.leads = true
		claim := counts
		greet := func() error {
			_, err := o.Hello(t.Context(), "beta", coordinator.Hello{Boot: "beta-1", Applied: o.state().Applied, Watchdog: &claim, Speaks: 2})
			return err
		}
		for i := range 3 {
			if err := greet(); err != nil || !claim.Same(o.state().Nodes["beta"].Watchdog) {
				t.Fatalf("answered: %v, committed: %+v", err, o.state().Nodes["beta"].Watchdog)
			}
			commits := o.commits
			if err := greet(); err != nil || o.commits != commits {
				t.Fatalf("nothing new: %v, %d commits", err, o.commits-commits)
			}
			claim.Number, claim.Armed = uint64(i+2), !claim.Armed
		}
		o.lose = func(state.Command) bool { return true }
		if err := greet(); err == nil {
			t.Error("answered, though it is not known whether the claim is committed")
		}
		o.lose = nil
		claim.Number = 1
		if err := greet(); !errors.Is(err, state.ErrSuperseded) {
			t.Errorf("a late claim: %v", err)
		}
	})
}

// TestNoClaimInTheFirstFormat: a cluster that does not know of claims yet goes on without.
func TestNoClaimInTheFirstFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.leads = true
		if _, err := o.Hello(t.Context(), "beta", coordinator.Hello{Boot: "beta-1", Applied: o.state().Applied, Watchdog: &counts}); err != nil {
			t.Fatal(err)
		}
		if o.state().Nodes["beta"].Watchdog != nil {
			t.Error("claimed")
		}
	})
}
