package state

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func enable(group string, on bool) Command {
	return Command{Enable: &Enable{Group: group, On: on, By: "root"}}
}

func maintain(node, group string, on bool) Command {
	return Command{Maintain: &Maintain{Node: node, Group: group, On: on, By: "root"}}
}

func move(group, to, from string, ms int64) Command {
	return Command{Move: &MoveGroup{Group: group, To: to, From: from, For: ms, By: "root"}}
}

func restart(group string, token uint64) Command {
	return Command{Restart: &RestartGroup{Group: group, Token: token, By: "root"}}
}

func configured(groups ...ConfigGroup) Command {
	return Command{Configure: &Configure{Cluster: "web", Nodes: testConfig.Nodes, Groups: groups}}
}

func (l *log) report(group string) *Report {
	gr := l.s.Groups[group].Grant
	return &Report{Group: group, Token: gr.Token, Node: gr.Node, Boot: gr.Boot, Resource: "app", Error: "exit status 1"}
}

// start grants a group and has it started.
func (l *log) start(group, node, boot string) uint64 {
	l.t.Helper()
	token := l.must(grant(group, node, boot)).Token
	l.must(Command{Started: l.report(group)})
	return token
}

func newJoined(t *testing.T) *log {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	l.must(join("beta", "b1"))
	return l
}

// TestUncleanNodeIsNotRemoved: that a node needs fencing outlives a clean stop that came late, and a new file (S6).
func TestUncleanNodeIsNotRemoved(t *testing.T) {
	l := newJoined(t)
	l.start("db", "alpha", "a1")
	l.must(maintain("alpha", "", true)) // so that nobody orders its fencing
	l.must(Command{StopFailed: l.report("db")})
	l.must(Command{Stopped: l.report("db")})
	without := *testConfig
	without.Nodes = without.Nodes[1:]
	l.refuse(Command{Configure: &without}, ErrConflict)
	l.must(join("alpha", "a2"))
	l.must(Command{Configure: &without})
}

// TestDecodeIsWhole: a node that does not know all that a command says must not apply a part of it.
func TestDecodeIsWhole(t *testing.T) {
	for _, more := range []string{
		`{"v":1,"promote":{"group":"db"}}`,
		`{"v":1,"grant":{"group":"db","node":"alpha","boot":"a1","promoted":true}}`,
		`{"v":1,"configure":{"cluster":"web","groups":[{"name":"db","clones":2}]}}`,
		`{"v":3,"tick":{}}`,
	} {
		if c, err := Decode([]byte(more)); !errors.Is(err, ErrVersion) {
			t.Errorf("%s: %+v, %v", more, c, err)
		}
	}
	for _, broken := range []string{``, `{"v":1,"grant":5}`, `{"v":1} {}`} {
		if c, err := Decode([]byte(broken)); err == nil || errors.Is(err, ErrVersion) {
			t.Errorf("%s: %+v, %v", broken, c, err)
		}
	}
}

func TestNoGrantAgainstAWord(t *testing.T) {
	for name, c := range map[string]struct{ begin, end []Command }{
		"disabled":               {[]Command{enable("db", false)}, []Command{enable("db", true)}},
		"group in maintenance":   {[]Command{maintain("", "db", true)}, []Command{maintain("", "db", false)}},
		"node in maintenance":    {[]Command{maintain("alpha", "", true)}, []Command{maintain("alpha", "", false)}},
		"cluster in maintenance": {[]Command{maintain("", "", true)}, []Command{maintain("", "", false)}},
		"not allowed":            {[]Command{configured(ConfigGroup{Name: "db", Rules: Rules{Allow: []string{"beta"}}})}, []Command{configured(ConfigGroup{Name: "db"})}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newJoined(t)
			for _, b := range c.begin {
				l.must(b)
			}
			l.refuse(grant("db", "alpha", "a1"), ErrConflict)
			for _, e := range c.end {
				l.must(e)
			}
			l.must(grant("db", "alpha", "a1"))
		})
	}
}

