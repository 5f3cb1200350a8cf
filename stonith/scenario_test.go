package stonith_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/stonith"
)

var update = flag.Bool("update", false, "rewrite the expected part of testdata/*.txt")

// TestScenarios plays each script of testdata in virtual time. A script says which
// devices there are, how they behave and what happens when:
//
//	device NAME [plugs=1,2] [power=off] [timeout=10s] [settle=300ms] [machine] [any_identity] [BEHAVIOR...]
//	level NAME[/PLUGS]...
//	target uuid=... serial=...           what the node announced of itself
//	also NODE NAME/PLUGS...              another node, with this one level, fenced at the same time
//	at TIME behave NAME [BEHAVIOR...] | power NAME PLUG STATE | cancel
//	gate refuse=N | gate hang=N          the Nth asking is refused or never answered
//	run off|on|status|check [level=N]
//
// BEHAVIOR is key=value as in the options of the fake agent. After --- comes what
// must happen: each step with its time, the outcome with its device results and opinions, and
// for each device the calls it got and the power it ended with.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d scenarios found, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			script, want, _ := strings.Cut(string(text), "---\n")
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, script) })
			if *update {
				if err := os.WriteFile(file, []byte(script+"---\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// scenario is a script being read and played.
type scenario struct {
	t       *testing.T
	begun   time.Time
	devices map[string]*fake.Device
	known   map[string]stonith.Device
	names   []string
	levels  [][]stonith.Device
	also    []stonith.Order
	machine stonith.Machine
	verb    string
	only    int
	refuse  int
	hang    int
	asked   atomic.Int32
	cancel  context.CancelCauseFunc
	steps   []line
}

type line struct {
	at    time.Duration
	level int
	text  string
}

func play(t *testing.T, script string) string {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	s := &scenario{
		t: t, begun: time.Now(), devices: map[string]*fake.Device{},
		known: map[string]stonith.Device{}, cancel: cancel,
	}
	for _, l := range strings.Split(script, "\n") {
		l, _, _ = strings.Cut(l, "#")
		if words := strings.Fields(l); len(words) > 0 {
			s.parse(words)
		}
	}
	var out bytes.Buffer
	f := stonith.New(nil)
	outcome := s.run(ctx, f)
	took := time.Since(s.begun)
	for _, d := range s.devices { // what is stalled for ever must end with the test
		time.AfterFunc(time.Minute, d.Release)
	}
	time.Sleep(time.Hour) // whatever is still to come
	if err := f.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	slices.SortStableFunc(s.steps, func(a, b line) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		if a.level != b.level {
			return (a.level - b.level) * map[bool]int{true: -1, false: 1}[s.verb == "on"]
		}
		return strings.Compare(strings.Fields(a.text)[0], strings.Fields(b.text)[0])
	})
	for _, l := range s.steps {
		fmt.Fprintf(&out, "%-7v %s\n", l.at, l.text)
	}
	fmt.Fprintf(&out, "%-7v %s\n", took, outcome)
	for _, name := range s.names {
		s.summary(&out, name)
	}
	return out.String()
}

func (s *scenario) parse(words []string) {
	verb, words := words[0], words[1:]
	switch verb {
	case "device":
		s.device(words[0], words[1:])
	case "level":
		s.levels = append(s.levels, s.level(words))
	case "also":
		o := order(7, s.level(words[1:]))
		o.Node = words[0]
		s.also = append(s.also, o)
	case "target":
		for _, w := range words {
			if key, value, _ := strings.Cut(w, "="); key == "uuid" {
				s.machine.UUID = value
			} else {
				s.machine.Serial = value
			}
		}
	case "at":
		after, err := time.ParseDuration(words[0])
		if err != nil {
			s.t.Fatal(err)
		}
		time.AfterFunc(after, func() { s.event(words[1], words[2:]) })
	case "gate":
		key, value, _ := strings.Cut(words[0], "=")
		n, _ := strconv.Atoi(value)
		if key == "refuse" {
			s.refuse = n
		} else {
			s.hang = n
		}
	case "run":
		s.verb = words[0]
		if len(words) > 1 {
			s.only, _ = strconv.Atoi(strings.TrimPrefix(words[1], "level="))
		}
	default:
		s.t.Fatalf("what is %q?", verb)
	}
}

func (s *scenario) level(names []string) []stonith.Device {
	level := []stonith.Device{}
	for _, name := range names {
		name, plugs, some := strings.Cut(name, "/")
		d := s.known[name]
		if some {
			d.Plugs = strings.Split(plugs, ",")
		}
		level = append(level, d)
	}
	return level
}

func (s *scenario) event(verb string, words []string) {
	switch verb {
	case "cancel":
		s.cancel(errors.New("operator gave up"))
	case "behave":
		s.devices[words[0]].Behave(behavior(s.t, words[1:]))
	case "power":
		if len(words) == 2 {
			words = []string{words[0], "", words[1]}
		}
		s.devices[words[0]].SetPower(words[1], state(words[2]))
	}
}

// device makes one; keys that are not behavior are taken here.
func (s *scenario) device(name string, words []string) {
	d := stonith.Device{Name: name, Agent: "fake", Plugs: []string{""}, Timeout: 10 * time.Second, Settle: 300 * time.Millisecond}
	power := agents.On
	var rest []string
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "plugs":
			d.Plugs = slices.DeleteFunc(strings.Split(value, ","), func(p string) bool { return p == "" })
		case "power":
			power = state(value)
		case "timeout":
			d.Timeout, _ = time.ParseDuration(value)
		case "settle":
			d.Settle, _ = time.ParseDuration(value)
		case "machine":
			d.Sees = agents.SeesMachine
		case "any_identity":
			d.AnyIdentity = true
		default:
			rest = append(rest, w)
		}
	}
	f := fake.New(d.Plugs...)
	for _, p := range d.Plugs {
		f.SetPower(p, power)
	}
	f.Behave(behavior(s.t, rest))
	d.Open = f.Open
	s.devices[name], s.known[name] = f, d
	s.names = append(s.names, name)
}

