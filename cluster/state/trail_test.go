package state

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestClip: whatever the text, it becomes one line of valid UTF-8, and as JSON no longer than allowed.
func TestClip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOfN(rapid.SampledFrom([]byte("ab <&\"\\\n\x00\x7f\xff\xc3\xa4\xe2\x80\xa8")), 0, 600).Draw(t, "bytes"))
		most := rapid.IntRange(20, 300).Draw(t, "most")
		got := clip(s, most)
		b, err := json.Marshal(got)
		if err != nil || len(b) > most+len(`""`) {
			t.Fatalf("%d bytes as JSON, at most %d: %v", len(b), most, err)
		}
		if !utf8.ValidString(got) || strings.ContainsAny(got, "\n\x00\u2028") {
			t.Fatalf("%q", got)
		}
		if short := "plain text"; clip(short, most) != short {
			t.Fatal("what fits was cut")
		}
	})
}

// TestTrailIsBounded fills the history to the brim with the worst that devices and operators can say.
func TestTrailIsBounded(t *testing.T) {
	const nodes = 32
	worst := strings.Repeat("<\"\xff\n", 2000)
	var many []string
	var devices []DeviceResult
	for i := range 200 {
		many = append(many, worst)
		devices = append(devices, DeviceResult{
			Level: 1 << 40, Device: fmt.Sprint(i, worst), Plug: worst, State: "off", Detail: worst,
			Commands: 1 << 40, TookMS: 1 << 50, Trouble: worst, Error: worst,
		})
	}
	small := make([]DeviceResult, 200)
	for i := range small {
		small[i] = DeviceResult{Level: 1, Device: fmt.Sprint("device-", i), Plug: worst, State: "off", Commands: 1, TookMS: 1000}
	}
	l := &log{t: t, s: &State{}}
	seed := &Configure{Cluster: "web"}
	for i := range nodes {
		seed.Nodes = append(seed.Nodes, ConfigNode{Name: fmt.Sprint("node", i), Role: Member})
	}
	l.must(Command{Configure: seed})
	hit := func(name, boot string, a FenceAction, failures int) {
		l.must(Command{Join: &Join{Node: name, Boot: boot, Machine: Machine{UUID: worst, Serial: worst}}})
		l.must(standby(name, a == FenceRehearse))
		op := l.must(Command{Order: &Order{Node: name, Boot: boot, Action: a, Reason: worst, By: worst}}).Op
		l.must(shoot(op, "beta"))
		for range failures {
			l.must(Command{ShotFailed: &ShotFailed{Op: op, Executor: "beta", Error: worst, Devices: devices, Opinions: many}})
		}
		if failures > keepAttempts {
			return // stays open
		}
		l.must(Command{ShotProven: &ShotProven{Op: op, Executor: "beta", Evidence: many, Devices: small, Opinions: many}})
		if a == FenceRehearse {
			l.must(Command{PoweredOn: &PoweredOn{Op: op}})
		}
	}
	for i := range keepOperations + 20 {
		name := fmt.Sprint("node", i%nodes)
		hit(name, fmt.Sprint("boot", i), FenceOff, 3)
		l.must(Command{Confirm: &Confirm{Node: name, Boot: fmt.Sprint("boot", i), By: worst, Reason: worst, Evidence: many}})
	}
	for i := range nodes {
		hit(fmt.Sprint("node", i), fmt.Sprint("rehearsed", i), FenceRehearse, 0)
	}
	for i := range keepOperations {
		hit(fmt.Sprint("node", i%nodes), fmt.Sprint("last", i), FenceOff, 3)
	}
	for i := range nodes {
		hit(fmt.Sprint("node", i), "open", FenceOff, keepAttempts+3)
	}
	b, err := json.Marshal(l.s)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.s.Operations) != keepOperations+nodes || len(b) > 4<<20 {
		t.Fatalf("%d operations, %d bytes", len(l.s.Operations), len(b))
	}
	t.Logf("%d KiB", len(b)>>10)
	o := l.s.OpenOperation("node0")
	if len(o.Trail) != keepAttempts || o.Trail[keepAttempts-1].Devices == nil || o.Trail[0].Devices != nil || o.Trail[0].Error == "" {
		t.Fatalf("the trail of an open operation: %d attempts", len(o.Trail))
	}
}