// TestWordsOutlastGrants: a word on a group that runs changes nothing of its grant, and binds the next one.
func TestWordsOutlastGrants(t *testing.T) {
	l := newJoined(t)
	token := l.start("db", "alpha", "a1")
	for _, c := range []Command{enable("db", false), maintain("", "db", true), maintain("alpha", "", true), maintain("", "", true)} {
		l.must(c)
		if gr := l.s.Groups["db"].Grant; gr == nil || gr.Token != token || gr.Phase != Started {
			t.Fatalf("after %+v: %+v", c, gr)
		}
	}
	l.must(maintain("", "", false))
	l.must(maintain("", "db", false))
	l.must(join("alpha", "a2"))
	l.must(maintain("alpha", "", false))
	l.refuse(grant("db", "alpha", "a2"), ErrConflict)
	l.must(configured(ConfigGroup{Name: "db"}))
	l.refuse(grant("db", "alpha", "a2"), ErrConflict)
}

func TestWordsOnWhatIsNot(t *testing.T) {
	l := newJoined(t)
	l.refuse(enable("nothing", true), ErrUnknown)
	l.refuse(maintain("nobody", "", true), ErrUnknown)
	l.refuse(maintain("", "nothing", true), ErrUnknown)
	l.refuse(maintain("alpha", "db", true), ErrConflict)
	l.refuse(move("nothing", "alpha", "", 0), ErrUnknown)
	l.refuse(move("db", "nobody", "", 0), ErrUnknown)
	l.refuse(move("db", "", "nobody", 0), ErrUnknown)
	l.refuse(move("db", "gamma", "", 0), ErrUnknown) // a witness
	l.refuse(move("db", "alpha", "alpha", 0), ErrConflict)
	l.refuse(restart("nothing", 1), ErrUnknown)
	l.refuse(restart("db", 0), ErrConflict) // nobody holds it
	l.refuse(Command{Expire: &Expire{Group: "nothing", Node: "alpha", Count: 1}}, ErrUnknown)
	l.must(configured(ConfigGroup{Name: "db", Rules: Rules{Allow: []string{"beta"}}}))
	l.refuse(move("db", "alpha", "", 0), ErrConflict)
}

// TestMaintenanceShootsNobody: the cluster orders nothing against a node in maintenance, nor begins what it ordered before.
func TestMaintenanceShootsNobody(t *testing.T) {
	for name, on := range map[string]Command{"node": maintain("alpha", "", true), "cluster": maintain("", "", true)} {
		t.Run(name, func(t *testing.T) {
			l := newJoined(t)
			l.start("db", "alpha", "a1")
			l.must(on)
			l.refuse(fence("alpha", "a1", FenceOff), ErrConflict)
			off := *on.Maintain
			off.On = false
			l.must(Command{Maintain: &off})
			op := l.must(fence("alpha", "a1", FenceOff)).Op
			l.must(on)
			l.refuse(shoot(op, "beta"), ErrConflict)
			if l.s.Nodes["alpha"].Unclean == "" {
				t.Fatal("the need for fencing is gone")
			}
			if got := l.must(order("alpha", "a1", FenceOff, "root")).Op; got != op { // an operator's order counts
				t.Fatalf("operation %d, not %d", got, op)
			}
			l.must(shoot(op, "beta"))
			l.must(proven(op, "beta"))
			if g := l.s.Groups["db"]; g.Grant != nil || l.s.GroupMaintained(g) == "" {
				t.Fatalf("db: %+v", g)
			}
			l.refuse(grant("db", "beta", "b1"), ErrConflict)
			l.must(Command{Maintain: &off})
			l.must(grant("db", "beta", "b1"))
		})
	}
}

// TestMaintenanceCarriesThrough: what was begun before goes on.
func TestMaintenanceCarriesThrough(t *testing.T) {
	l := newJoined(t)
	l.start("db", "alpha", "a1")
	op := l.must(fence("alpha", "a1", FenceReboot)).Op
	l.must(shoot(op, "beta"))
	l.must(maintain("alpha", "", true))
	l.must(missed(op, "beta"))
	l.must(shoot(op, "gamma"))
	l.must(proven(op, "gamma"))
	l.must(Command{PoweredOn: &PoweredOn{Op: op}})
}

// TestLostInMaintenance: a group that was lost with a node in maintenance waits for the end of that, and of no other.
func TestLostInMaintenance(t *testing.T) {
	l := newJoined(t)
	l.start("db", "alpha", "a1")
	l.start("www", "beta", "b1")
	l.must(join("beta", "b2"))
	l.must(maintain("beta", "", true)) // for repair: www was lost before
	l.must(grant("www", "alpha", "a1"))
	l.must(maintain("alpha", "", true))
	l.must(maintain("beta", "", false))
	l.must(join("alpha", "a2"))
	l.refuse(grant("db", "beta", "b2"), ErrConflict)
	l.must(maintain("alpha", "", false))
	l.must(maintain("alpha", "", true))
	l.must(grant("db", "beta", "b2"))
	l.must(Command{Stopped: l.report("db")})
	l.must(maintain("beta", "", true))
	l.must(maintain("alpha", "", false))
	l.must(grant("db", "alpha", "a2")) // it was stopped cleanly, not lost
}

