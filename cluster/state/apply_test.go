package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// log applies commands one after the other and checks every invariant after each.
type log struct {
	t interface {
		Helper()
		Fatalf(string, ...any)
	}
	s     *State
	index uint64
}

func newLog(t *testing.T) *log {
	l := &log{t: t, s: &State{}}
	l.must(Command{Configure: testConfig})
	return l
}

var testConfig = &Configure{
	Cluster: "web",
	Nodes:   []ConfigNode{{Name: "alpha", Role: Member}, {Name: "beta", Role: Member}, {Name: "gamma", Role: Witness}},
	Groups:  []ConfigGroup{{Name: "db"}, {Name: "www"}},
}

func (l *log) apply(c Command) Result {
	l.t.Helper()
	l.index += 3 // probes and elections take indexes as well
	next, res := Apply(l.s, l.index, c)
	if err := errors.Join(CheckStep(l.s, next), Check(next)); err != nil {
		l.t.Fatalf("after %+v: %v", c, err)
	}
	l.s = next
	return res
}

func (l *log) must(c Command) Result {
	l.t.Helper()
	res := l.apply(c)
	if res.Err != nil {
		l.t.Fatalf("%+v: %v", c, res.Err)
	}
	return res
}

func (l *log) refuse(c Command, want error) {
	l.t.Helper()
	before, _ := json.Marshal(l.s)
	res := l.apply(c)
	if !errors.Is(res.Err, want) {
		l.t.Fatalf("%+v: got %v, want %v", c, res.Err, want)
	}
	s := *l.s
	s.Applied -= 3
	s.Clock -= c.Elapsed
	if after, _ := json.Marshal(&s); string(before) != string(after) {
		l.t.Fatalf("a refused command changed the state\nbefore %s\nafter  %s", before, after)
	}
}

func join(node, boot string) Command { return Command{Join: &Join{Node: node, Boot: boot}} }
func grant(group, node, boot string) Command {
	return Command{Grant: &GrantGroup{Group: group, Node: node, Boot: boot}}
}
func fence(node, boot string, a FenceAction) Command {
	return Command{Order: &Order{Node: node, Boot: boot, Action: a, Reason: "silent", By: ByCluster}}
}

func TestTakeover(t *testing.T) {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	l.must(join("beta", "b1"))
	tok := l.must(grant("db", "alpha", "a1")).Token
	l.refuse(grant("db", "beta", "b1"), ErrConflict)
	l.must(Command{Started: &Report{Group: "db", Token: tok, Node: "alpha", Boot: "a1"}})

	op := l.must(fence("alpha", "a1", FenceReboot)).Op
	l.refuse(fence("alpha", "a1", FenceOff), ErrConflict)
	l.refuse(Command{ShotProven: &ShotProven{Op: op, Executor: "beta", Evidence: []string{"off"}}}, ErrConflict)
	l.refuse(Command{Shoot: &Shoot{Op: op, Executor: "alpha"}}, ErrConflict)
	l.must(Command{Shoot: &Shoot{Op: op, Executor: "beta"}})
	l.refuse(Command{CallOff: &CallOff{Op: op}}, ErrConflict)
	l.refuse(grant("db", "beta", "b1"), ErrConflict)
	l.refuse(Command{ShotProven: &ShotProven{Op: op, Executor: "beta"}}, ErrConflict)
	l.must(Command{ShotFailed: &ShotFailed{Op: op, Executor: "beta", Error: "no answer"}})
	l.must(Command{ShotProven: &ShotProven{Op: op, Executor: "beta", Evidence: []string{"alpha-bmc: Off"}}})

	next := l.must(grant("db", "beta", "b1")).Token
	if next <= tok {
		t.Fatalf("token %d after %d", next, tok)
	}
	l.refuse(Command{Started: &Report{Group: "db", Token: tok, Node: "alpha", Boot: "a1"}}, ErrSuperseded)
	l.refuse(join("alpha", "a1"), ErrBootEnded)
	l.must(Command{PoweredOn: &PoweredOn{Op: op}})
	l.must(join("alpha", "a2"))
	if o := l.s.Operations[op]; o.Open() || o.Proof.Kind != PowerOff {
		t.Fatalf("operation %+v", o)
	}
}

