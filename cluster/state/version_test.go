package state

import "testing"

func upgrade(v int) Command { return Command{Upgrade: &Upgrade{Version: v}} }

// TestFormatIsTheLowest: before all nodes know a command it is neither said nor taken.
func TestFormatIsTheLowest(t *testing.T) {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	away := Command{Away: &Away{Node: "alpha", Boot: "a1", For: 5}}
	text := *testConfig
	text.Text = "[cluster]"
	for _, c := range []Command{away, {Leaving: &Leaving{Node: "alpha", Boot: "a1"}}, {Force: &Force{Node: "alpha", By: "root"}}, {Configure: &text}} {
		if c.Needs() != 2 {
			t.Errorf("%+v needs version %d", c, c.Needs())
		}
		l.refuse(c, ErrFormat)
	}
	l.must(Command{Configure: testConfig})
	if l.s.Configured.Index != 0 {
		t.Fatal("a snapshot for daemons of the first format says what they do not know")
	}
	l.must(upgrade(2))
	l.refuse(upgrade(2), ErrSuperseded)
	l.refuse(upgrade(1), ErrSuperseded)
	l.must(away)
	l.must(Command{Configure: &text})
}

// TestCommandsSayWhatTheyNeed: what was sayable in the first format still is said in it.
func TestCommandsSayWhatTheyNeed(t *testing.T) {
	for version, c := range map[string]Command{
		`{"v":1,"tick":{}}`:                   {Tick: &Tick{}},
		`{"v":2,"upgrade":{"version":2}}`:     upgrade(2),
		`{"v":2,"force":{"node":"","by":""}}`: {Force: &Force{}},
	} {
		if b, err := c.Encode(); err != nil || string(b) != version {
			t.Errorf("%s, %v; want %s", b, err, version)
		}
	}
}

func TestConfigureIsJudgedAgainstOne(t *testing.T) {
	l := newLog(t)
	l.must(upgrade(2))
	first := *testConfig
	first.Text, first.By = "one", "anna"
	l.must(Command{Configure: &first})
	if c := l.s.Configured; c.By != "anna" || c.Index != l.index || l.s.Text != "one" {
		t.Fatalf("%+v", c)
	}
	second, third := first, first
	second.Text, second.From = "two", l.index
	third.Text, third.From = "three", l.index
	l.must(Command{Configure: &second})
	l.refuse(Command{Configure: &third}, ErrSuperseded)
	if l.s.Text != "two" {
		t.Fatal(l.s.Text)
	}
	third.From, third.LastToken = l.s.Configured.Index, l.s.LastToken
	l.must(join("alpha", "a1"))
	l.must(grant("db", "alpha", "a1"))
	l.refuse(Command{Configure: &third}, ErrSuperseded) // it was judged without that grant
	third.LastToken = l.s.LastToken
	l.must(Command{Configure: &third})
}

func TestNoOtherKindOfShot(t *testing.T) {
	l := newLog(t)
	l.must(upgrade(2))
	l.must(claims("alpha", "a1", "s1", counts))
	op := l.must(fence("alpha", "a1", FenceOff)).Op
	l.must(Command{Shoot: &Shoot{Op: op, Executor: "beta"}})
	l.must(missed(op, "beta"))
	p := ShotProven{Op: op, Executor: "beta", Evidence: []string{"silent for longer than its watchdog"}, Kind: OperatorWord}
	l.refuse(Command{ShotProven: &p}, ErrConflict)
	q := p
	q.Kind = Watchdog
	l.must(Command{ShotProven: &q})
	if o := l.s.Operations[op]; o.Proof.Kind != Watchdog {
		t.Fatalf("%+v", o.Proof)
	}
}