func TestMoveEnds(t *testing.T) {
	wish := func(l *log) *Wish { return l.s.Groups["db"].Wish }
	t.Run("once it runs again", func(t *testing.T) {
		l := newJoined(t)
		l.start("db", "alpha", "a1")
		l.must(move("db", "beta", "", 0))
		l.must(Command{Started: l.report("db")}) // the old grant, told again
		if wish(l) == nil {
			t.Fatal("the wish ended before the move")
		}
		l.must(Command{Stop: &StopGroup{Group: "db", Token: 1}})
		l.must(Command{Stopped: l.report("db")})
		l.must(grant("db", "beta", "b1"))
		if wish(l) == nil {
			t.Fatal("the wish ended before the start")
		}
		l.must(Command{Started: l.report("db")})
		if wish(l) != nil {
			t.Fatalf("%+v", wish(l))
		}
	})
	t.Run("for a time", func(t *testing.T) {
		l := newJoined(t)
		l.start("db", "alpha", "a1")
		l.later(1000)
		l.must(move("db", "beta", "", 5000))
		if w := wish(l); w.Until != 6000 || w.Once {
			t.Fatalf("%+v", w)
		}
		l.must(Command{Stop: &StopGroup{Group: "db", Token: 1}})
		l.must(Command{Stopped: l.report("db")})
		l.start("db", "beta", "b1")
		if wish(l) == nil {
			t.Fatal("the wish ended before its time")
		}
	})
	t.Run("always", func(t *testing.T) {
		l := newJoined(t)
		l.must(move("db", "beta", "", 1<<62))
		if got := wish(l).Until; got != longestWish {
			t.Fatalf("until %d", got)
		}
		l.must(move("db", "", "beta", 0))
		if w := wish(l); w.Until != onceWithin || w.From != "beta" || w.To != "" {
			t.Fatalf("%+v", w)
		}
		l.must(move("db", "", "", 0))
		if wish(l) != nil {
			t.Fatalf("%+v", wish(l))
		}
	})
	t.Run("where it is already", func(t *testing.T) {
		l := newJoined(t)
		l.start("db", "alpha", "a1")
		for _, c := range []Command{move("db", "alpha", "", 0), move("db", "", "beta", 0)} {
			l.must(move("db", "beta", "", 5000))
			l.must(c)
			if wish(l) != nil {
				t.Fatalf("%+v: %+v", c, wish(l))
			}
		}
	})
}

func TestRestart(t *testing.T) {
	l := newJoined(t)
	token := l.start("db", "alpha", "a1")
	l.refuse(restart("db", token+1), ErrSuperseded)
	l.must(restart("db", token))
	l.must(restart("db", token)) // asked twice, done once
	w := l.s.Groups["db"].Wish
	if w == nil || !w.Restart || w.To != "alpha" || !w.Once || w.Until != onceWithin || l.s.Groups["db"].Grant.Phase != Started {
		t.Fatalf("%+v", l.s.Groups["db"])
	}
	l.must(Command{Started: l.report("db")}) // the old grant, told again
	if l.s.Groups["db"].Wish == nil {
		t.Fatal("the restart was forgotten")
	}
	l.must(Command{Stop: &StopGroup{Group: "db", Token: token}})
	l.refuse(restart("db", token), ErrConflict)
	l.must(Command{Stopped: l.report("db")})
	next := l.start("db", "alpha", "a1")
	if next <= token || l.s.Groups["db"].Wish != nil {
		t.Fatalf("token %d after %d: %+v", next, token, l.s.Groups["db"].Wish)
	}
	l.refuse(restart("db", token), ErrSuperseded)
	for _, m := range []Command{maintain("", "", true), maintain("alpha", "", true), maintain("", "db", true)} {
		l.must(m)
		l.refuse(restart("db", next), ErrConflict)
		m.Maintain.On = false
		l.must(m)
	}
}

