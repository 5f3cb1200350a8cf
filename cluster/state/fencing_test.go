package state

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func order(node, boot string, a FenceAction, by string) Command {
	return Command{Order: &Order{Node: node, Boot: boot, Action: a, Reason: "because", By: by}}
}

func shoot(op uint64, by string) Command { return Command{Shoot: &Shoot{Op: op, Executor: by}} }

func proven(op uint64, by string, devices ...DeviceResult) Command {
	return Command{ShotProven: &ShotProven{Op: op, Executor: by, Evidence: []string{"read off twice"}, Devices: devices}}
}

func missed(op uint64, by string) Command {
	return Command{ShotFailed: &ShotFailed{Op: op, Executor: by, Error: "no answer"}}
}

func standby(node string, on bool) Command {
	return Command{Standby: &Standby{Node: node, On: on, By: "root"}}
}

func confirm(node, boot, by string) Command {
	return Command{Confirm: &Confirm{Node: node, Boot: boot, By: by, Reason: "I pulled its plug", Evidence: []string{"bmc: no answer"}}}
}

func (l *log) later(ms int64) { l.must(Command{Tick: &Tick{}, Elapsed: ms}) }

func TestClockOnlyGrows(t *testing.T) {
	l := newLog(t)
	l.later(500)
	l.later(-1 << 62)
	if l.s.Clock != 500 {
		t.Fatalf("the clock is at %d", l.s.Clock)
	}
	l.later(1 << 62)
	if l.s.Clock != 500+maxElapsed {
		t.Fatalf("the clock is at %d", l.s.Clock)
	}
	refused := grant("nothing", "alpha", "a1")
	refused.Elapsed = 7
	l.refuse(refused, ErrUnknown)
	if l.s.Clock != 507+maxElapsed {
		t.Fatalf("time stood still for a refused command: %d", l.s.Clock)
	}
	l.must(join("alpha", "a1"))
	c := order("alpha", "a1", FenceOff, ByCluster)
	c.Elapsed = 3
	if op := l.must(c).Op; l.s.Operations[op].Clock != 510+maxElapsed {
		t.Fatalf("ordered at %d", l.s.Operations[op].Clock)
	}
}

func TestStandbyHoldsNothing(t *testing.T) {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	l.must(standby("alpha", true))
	l.refuse(grant("db", "alpha", "a1"), ErrConflict)
	l.must(join("alpha", "a2"))
	l.refuse(grant("db", "alpha", "a2"), ErrConflict)
	l.must(standby("alpha", false))
	l.must(grant("db", "alpha", "a2"))
	l.refuse(standby("gamma", true), ErrConflict)
	l.refuse(standby("nobody", true), ErrUnknown)
}

func TestMachineIsKept(t *testing.T) {
	l := newLog(t)
	m := Machine{UUID: "4c4c4544-0031", Serial: "AB12"}
	l.must(Command{Join: &Join{Node: "alpha", Boot: "a1", Machine: m}})
	l.must(join("alpha", "a2"))
	if got := l.s.Nodes["alpha"].Machine; got != m {
		t.Fatalf("machine %+v", got)
	}
}

func TestOldExecutorIsNotBelieved(t *testing.T) {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	op := l.must(fence("alpha", "a1", FenceReboot)).Op
	l.refuse(missed(op, ""), ErrConflict) // before any attempt
	l.must(shoot(op, "beta"))
	l.must(shoot(op, "gamma"))
	l.refuse(proven(op, "beta"), ErrSuperseded)
	l.refuse(missed(op, "beta"), ErrSuperseded)
	l.must(proven(op, "gamma"))
}