func TestNewBootIsProof(t *testing.T) {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	l.must(grant("db", "alpha", "a1"))
	op := l.must(fence("alpha", "a1", FenceReboot)).Op
	l.must(join("alpha", "a2"))
	if o := l.s.Operations[op]; o.Phase != Done || o.Proof.Kind != NewBoot {
		t.Fatalf("operation %+v", o)
	}
	if g := l.s.Groups["db"]; g.Grant != nil || g.Released.Proof.Kind != NewBoot {
		t.Fatalf("group %+v", g)
	}
	l.refuse(Command{Shoot: &Shoot{Op: op, Executor: "beta"}}, ErrSuperseded)
	l.refuse(fence("alpha", "a1", FenceOff), ErrSuperseded)
	l.refuse(join("alpha", "a1"), ErrBootEnded)
	l.must(grant("db", "alpha", "a2"))
}

func TestFoundActiveBlocks(t *testing.T) {
	l := newLog(t)
	l.must(join("beta", "b1"))
	l.must(Command{Join: &Join{Node: "alpha", Boot: "a1", Found: map[string]string{"db": "process 7"}}})
	l.refuse(grant("db", "beta", "b1"), ErrConflict)
	if held := l.s.Holds("alpha"); len(held) != 1 {
		t.Fatalf("holds %v", held)
	}
	l.must(join("alpha", "a1"))
	l.must(grant("db", "beta", "b1"))
}

func TestStopFailedNeedsFencing(t *testing.T) {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	tok := l.must(grant("db", "alpha", "a1")).Token
	r := &Report{Group: "db", Token: tok, Node: "alpha", Boot: "a1", Resource: "data", Error: "busy"}
	l.must(Command{StopFailed: r})
	if l.s.Nodes["alpha"].Unclean == "" {
		t.Fatal("alpha does not need fencing")
	}
	l.must(Command{Clear: &Clear{Group: "db"}})
	if l.s.Nodes["alpha"].Unclean == "" {
		t.Fatal("clearing failures ended the need for fencing")
	}
	l.refuse(Command{Leave: &Leave{Node: "alpha", Boot: "a1"}}, ErrConflict)
}

func TestReportOfAnEarlierDaemon(t *testing.T) {
	l := newLog(t)
	l.must(Command{Join: &Join{Node: "alpha", Boot: "a1", Session: "one"}})
	tok := l.must(grant("db", "alpha", "a1")).Token
	late := Command{Stopped: &Report{Group: "db", Token: tok, Node: "alpha", Boot: "a1", Session: "one"}}
	l.must(Command{Join: &Join{Node: "alpha", Boot: "a1", Session: "two"}})
	l.refuse(late, ErrSession)
	late.Stopped.Session = "two"
	l.must(late)
}

func TestLeave(t *testing.T) {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	tok := l.must(grant("db", "alpha", "a1")).Token
	l.refuse(Command{Leave: &Leave{Node: "alpha", Boot: "a1"}}, ErrConflict)
	l.must(Command{Stopped: &Report{Group: "db", Token: tok, Node: "alpha", Boot: "a1"}})
	l.must(Command{Leave: &Leave{Node: "alpha", Boot: "a1"}})
	l.refuse(grant("db", "alpha", "a1"), ErrSuperseded)
	l.refuse(fence("alpha", "a1", FenceOff), ErrSuperseded)
	l.must(join("alpha", "a1"))
}