// TestVerdicts: what the configuration wants of a failure is committed with it.
func TestVerdicts(t *testing.T) {
	t.Run("halt", func(t *testing.T) {
		for name, end := range map[string]Command{"clear": {Clear: &Clear{Group: "db"}}, "enable": enable("db", true)} {
			l := newJoined(t)
			l.start("db", "alpha", "a1")
			r := l.report("db")
			r.Verdict = Halt
			l.must(Command{Failed: r})
			if g := l.s.Groups["db"]; g.Grant.Phase != Stopping || !strings.Contains(g.Halted, "exit status 1") || l.s.Nodes["alpha"].Unclean != "" {
				t.Fatalf("%s: %+v", name, g)
			}
			l.must(Command{Stopped: l.report("db")})
			l.refuse(grant("db", "beta", "b1"), ErrConflict)
			l.must(end)
			l.must(grant("db", "beta", "b1"))
		}
	})
	t.Run("fence", func(t *testing.T) {
		l := newJoined(t)
		l.start("db", "alpha", "a1")
		r := l.report("db")
		r.Verdict = Fence
		l.must(Command{Failed: r})
		// Nothing but a proof ends the need.
		l.must(Command{Expire: &Expire{Group: "db", Node: "alpha", Count: 1}})
		l.must(Command{Clear: &Clear{Group: "db"}})
		l.must(enable("db", true))
		l.must(maintain("alpha", "", true))
		l.must(maintain("alpha", "", false))
		l.must(move("db", "beta", "", 0))
		l.must(Command{Stopped: l.report("db")})
		if l.s.Nodes["alpha"].Unclean == "" {
			t.Fatal("the need for fencing is gone")
		}
		l.refuse(grant("db", "alpha", "a1"), ErrConflict)
		l.must(join("alpha", "a2"))
		l.must(grant("db", "alpha", "a2"))
	})
}

func TestFailuresExpire(t *testing.T) {
	l := newJoined(t)
	expire := func(count int) Command { return Command{Expire: &Expire{Group: "db", Node: "alpha", Count: count}} }
	l.refuse(expire(0), ErrSuperseded)
	l.later(700)
	l.must(grant("db", "alpha", "a1"))
	l.must(Command{Failed: l.report("db")})
	l.must(Command{Stopped: l.report("db")})
	if f := l.s.Groups["db"].Failures["alpha"]; f.Count != 1 || f.Clock != 700 || f.Expired {
		t.Fatalf("%+v", f)
	}
	l.refuse(expire(2), ErrSuperseded)
	before := l.s.Groups["db"].Failures
	l.must(expire(1))
	if before["alpha"].Expired {
		t.Fatal("an earlier state changed")
	}
	l.refuse(expire(1), ErrSuperseded)
	l.must(grant("db", "alpha", "a1"))
	l.must(Command{Failed: l.report("db")})
	if f := l.s.Groups["db"].Failures["alpha"]; f.Count != 2 || f.Expired {
		t.Fatalf("a further failure does not count on: %+v", f)
	}
	l.must(Command{Stopped: l.report("db")})
	l.must(expire(2))
	l.start("db", "alpha", "a1")
	if f := l.s.Groups["db"].Failures; f != nil {
		t.Fatalf("it runs there, and is still remembered: %+v", f)
	}
}

func TestFailbackWindow(t *testing.T) {
	for _, c := range []struct {
		f      Failback
		minute int
		want   bool
	}{
		{Failback{}, 0, false}, {Failback{}, -1, false},
		{Failback{Always: true}, 700, true}, {Failback{Always: true}, -1, true},
		{Failback{From: 60, To: 120}, 59, false}, {Failback{From: 60, To: 120}, 60, true}, {Failback{From: 60, To: 120}, 119, true},
		{Failback{From: 60, To: 120}, 120, false}, {Failback{From: 60, To: 120}, -1, false},
		{Failback{From: 1320, To: 330}, 1319, false}, {Failback{From: 1320, To: 330}, 1320, true}, {Failback{From: 1320, To: 330}, 0, true},
		{Failback{From: 1320, To: 330}, 329, true}, {Failback{From: 1320, To: 330}, 330, false}, {Failback{From: 1320, To: 330}, -1, false},
	} {
		if got := c.f.Contains(c.minute); got != c.want {
			t.Errorf("%+v in minute %d: %v", c.f, c.minute, got)
		}
	}
}