// TestRehearsal is one from its order to the node's return.
func TestRehearsal(t *testing.T) {
	l := newLog(t)
	rehearse := Command{Order: &Order{Node: "alpha", Boot: "a1", Action: FenceRehearse, By: "root", Level: 2}}
	l.must(join("beta", "b1"))
	l.must(join("alpha", "a1"))
	l.must(standby("alpha", true))
	op := l.must(rehearse).Op
	if l.s.Nodes["alpha"].Unclean != "" {
		t.Fatal("a rehearsal made a healthy node unclean")
	}
	l.refuse(standby("alpha", false), ErrConflict)
	l.refuse(order("alpha", "a1", FenceOff, "root"), ErrConflict)
	l.must(shoot(op, "beta"))
	l.must(Command{Tick: &Tick{}, At: 1000})
	c := proven(op, "beta",
		DeviceResult{Level: 2, Device: "pdu-a", Plug: "3", State: "off", Commands: 1, TookMS: 700},
		DeviceResult{Level: 2, Device: "pdu-a", Plug: "4", State: "off", Commands: 1, TookMS: 900},
		DeviceResult{Level: 2, Device: "pdu-b", Plug: "3", State: "off", WasOff: true, TookMS: 20},
		DeviceResult{Level: 2, Device: "pdu-c", Plug: "3", State: "unknown", Commands: 1, TookMS: 20},
		DeviceResult{Level: 2, Device: "pdu-d", Plug: "3", State: "off", Commands: 1, Error: "then gone"},
		DeviceResult{Level: 2, Device: "pdu-e", Plug: "3", State: "off", WasOff: true, Commands: 1, TookMS: 20},
		DeviceResult{Level: 1, Device: "bmc", State: "off", TookMS: 20},
	)
	c.At = 5000
	l.must(c)
	n := l.s.Nodes["alpha"]
	if got := slices.Sorted(maps.Keys(n.Rehearsals)); !slices.Equal(got, []string{"pdu-a"}) {
		t.Fatalf("rehearsed: %v", got)
	}
	if r := n.Rehearsals["pdu-a"]; r.Op != op || r.Level != 2 || r.OffMS != 900 || r.At != 5000 || r.Executor != "beta" || !slices.Equal(r.Plugs, []string{"3", "4"}) {
		t.Fatalf("rehearsal %+v", r)
	}
	if o := l.s.Operations[op]; o.Phase != ProvenOff || n.Up || len(n.Fenced) != 0 {
		t.Fatalf("operation %+v of %+v", o, n)
	}
	l.refuse(join("alpha", "a1"), ErrBootEnded)
	l.must(Command{PoweredOn: &PoweredOn{Op: op}})
	l.must(join("alpha", "a2"))
	if n := l.s.Nodes["alpha"]; !n.Standby || len(n.Rehearsals) != 1 {
		t.Fatalf("after its return: %+v", n)
	}
}

func TestRehearsalIsOfWhoLosesNothing(t *testing.T) {
	l := newLog(t)
	rehearse := func(by string) Command { return order("alpha", "a1", FenceRehearse, by) }
	l.must(join("alpha", "a1"))
	l.refuse(rehearse("root"), ErrConflict) // not on standby
	tok := l.must(grant("db", "alpha", "a1")).Token
	l.must(standby("alpha", true))
	l.refuse(rehearse("root"), ErrConflict) // holds db
	l.must(Command{Stopped: &Report{Group: "db", Token: tok, Node: "alpha", Boot: "a1"}})
	l.refuse(rehearse(ByCluster), ErrConflict)
	l.refuse(rehearse(""), ErrConflict)
	l.refuse(order("alpha", "a0", FenceRehearse, "root"), ErrSuperseded)
	l.must(Command{Join: &Join{Node: "alpha", Boot: "a1", Found: map[string]string{"www": "process 7"}}})
	l.refuse(rehearse("root"), ErrConflict)
	l.must(join("alpha", "a1"))
	l.must(Command{Leave: &Leave{Node: "alpha", Boot: "a1"}})
	l.refuse(rehearse("root"), ErrConflict) // not in the cluster
	l.must(join("alpha", "a1"))
	l.must(standby("alpha", false))
	r := &Report{Group: "www", Token: l.must(grant("www", "alpha", "a1")).Token, Node: "alpha", Boot: "a1"}
	l.must(Command{StopFailed: r})
	l.must(Command{Stopped: r})
	l.must(standby("alpha", true))
	l.refuse(rehearse("root"), ErrConflict) // holds nothing, and needs fencing nevertheless
	l.must(join("alpha", "a2"))
	l.must(join("alpha", "a3"))
	rehearse = func(by string) Command { return order("alpha", "a3", FenceRehearse, by) }
	op := l.must(rehearse("root")).Op
	l.must(Command{CallOff: &CallOff{Op: op, Reason: "not now"}})
	op = l.must(rehearse("root")).Op
	l.must(shoot(op, "beta"))
	l.refuse(Command{CallOff: &CallOff{Op: op}}, ErrConflict)
}