func TestConfigureKeepsWhatIsHeld(t *testing.T) {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	tok := l.must(grant("db", "alpha", "a1")).Token
	l.refuse(Command{Configure: &Configure{Cluster: "web", Nodes: []ConfigNode{{Name: "beta", Role: Member}}}}, ErrConflict)
	l.refuse(Command{Configure: &Configure{Cluster: "other", Nodes: testConfig.Nodes}}, ErrConflict)
	l.must(Command{Configure: &Configure{Cluster: "web", Nodes: testConfig.Nodes}})
	if g := l.s.Groups["db"]; g == nil || !g.Removed || l.s.Groups["www"] != nil {
		t.Fatalf("groups %v", l.s.Groups)
	}
	l.must(Command{Stopped: &Report{Group: "db", Token: tok, Node: "alpha", Boot: "a1"}})
	if l.s.Groups["db"] != nil {
		t.Fatal("a removed group stayed after its grant")
	}
}

func TestOldVersionIsRefused(t *testing.T) {
	for _, v := range []int{0, Version + 1} {
		if _, err := Decode(fmt.Appendf(nil, `{"v":%d,"join":{"node":"alpha"}}`, v)); !errors.Is(err, ErrVersion) {
			t.Fatal(v, err)
		}
	}
}

// TestInvariantsHold throws random commands, sensible and not, at the state.
func TestInvariantsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &log{t: t, s: &State{}}
		l.must(Command{Configure: testConfig})
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			l.apply(drawCommand(t, l.s))
		}
	})
}

func drawCommand(t *rapid.T, s *State) Command {
	node := rapid.SampledFrom([]string{"alpha", "beta", "gamma", "nobody"}).Draw(t, "node")
	boot := fmt.Sprintf("%s%d", node[:1], rapid.IntRange(1, 4).Draw(t, "boot"))
	if n := s.Nodes[node]; n != nil && rapid.IntRange(0, 3).Draw(t, "current") > 0 {
		boot = n.Boot
	}
	group := rapid.SampledFrom([]string{"db", "www"}).Draw(t, "group")
	token := rapid.Uint64Range(0, s.LastToken+1).Draw(t, "token")
	op := rapid.Uint64Range(0, s.LastOp+1).Draw(t, "op")
	if n := s.Nodes[node]; n != nil && n.Op != 0 {
		op = n.Op
	}
	r := &Report{Group: group, Token: token, Node: node, Boot: boot, Error: "broken"}
	if g := s.Groups[group]; g != nil && g.Grant != nil && rapid.Bool().Draw(t, "right report") {
		r = &Report{Group: group, Token: g.Grant.Token, Node: g.Grant.Node, Boot: g.Grant.Boot}
	}
	action := rapid.SampledFrom([]FenceAction{FenceOff, FenceReboot, FenceOn, FenceRehearse, FenceConfirm}).Draw(t, "action")
	executor := rapid.SampledFrom([]string{"beta", "gamma"}).Draw(t, "executor")
	if o := s.Operations[op]; o != nil && o.Executor != "" && rapid.IntRange(0, 3).Draw(t, "its executor") > 0 {
		executor = o.Executor
	}
	devices := rapid.SliceOfN(rapid.Custom(drawDevice), 0, 3).Draw(t, "devices")
	by := rapid.SampledFrom([]string{"root", "root", ByCluster, ""}).Draw(t, "by")
	var found map[string]string
	if rapid.IntRange(0, 4).Draw(t, "found") == 0 {
		found = map[string]string{group: "something"}
	}
	c := rapid.SampledFrom([]Command{
		{Join: &Join{Node: node, Boot: boot, Found: found}},
		{Leave: &Leave{Node: node, Boot: boot}},
		fence(node, boot, action),
		{Order: &Order{Node: node, Boot: boot, Action: action, By: "root", Reason: "by hand"}},
		{CallOff: &CallOff{Op: op}},
		{Shoot: &Shoot{Op: op, Executor: executor}},
		{ShotFailed: &ShotFailed{Op: op, Executor: executor, Error: "no answer", Devices: devices}},
		{ShotProven: &ShotProven{Op: op, Executor: executor, Evidence: []string{"off"}, Devices: devices}},
		{Standby: &Standby{Node: node, On: rapid.IntRange(0, 2).Draw(t, "standby") > 0, By: by}},
		{Confirm: &Confirm{Node: node, Boot: boot, By: by, Reason: "pulled the plug"}},
		{Tick: &Tick{}},
		{PoweredOn: &PoweredOn{Op: op}},
		grant(group, node, boot),
		{Stop: &StopGroup{Group: group, Token: token}},
		{Started: r}, {Stopped: r}, {Failed: r}, {StopFailed: r},
		{Clear: &Clear{Group: group}},
		{Away: &Away{Node: node, Boot: boot, For: rapid.Int64Range(-1, 1<<40).Draw(t, "away")}},
		{Leaving: &Leaving{Node: node, Boot: boot}},
		{Upgrade: &Upgrade{Version: rapid.IntRange(0, 3).Draw(t, "format")}},
		{Force: &Force{Node: node, By: by}},
		drawWord(t, s, node, group, token), drawWord(t, s, node, group, token),
	}).Draw(t, "command")
	c.Elapsed = rapid.Int64Range(-10, 5000).Draw(t, "elapsed")
	return c
}