// behavior reads key=value words as the options of the fake agent.
func behavior(t *testing.T, words []string) (b fake.Behavior) {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		d, _ := time.ParseDuration(value)
		n, _ := strconv.Atoi(value)
		switch key {
		case "answer":
			b.Answer = d
		case "lag":
			b.Lag = d
		case "rebound":
			b.Rebound = d
		case "rebounds":
			b.Rebounds = n
		case "command":
			b.Command = value
		case "status":
			b.Status = value
		case "reads":
			b.Reads = strings.Split(value, ",")
		case "stall":
			b.Stall = strings.Split(value, ",")
		case "deaf":
			b.Deaf = true
		case "login_fails":
			b.Login = true
		case "sessions":
			b.Sessions = n
		case "uuid":
			b.UUID = value
		case "serial":
			b.Serial = value
		case "identity":
			b.Identity = value
		case "check":
			b.Check = value
		default:
			t.Fatalf("no such behavior: %s", w)
		}
	}
	return b
}

func state(word string) (s agents.PowerState) {
	_ = s.UnmarshalText([]byte(word))
	return s
}

func (s *scenario) run(ctx context.Context, f *stonith.Fencer) string {
	o := order(7, s.levels...)
	o.Gate, o.Observe, o.Machine, o.Level = s.gate, s.observe, s.machine, s.only
	var wg sync.WaitGroup
	others := make([]string, len(s.also))
	for i, other := range s.also {
		wg.Go(func() {
			time.Sleep(time.Duration(i+1) * time.Millisecond) // so that the order of their coming is known
			_, err := f.Off(ctx, other)
			others[i] = fmt.Sprintf("\n%-7v %s: %v", time.Since(s.begun), other.Node, err)
		})
	}
	text := s.outcome(ctx, f, o)
	wg.Wait()
	return text + strings.Join(others, "")
}