func TestNoSuchAction(t *testing.T) {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	for _, a := range []FenceAction{FenceConfirm, "", "cycle"} {
		l.refuse(order("alpha", "a1", a, "root"), ErrUnknown)
	}
	l.refuse(Command{Order: &Order{Node: "alpha", Boot: "a1", Action: FenceOff, By: "root", Level: 1}}, ErrConflict)
}

func TestWitnessIsNotInStandby(t *testing.T) {
	l := newLog(t)
	demoted := Command{Configure: &Configure{Cluster: "web", Nodes: []ConfigNode{{Name: "alpha", Role: Witness}, {Name: "beta", Role: Member}, {Name: "gamma", Role: Witness}}}}
	l.must(join("alpha", "a1"))
	l.must(standby("alpha", true))
	op := l.must(order("alpha", "a1", FenceRehearse, "root")).Op
	l.refuse(demoted, ErrConflict)
	l.must(Command{CallOff: &CallOff{Op: op}})
	l.must(demoted)
	if l.s.Nodes["alpha"].Standby {
		t.Fatal("a witness is on standby")
	}
}

// TestFailedRehearsal: the node may be off, and is switched on again.
func TestFailedRehearsal(t *testing.T) {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	l.must(standby("alpha", true))
	op := l.must(order("alpha", "a1", FenceRehearse, "root")).Op
	l.must(shoot(op, "beta"))
	l.must(missed(op, "beta"))
	l.refuse(proven(op, "beta"), ErrConflict)
	l.must(standby("alpha", false))
	l.refuse(grant("db", "alpha", "a1"), ErrConflict)
	l.must(Command{PoweredOn: &PoweredOn{Op: op}})
	o := l.s.Operations[op]
	if o.Phase != Done || o.Proof != nil || o.Note != "rehearsal failed: no answer; powered on" || len(l.s.Nodes["alpha"].Rehearsals) != 0 {
		t.Fatalf("operation %+v", o)
	}
	l.must(grant("db", "alpha", "a1"))

	l.must(join("beta", "b1"))
	l.must(standby("beta", true))
	op = l.must(order("beta", "b1", FenceRehearse, "root")).Op
	l.must(shoot(op, "alpha"))
	l.must(join("beta", "b2"))
	if o := l.s.Operations[op]; !strings.Contains(o.Note, "the rehearsal proved nothing") || len(l.s.Nodes["beta"].Rehearsals) != 0 {
		t.Fatalf("operation %+v", o)
	}
}

func TestOperatorTakesOver(t *testing.T) {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	op := l.must(fence("alpha", "a1", FenceReboot)).Op
	for _, c := range []Command{order("alpha", "a1", FenceOn, "root"), order("alpha", "a1", FenceRehearse, "root"), order("alpha", "a1", FenceOff, "")} {
		l.refuse(c, ErrConflict)
	}
	l.refuse(order("alpha", "a0", FenceOff, "root"), ErrSuperseded)
	if res := l.must(order("alpha", "a1", FenceOff, "root")); res.Op != op {
		t.Fatalf("operation %d instead of %d", res.Op, op)
	}
	if o := l.s.Operations[op]; o.By != "root" || !o.Lasting || o.Action != FenceOff || !strings.Contains(o.Note, "taken over by root: because") {
		t.Fatalf("operation %+v", o)
	}
	l.refuse(Command{CallOff: &CallOff{Op: op}}, ErrConflict)
	l.refuse(order("alpha", "a1", FenceReboot, "anna"), ErrConflict)
	l.must(shoot(op, "beta"))
	l.must(proven(op, "beta"))
	if n := l.s.Nodes["alpha"]; n.Op != 0 || len(n.Fenced) != 0 {
		t.Fatalf("node %+v", n)
	}

	l.must(join("beta", "b1"))
	op = l.must(fence("beta", "b1", FenceOff)).Op
	l.must(shoot(op, "alpha"))
	l.must(order("beta", "b1", FenceReboot, "root"))
	if o := l.s.Operations[op]; o.By != "root" || o.Action != FenceOff || o.Phase != Shooting {
		t.Fatalf("operation %+v: the stricter action stands", o)
	}
}

