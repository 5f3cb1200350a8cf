package state

import (
	"slices"
	"strings"
	"testing"
)

// claims is a greeting that tells of the node's watchdog.
func claims(node, boot, session string, c WatchdogClaim) Command {
	return Command{Join: &Join{Node: node, Boot: boot, Session: session, Watchdog: &c}}
}

var counts = WatchdogClaim{Number: 1, Armed: true, Tested: true, ExpiryMS: 100_000}

func expired(op uint64, by string) Command {
	return Command{ShotProven: &ShotProven{Op: op, Executor: by, Evidence: []string{"silent for long enough"}, Kind: Watchdog}}
}

// silent brings a node with that claim so far that its devices were tried in vain.
func (l *log) silent(c *WatchdogClaim, a FenceAction) uint64 {
	l.must(upgrade(2))
	l.must(Command{Join: &Join{Node: "alpha", Boot: "a1", Session: "s1", Watchdog: c}})
	l.must(join("beta", "b1"))
	l.must(grant("db", "alpha", "a1"))
	op := l.must(fence("alpha", "a1", a)).Op
	l.must(shoot(op, "beta"))
	l.must(missed(op, "beta"))
	return op
}

func TestWatchdogProof(t *testing.T) {
	for _, action := range []FenceAction{FenceOff, FenceReboot} {
		l := newLog(t)
		op := l.silent(&counts, action)
		l.must(expired(op, "beta"))
		o, n := l.s.Operations[op], l.s.Nodes["alpha"]
		if o.Phase != Done || o.Proof.Kind != Watchdog || !strings.Contains(o.Note, "nothing was read off") || n.Op != 0 || n.Up || n.Watchdog != nil || len(n.Fenced) > 0 {
			t.Errorf("%s: %+v %+v", action, o, n)
		}
		if g := l.s.Groups["db"]; g.Grant != nil || g.Released.Proof.Kind != Watchdog {
			t.Errorf("%s: %+v", action, g)
		}
	}
}

// TestWatchdogProvesNothing holds the state to the claim: whatever a coordinator measured.
func TestWatchdogProvesNothing(t *testing.T) {
	with := func(change func(*WatchdogClaim)) *WatchdogClaim {
		c := counts
		change(&c)
		return &c
	}
	for name, c := range map[string]*WatchdogClaim{
		"none":        nil,
		"not armed":   with(func(c *WatchdogClaim) { c.Armed = false }),
		"not tested":  with(func(c *WatchdogClaim) { c.Tested = false }),
		"without end": with(func(c *WatchdogClaim) { c.ExpiryMS = 0 }),
	} {
		l := newLog(t)
		op := l.silent(c, FenceOff)
		if l.refuse(expired(op, "beta"), ErrConflict); l.s.Operations[op].Proof != nil {
			t.Error(name)
		}
	}
	l := newLog(t)
	op := l.silent(&counts, FenceOff)
	two := *testConfig
	two.TwoNode = true
	l.must(Command{Configure: &two})
	l.refuse(expired(op, "beta"), ErrConflict)

	l = newLog(t)
	l.must(upgrade(2))
	l.must(claims("alpha", "a1", "s1", counts))
	op = l.must(fence("alpha", "a1", FenceOff)).Op
	l.must(shoot(op, "beta"))
	l.refuse(expired(op, "beta"), ErrConflict) // its devices were not tried
}

// TestClaimNeedsTheFormat: before all nodes know what a claim is, there is none.
func TestClaimNeedsTheFormat(t *testing.T) {
	l := newLog(t)
	l.refuse(claims("alpha", "a1", "s1", counts), ErrFormat)
	l.must(upgrade(2))
	l.must(claims("alpha", "a1", "s1", counts))
}

// TestClaimsKeepTheirOrder: one that was overtaken on its way does not come back, and each boot and each daemon speaks for
// itself.
func TestClaimsKeepTheirOrder(t *testing.T) {
	l := newLog(t)
	l.must(upgrade(2))
	l.must(claims("alpha", "a1", "s1", counts))
	excused := WatchdogClaim{Number: 2, Tested: true, ExpiryMS: 100_000, Why: "maintenance"}
	l.must(claims("alpha", "a1", "s1", excused))
	l.refuse(claims("alpha", "a1", "s1", counts), ErrSuperseded)
	if c := l.s.Nodes["alpha"].Watchdog; c.Armed || c.Why != "maintenance" {
		t.Fatalf("%+v", c)
	}
	l.must(claims("alpha", "a1", "s2", counts))
	if c := l.s.Nodes["alpha"].Watchdog; !c.Armed {
		t.Fatalf("another daemon: %+v", c)
	}
	l.must(joinAs("alpha", "a1", "s2"))
	if c := l.s.Nodes["alpha"].Watchdog; c != nil {
		t.Fatalf("a daemon that tells of none: %+v", c)
	}
	l.must(claims("alpha", "a1", "s2", counts))
	l.must(joinAs("alpha", "a2", "s3"))
	if n := l.s.Nodes["alpha"]; n.Watchdog != nil || !slices.Contains(n.Ended, "a1") {
		t.Fatalf("another boot: %+v", n)
	}
}