// TestTrailTellsWhatHappened: ordinary attempts are kept whole.
func TestTrailTellsWhatHappened(t *testing.T) {
	l := newLog(t)
	l.must(join("alpha", "a1"))
	op := l.must(fence("alpha", "a1", FenceOff)).Op
	l.must(shoot(op, "beta"))
	lines := make([]DeviceResult, 70)
	for i := range lines {
		lines[i] = DeviceResult{Level: 1, Device: "pdu", Plug: fmt.Sprint(i), State: "on", Detail: "On", Commands: 2, TookMS: 3000}
	}
	for range 5 {
		l.must(Command{At: 9, ShotFailed: &ShotFailed{Op: op, Executor: "beta", Error: "still on", Devices: lines[:10], Opinions: []string{"bmc: off"}}})
	}
	l.must(proven(op, "beta", lines...))
	o := l.s.Operations[op]
	if len(o.Trail) != keepClosed || !o.Trail[2].Proven || o.Trail[1].Proven || o.Failures != 5 {
		t.Fatalf("operation %+v", o)
	}
	if a := o.Trail[1]; a.Error != "still on" || a.Executor != "beta" || a.At != 9 || len(a.Devices) != 10 || a.Devices[3] != lines[3] || a.Opinions[0] != "bmc: off" {
		t.Fatalf("attempt %+v", a)
	}
	if n := len(o.Trail[2].Devices); n != keepDevices {
		t.Fatalf("%d lines of 70", n)
	}
}

// TestOldCommandsAndStatesAreRead: what an earlier daemon wrote means the same, and nothing is added to it.
func TestOldCommandsAndStatesAreRead(t *testing.T) {
	for _, text := range []string{
		`{"v":1,"join":{"node":"alpha","boot":"a1"}}`,
		`{"v":1,"at":5,"order":{"node":"alpha","boot":"a1","action":"reboot","reason":"silent","by":"cluster"}}`,
		`{"v":1,"shot_failed":{"op":7,"executor":"beta","error":"no answer"}}`,
		`{"v":1,"shot_proven":{"op":7,"executor":"beta","evidence":["off"]}}`,
	} {
		c, err := Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := c.Encode(); string(b) != text {
			t.Errorf("%s became %s", text, b)
		}
	}
	const text = `{"cluster":"web","digest":"x","applied":9,"last_token":0,"last_op":7,"nodes":{"alpha":{"name":"alpha","role":"member","boot":"a1","up":true,"op":7,"unclean":"silent"}},"groups":{},` +
		`"operations":{"7":{"id":7,"node":"alpha","boot":"a1","action":"reboot","reason":"silent","by":"cluster","phase":"shooting","executor":"beta","attempts":1,"failures":0}}}`
	l := &log{t: t, s: &State{}, index: 9}
	if err := json.Unmarshal([]byte(text), l.s); err != nil {
		t.Fatal(err)
	}
	if b, _ := json.Marshal(l.s); len(b) != len(text) {
		t.Errorf("%s became %s", text, b)
	}
	l.must(proven(7, "beta"))
}

// TestTextsOfFailuresAreBounded: what a resource prints when it fails may be of any length.
func TestTextsOfFailuresAreBounded(t *testing.T) {
	s := &State{}
	apply := func(c Command) {
		t.Helper()
		var res Result
		if s, res = Apply(s, s.Applied+1, c); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	apply(Command{Configure: &Configure{Cluster: "test", Digest: "1", Nodes: []ConfigNode{{Name: "alpha", Role: Member}, {Name: "beta", Role: Member}}, Groups: []ConfigGroup{{Name: "db"}}}})
	long := strings.Repeat("no such device\n", 1<<16)
	apply(Command{Join: &Join{Node: "alpha", Boot: "a1"}})
	apply(Command{Grant: &GrantGroup{Group: "db", Node: "alpha", Boot: "a1", Reason: long}})
	apply(Command{Restart: &RestartGroup{Group: "db", Token: 1, By: long}})
	apply(Command{Move: &MoveGroup{Group: "db", To: "beta", By: long}})
	apply(Command{Enable: &Enable{Group: "db", By: long}})
	apply(Command{Maintain: &Maintain{Group: "db", On: true, By: long}})
	apply(Command{Stop: &StopGroup{Group: "db", Token: 1, Reason: long}})
	apply(Command{Failed: &Report{Group: "db", Token: 1, Node: "alpha", Boot: "a1", Resource: long, Error: long, Verdict: Halt}})
	apply(Command{StopFailed: &Report{Group: "db", Token: 1, Node: "alpha", Boot: "a1", Resource: long, Error: long}})
	apply(Command{Join: &Join{Node: "beta", Boot: "b1", Found: map[string]string{"db": long}}})
	b, err := json.Marshal(s)
	if err != nil || len(b) > 8192 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