// drawWord draws what operators say of groups, and what comes of failures.
func drawWord(t *rapid.T, s *State, node, group string, token uint64) Command {
	on := rapid.Bool().Draw(t, "on")
	lasts := rapid.Int64Range(-1, 1<<62).Draw(t, "for")
	e := &Expire{Group: group, Node: node, Count: 1}
	if g := s.Groups[group]; g != nil {
		e.Count = g.Failures[node].Count
	}
	r := &Report{Group: group, Token: token, Node: node, Error: "broken", Verdict: rapid.SampledFrom([]Verdict{Halt, Fence, "odd"}).Draw(t, "verdict")}
	if g := s.Groups[group]; g != nil && g.Grant != nil {
		r.Token, r.Node, r.Boot, token = g.Grant.Token, g.Grant.Node, g.Grant.Boot, g.Grant.Token
	}
	rules := Rules{Allow: rapid.SampledFrom([][]string{nil, nil, {"alpha"}, {"beta"}}).Draw(t, "allow")}
	return rapid.SampledFrom([]Command{
		enable(group, on), maintain(node, "", on), maintain("", group, on), maintain("", "", on),
		move(group, node, "", lasts), move(group, "", node, lasts), move(group, "", "", 0),
		restart(group, token), {Expire: e}, {Failed: r}, {StopFailed: r}, configured(ConfigGroup{Name: "db", Rules: rules}, ConfigGroup{Name: "www"}),
	}).Draw(t, "word")
}

func drawDevice(t *rapid.T) DeviceResult {
	return DeviceResult{
		Level: 1, Device: rapid.SampledFrom([]string{"bmc", "pdu"}).Draw(t, "device"), State: "off",
		WasOff: rapid.Bool().Draw(t, "was off"), Commands: rapid.IntRange(0, 2).Draw(t, "commands"), TookMS: 5,
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range []Command{join("alpha", "a1"), grant("db", "alpha", "a1"), fence("alpha", "a1", FenceOff), {Configure: testConfig},
		standby("alpha", true), confirm("alpha", "", "root"), proven(3, "beta", DeviceResult{Device: "bmc"}), {Tick: &Tick{}, Elapsed: 5},
		enable("db", false), maintain("alpha", "", true), move("db", "alpha", "", 5), restart("db", 3), {Expire: &Expire{Group: "db", Node: "alpha", Count: 1}}} {
		b, err := c.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(b)
		if err != nil {
			return
		}
		base, _ := Apply(&State{}, 1, Command{Configure: testConfig})
		next, _ := Apply(base, 2, c)
		if err := CheckStep(base, next); err != nil && c.Configure == nil {
			t.Fatal(err)
		}
	})
}