// TestBatchIsApply: many commands in one batch come to what they come to one by one, and what was handed out stays as it is.
func TestBatchIsApply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &log{t: t, s: &State{}}
		l.must(Command{Configure: testConfig})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			l.apply(drawCommand(t, l.s))
		}
		one, start := l.s, text(t, l.s)
		batch := NewBatch(l.s)
		var handed []*State
		var texts []string
		for range rapid.IntRange(1, 20).Draw(t, "batch") {
			c := drawCommand(t, one)
			res := batch.Apply(c)
			if c.Grant == nil && c.Stop == nil && c.Started == nil && c.Stopped == nil {
				if res.Err == nil {
					t.Fatalf("%+v in a batch", c)
				}
				continue
			}
			next, want := Apply(one, one.Applied+1, c)
			if one = next; (res.Err == nil) != (want.Err == nil) || res.Token != want.Token {
				t.Fatalf("%+v: %+v, not %+v", c, res, want)
			}
			if rapid.Bool().Draw(t, "hand out") {
				handed, texts = append(handed, batch.State()), append(texts, text(t, one))
			}
		}
		for i, s := range append(handed, batch.State(), l.s) {
			if got, want := text(t, s), append(texts, text(t, one), start)[i]; got != want {
				t.Fatalf("state %d is\n%s, not\n%s", i, got, want)
			}
		}
	})
}

func text(t *rapid.T, s *State) string {
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAimIsRemembered: what was decided of a group that runs well stands until it has left; and what it left for in vain, it does not
// leave for again for a while.
func TestAimIsRemembered(t *testing.T) {
	setUp := func(t *testing.T) (*log, uint64) {
		l := newJoined(t)
		token := l.must(grant("db", "alpha", "a1")).Token
		l.must(Command{Aim: &AimGroup{Group: "db", Token: token, Node: "beta", Reason: "failback"}})
		if g := l.s.Groups["db"]; g.Aim != "beta" || g.AimReason != "failback" {
			t.Fatalf("%+v", g)
		}
		return l, token
	}
	leave := func(l *log, token uint64, to string) *Group {
		l.must(Command{Stop: &StopGroup{Group: "db", Token: token}})
		l.refuse(Command{Aim: &AimGroup{Group: "db", Token: token, Node: "beta"}}, ErrSuperseded)
		l.must(Command{Stopped: &Report{Group: "db", Token: token, Node: "alpha", Boot: "a1"}})
		l.must(grant("db", to, l.s.Nodes[to].Boot))
		return l.s.Groups["db"]
	}
	t.Run("arrived", func(t *testing.T) {
		l, token := setUp(t)
		if g := leave(l, token, "beta"); g.Aim != "" || g.AimReason != "" || g.Missed != nil {
			t.Errorf("%+v", g)
		}
	})
	t.Run("missed", func(t *testing.T) {
		l, token := setUp(t)
		if g := leave(l, token, "alpha"); g.Aim != "" || g.Missed == nil || g.Missed.Node != "beta" || g.Missed.Until != l.s.Clock+missedFor {
			t.Errorf("%+v", g)
		}
		l.must(move("www", "beta", "", 0)) // it may run with db
		if g := l.s.Groups["db"]; g.Missed != nil {
			t.Errorf("an operator's word is not heard: %+v", g)
		}
	})
	t.Run("given up", func(t *testing.T) {
		l, token := setUp(t)
		l.must(Command{Aim: &AimGroup{Group: "db", Token: token}})
		if g := l.s.Groups["db"]; g.Aim != "" || g.Missed == nil || g.Grant.Phase != Granted {
			t.Errorf("%+v", g)
		}
		l.must(Command{Clear: &Clear{Group: "db"}})
		if g := l.s.Groups["db"]; g.Missed != nil {
			t.Errorf("%+v", g)
		}
	})
	t.Run("withdrawn", func(t *testing.T) {
		l, _ := setUp(t)
		l.must(move("db", "", "", 0))
		if g := l.s.Groups["db"]; g.Aim != "" || g.Missed != nil {
			t.Errorf("%+v", g)
		}
	})
	l, token := setUp(t)
	l.refuse(Command{Aim: &AimGroup{Group: "db", Token: token + 1, Node: "beta"}}, ErrSuperseded)
	l.refuse(Command{Aim: &AimGroup{Group: "nothing", Token: token, Node: "beta"}}, ErrUnknown)
}
