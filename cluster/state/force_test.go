package state

import "testing"

// TestForcedQuorumLiftsTokens: and takes every other node for one that may hold what this log does not know.
func TestForcedQuorumLiftsTokens(t *testing.T) {
	l := newLog(t)
	l.must(upgrade(2))
	l.must(joinAs("alpha", "a1", ""))
	l.must(joinAs("beta", "b1", ""))
	last := l.must(grant("db", "beta", "b1")).Token
	l.refuse(Command{Force: &Force{Node: "alpha", By: ByCluster}}, ErrConflict)
	l.refuse(Command{Force: &Force{Node: "nobody", By: "anna"}}, ErrUnknown)
	l.must(Command{Force: &Force{Node: "alpha", By: "anna", Reason: "the other room burnt down"}})
	if f := l.s.Forced; len(f) != 1 || f[0].Token != last || f[0].By != "anna" || l.s.LastToken != last+Lift {
		t.Fatalf("%+v, last token %d", f, l.s.LastToken)
	}
	// www was held by nobody, as far as this log knows.
	l.refuse(grant("www", "alpha", "a1"), ErrConflict)
	if held := l.s.Holds("beta"); len(held) != 2 {
		t.Fatalf("beta may hold %v", held)
	}
	// beta's own word settles it, and so does a proof.
	before := l.s
	l.must(joinAs("beta", "b1", "again"))
	if token := l.must(grant("www", "alpha", "a1")).Token; token != last+Lift+1 {
		t.Fatalf("token %d", token)
	}
	l.s = before
	l.must(confirm("beta", "b1", "anna"))
	l.must(grant("www", "alpha", "a1"))
	l.must(grant("db", "alpha", "a1"))
}

// TestCopyElsewhereIsNoFailure: the node that could not start it, because it may be active elsewhere, may try again.
func TestCopyElsewhereIsNoFailure(t *testing.T) {
	l := newLog(t)
	l.must(upgrade(2))
	l.must(joinAs("alpha", "a1", ""))
	l.must(joinAs("beta", "b1", ""))
	token := l.must(grant("db", "alpha", "a1")).Token
	l.must(Command{Force: &Force{Node: "alpha", By: "anna"}})
	report := &Report{Group: "db", Token: token, Node: "alpha", Boot: "a1", Error: "found active on beta"}
	l.must(Command{Failed: report})
	if g := l.s.Groups["db"]; len(g.Failures) > 0 || g.Grant.Phase != Stopping {
		t.Fatalf("%+v", g)
	}
	l.must(Command{Stopped: report})
	l.must(confirm("beta", "b1", "anna"))
	l.must(grant("db", "alpha", "a1"))
}

// TestForcedIsRememberedForEver: of very many the first and the last ones.
func TestForcedIsRememberedForEver(t *testing.T) {
	l := newLog(t)
	l.must(upgrade(2))
	for range keepForced + 10 {
		l.must(Command{Force: &Force{Node: "alpha", By: "anna"}})
	}
	f := l.s.Forced
	if len(f) != keepForced || f[0].Token != 0 || f[len(f)-1].Token != (keepForced+9)*Lift {
		t.Fatalf("%d remembered, from %+v to %+v", len(f), f[0], f[len(f)-1])
	}
}

// TestForcedForgetsWatchdogs: whoever coordinated beside this log may have answered a node since its claim, so that its watchdog
// is fed while nothing is heard of it here.
func TestForcedForgetsWatchdogs(t *testing.T) {
	l := newLog(t)
	l.must(upgrade(2))
	claim := &WatchdogClaim{Number: 1, Armed: true, Tested: true, ExpiryMS: 1000}
	for _, n := range []string{"alpha", "beta"} {
		l.must(Command{Join: &Join{Node: n, Boot: n + "1", Watchdog: claim}})
	}
	token := l.must(grant("db", "beta", "beta1")).Token
	l.must(Command{Force: &Force{Node: "alpha", By: "anna"}})
	if l.s.Nodes["beta"].Watchdog != nil || l.s.Nodes["alpha"].Watchdog == nil {
		t.Errorf("beta: %+v, alpha: %+v", l.s.Nodes["beta"].Watchdog, l.s.Nodes["alpha"].Watchdog)
	}
	if old, new := (&Grant{Token: token}), (&Grant{Token: l.s.LastToken + 1}); !l.s.Stale(old) || l.s.Stale(new) {
		t.Error("what is older than that")
	}
}