func (s *scenario) outcome(ctx context.Context, f *stonith.Fencer, o stonith.Order) string {
	var text []string
	switch s.verb {
	case "off":
		proof, err := f.Off(ctx, o)
		if err != nil {
			return failed(err)
		}
		for _, p := range proof.Plugs {
			text = append(text, p.Device+plugName(p.Plug))
			if p.WasOff {
				text = append(text, "(was off)")
			}
		}
		return fmt.Sprintf("proven at level %d: %s", proof.Level, strings.Join(text, " ")) + results(proof.Devices, proof.Opinions)
	case "on":
		if err := f.On(ctx, o); err != nil {
			return failed(err)
		}
		return "is on"
	case "check":
		for _, h := range f.Check(ctx, o.Target) {
			text = append(text, fmt.Sprintf("level %d %s%s: %v (%s), healthy %v, gave way %v, %dms, %q: %s %v", h.Level, h.Device, plugName(h.Plug),
				h.State, h.Detail, h.Healthy(), h.GaveWay, h.TookMS, h.Trouble, h.Error, h.Identity))
		}
	default:
		for _, p := range f.Status(ctx, o.Target) {
			text = append(text, strings.TrimSpace(fmt.Sprintf("level %d %s%s: %v %s %s", p.Level, p.Device, plugName(p.Plug), p.State, p.Detail, p.Error)))
		}
	}
	return strings.Join(text, "\n        ")
}

func failed(err error) string {
	var failure *stonith.Failure
	if !errors.As(err, &failure) {
		return "not a *Failure: " + err.Error()
	}
	return fmt.Sprintf("failed, commanded %v:\n        %s", failure.Commanded, strings.ReplaceAll(err.Error(), "; ", ";\n        ")) +
		results(failure.Devices, nil)
}

// results gives a line for each device result and opinion.
func results(devices []stonith.DeviceResult, opinions []stonith.Opinion) (text string) {
	for _, r := range devices {
		text += fmt.Sprintf("\n        result %d %s%s: %v (%s), was off %v, commands %d, %dms", r.Level, r.Device, plugName(r.Plug), r.State, r.Detail, r.WasOff, r.Commands, r.TookMS)
		if r.Error != "" {
			text += fmt.Sprintf(", %s: %s", r.Trouble, r.Error)
		}
	}
	for _, o := range opinions {
		text += fmt.Sprintf("\n        opinion %d %s%s: %v (%s) %s", o.Level, o.Device, plugName(o.Plug), o.State, o.Detail, o.Error)
	}
	return text
}

func (s *scenario) gate(ctx context.Context) error {
	switch int(s.asked.Add(1)) {
	case s.refuse:
		return errors.New("quorum lost")
	case s.hang:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (s *scenario) observe(step stonith.Step) {
	text := step.Device + plugName(step.Plug) + " " + step.What
	switch step.What {
	case "read":
		text += fmt.Sprintf(" %v (%s)", step.State, step.Detail)
	case "error", "identity":
		text += ": " + step.Err.Error()
	case "opinion":
		text += fmt.Sprintf(" %v (%s) %v", step.State, step.Detail, step.Err)
	case "level failed":
		text = fmt.Sprintf("level %d failed: %v", step.Level, step.Err)
	}
	s.steps = append(s.steps, line{time.Since(s.begun), step.Level, text})
}

// summary gives the calls that a device got, repeated ones counted, and the truth.
func (s *scenario) summary(out *bytes.Buffer, name string) {
	d := s.devices[name]
	var calls []string
	for i, all := 0, d.Calls(); i < len(all); {
		n := 1
		for i+n < len(all) && all[i+n].Verb == all[i].Verb && all[i+n].Plug == all[i].Plug {
			n++
		}
		text := all[i].Verb + plugName(all[i].Plug)
		if n > 1 {
			text += fmt.Sprintf(" x%d", n)
		}
		calls = append(calls, text)
		i += n
	}
	var truth []string
	for _, p := range s.known[name].Plugs {
		truth = append(truth, d.Power(p).String())
	}
	fmt.Fprintf(out, "%s: %s; ends %s\n", name, strings.Join(calls, ", "), strings.Join(truth, " "))
	if n := d.Handles(); n != 0 {
		fmt.Fprintf(out, "%s: %d handles left open\n", name, n)
	}
}

func plugName(plug string) string {
	if plug == "" {
		return ""
	}
	return "/" + plug
}