func TestFencedIsCountedAndCleared(t *testing.T) {
	l := newLog(t)
	fenceOnce := func(boot string) {
		l.must(join("alpha", boot))
		op := l.must(fence("alpha", boot, FenceReboot)).Op
		l.must(shoot(op, "beta"))
		l.later(10)
		l.must(proven(op, "beta"))
		l.must(Command{PoweredOn: &PoweredOn{Op: op}})
	}
	for _, boot := range []string{"a1", "a2", "a3"} {
		fenceOnce(boot)
	}
	if f := l.s.Nodes["alpha"].Fenced; !slices.Equal(f, []int64{10, 20, 30}) {
		t.Fatalf("fenced at %v", f)
	}
	l.must(order("alpha", "a3", FenceOff, "root"))
	if f := l.s.Nodes["alpha"].Fenced; len(f) != 3 {
		t.Fatalf("off cleared it: %v", f)
	}
	l.must(join("alpha", "a4"))
	l.must(order("alpha", "a4", FenceOn, "root"))
	if f := l.s.Nodes["alpha"].Fenced; f != nil {
		t.Fatalf("fenced at %v", f)
	}
	for range 20 {
		l.must(join("alpha", "b"+string(rune('a'+l.index%26))))
		fenceOnce("c" + string(rune('a'+l.index%26)))
	}
	if f := l.s.Nodes["alpha"].Fenced; len(f) != keepFenced {
		t.Fatalf("fenced at %v", f)
	}
}

func TestConfirm(t *testing.T) {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	tok := l.must(grant("db", "alpha", "a1")).Token
	op := l.must(fence("alpha", "a1", FenceReboot)).Op
	l.must(shoot(op, "beta"))
	l.refuse(confirm("alpha", "a0", "root"), ErrSuperseded)
	l.refuse(confirm("alpha", "a1", ""), ErrConflict)
	l.refuse(confirm("alpha", "a1", ByCluster), ErrConflict)
	l.refuse(confirm("nobody", "", "root"), ErrUnknown)
	word := l.must(confirm("alpha", "a1", "root")).Op

	if o := l.s.Operations[op]; o.Phase != Done || o.Proof.Kind != OperatorWord || !strings.Contains(o.Note, "word of root, no fencing") {
		t.Fatalf("operation %+v", o)
	}
	if o := l.s.Operations[word]; o.Action != FenceConfirm || o.By != "root" || o.Phase != Done || o.Proof.Kind != OperatorWord ||
		!slices.Equal(o.Proof.Evidence, []string{"root confirmed it by hand: I pulled its plug", "bmc: no answer"}) {
		t.Fatalf("operation %+v", o)
	}
	if g := l.s.Groups["db"]; g.Grant != nil || g.Released.Token != tok || g.Released.Proof.Kind != OperatorWord {
		t.Fatalf("group %+v", g)
	}
	l.refuse(proven(op, "beta"), ErrSuperseded)
	l.refuse(join("alpha", "a1"), ErrBootEnded)
	if n := l.s.Nodes["alpha"]; n.Unclean != "" || n.Op != 0 || len(n.Fenced) != 0 {
		t.Fatalf("node %+v", n)
	}
	l.must(join("alpha", "a2"))
	l.refuse(confirm("alpha", "a1", "root"), ErrSuperseded)
}

// TestConfirmKeepsWhatIsProven: a node that was read back off stays proven by that.
func TestConfirmKeepsWhatIsProven(t *testing.T) {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	op := l.must(fence("alpha", "a1", FenceReboot)).Op
	l.must(shoot(op, "beta"))
	l.must(proven(op, "beta"))
	l.must(confirm("alpha", "a1", "root"))
	if o := l.s.Operations[op]; o.Phase != Done || o.Proof.Kind != PowerOff {
		t.Fatalf("operation %+v", o)
	}
	on := l.must(order("alpha", "a1", FenceOn, "root")).Op
	l.must(confirm("alpha", "a1", "root"))
	if l.s.Nodes["alpha"].Op != on {
		t.Fatal("a power-on was ended by the word that the node is down")
	}
}
