package state

import "testing"

func away(node, boot, session string, ms int64) Command {
	return Command{Away: &Away{Node: node, Boot: boot, Session: session, For: ms}}
}

func joinAs(node, boot, session string) Command {
	return Command{Join: &Join{Node: node, Boot: boot, Session: session}}
}

// TestAbsenceEnds: with the next daemon, with the boot, and at the latest with the longest time.
func TestAbsenceEnds(t *testing.T) {
	l := newLog(t)
	l.must(upgrade(2))
	l.must(joinAs("alpha", "a1", "one"))
	l.refuse(away("alpha", "a0", "one", 500), ErrSuperseded)
	l.refuse(away("alpha", "a1", "zero", 500), ErrSession)
	l.refuse(away("beta", "", "", 500), ErrSuperseded)
	l.must(away("alpha", "a1", "one", 1<<40))
	if a := l.s.Nodes["alpha"].Away; a == nil || a.Until != l.s.Clock+maxAway {
		t.Fatalf("%+v", a)
	}
	l.must(joinAs("alpha", "a1", "one")) // the same daemon speaks of something else
	if l.s.Nodes["alpha"].Away == nil {
		t.Fatal("the daemon that said so is back")
	}
	l.must(joinAs("alpha", "a1", "two"))
	if l.s.Nodes["alpha"].Away != nil {
		t.Fatal("away, and joined")
	}
	l.must(away("alpha", "a1", "two", 5))
	l.must(joinAs("alpha", "a2", "three"))
	if l.s.Nodes["alpha"].Away != nil {
		t.Fatal("away in a new boot")
	}
}

// TestLeavingTakesNothing: what is being stopped gets no group, and is online again with its next daemon.
func TestLeavingTakesNothing(t *testing.T) {
	l := newLog(t)
	l.must(upgrade(2))
	l.must(joinAs("alpha", "a1", "one"))
	l.must(grant("db", "alpha", "a1"))
	leaving := Command{Leaving: &Leaving{Node: "alpha", Boot: "a1", Session: "one"}}
	l.must(leaving)
	l.refuse(grant("www", "alpha", "a1"), ErrConflict)
	l.refuse(Command{Leave: &Leave{Node: "alpha", Boot: "a1"}}, ErrConflict)
	g := l.s.Groups["db"].Grant
	l.must(Command{Stopped: &Report{Group: "db", Token: g.Token, Node: "alpha", Boot: "a1", Session: "one"}})
	l.must(Command{Leave: &Leave{Node: "alpha", Boot: "a1"}})
	l.refuse(leaving, ErrSuperseded)
	l.must(joinAs("alpha", "a1", "two"))
	l.must(grant("www", "alpha", "a1"))
}
