package stonith_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/stonith"
)

// trial is one random operation: devices that misbehave in every way but saying off
// falsely, power that changes by itself, a gate that may refuse, a cancel at any time.
type trial struct {
	levels [][]trialDevice
	events []trialEvent
	refuse int
	cancel time.Duration // 0: never
}

type trialDevice struct {
	name            string
	plugs           []string
	timeout, settle time.Duration
	behavior        fake.Behavior
	off             bool // from the beginning
}

type trialEvent struct {
	at           time.Duration
	device, plug int // by order, wrapped
	state        agents.PowerState
	behavior     *fake.Behavior // instead of a change of power
}

func millis(t *rapid.T, name string, values ...int) time.Duration {
	return time.Duration(rapid.SampledFrom(values).Draw(t, name)) * time.Millisecond
}

func drawBehavior(t *rapid.T) fake.Behavior {
	b := fake.Behavior{
		Answer:  millis(t, "answer", 0, 0, 1, 7, 130, 900),
		Lag:     millis(t, "lag", 0, 0, 0, 33, 700, 4000),
		Command: rapid.SampledFrom([]string{"", "", "", "ignore", "refuse", "error"}).Draw(t, "command"),
		Status:  rapid.SampledFrom([]string{"", "", "", "", "unknown", "missing", "error", "on"}).Draw(t, "status"),
		Reads:   rapid.SliceOfN(rapid.SampledFrom([]string{"true", "on", "unknown", "missing", "error"}), 0, 4).Draw(t, "reads"),
		Login:   rapid.IntRange(0, 9).Draw(t, "login") == 0,
	}
	if rapid.IntRange(0, 4).Draw(t, "rebounds?") == 0 {
		b.Rebound, b.Rebounds = millis(t, "rebound", 10, 200, 330, 1000), rapid.IntRange(0, 3).Draw(t, "rebounds")
	}
	if rapid.IntRange(0, 5).Draw(t, "stalls?") == 0 {
		b.Stall = []string{rapid.SampledFrom([]string{"status", "off", "close", "open"}).Draw(t, "stall")}
		b.Deaf = rapid.Bool().Draw(t, "deaf")
	}
	return b
}

func drawTrial(t *rapid.T) trial {
	tr := trial{refuse: rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(t, "refuse")}
	n := 0
	for range rapid.IntRange(1, 3).Draw(t, "levels") {
		var level []trialDevice
		for range rapid.IntRange(1, 3).Draw(t, "devices") {
			n++
			level = append(level, trialDevice{
				name:     fmt.Sprint("device", n),
				plugs:    []string{"1", "2", "3"}[:rapid.IntRange(1, 3).Draw(t, "plugs")],
				timeout:  millis(t, "timeout", 500, 3000, 9000),
				settle:   millis(t, "settle", 0, 100, 300, 1000),
				behavior: drawBehavior(t),
				off:      rapid.IntRange(0, 3).Draw(t, "was off") == 0,
			})
		}
		tr.levels = append(tr.levels, level)
	}
	for range rapid.IntRange(0, 4).Draw(t, "events") {
		e := trialEvent{
			at: time.Duration(rapid.IntRange(0, 5000).Draw(t, "at")) * time.Millisecond, device: rapid.IntRange(0, 9).Draw(t, "device"),
			plug: rapid.IntRange(0, 2).Draw(t, "plug"), state: rapid.SampledFrom([]agents.PowerState{agents.On, agents.Off}).Draw(t, "state"),
		}
		if rapid.Bool().Draw(t, "changes behavior") {
			b := drawBehavior(t)
			e.behavior = &b
		}
		tr.events = append(tr.events, e)
	}
	if rapid.IntRange(0, 3).Draw(t, "cancelled?") == 0 {
		tr.cancel = time.Duration(rapid.IntRange(1, 6000).Draw(t, "cancel")) * time.Millisecond
	}
	return tr
}

// TestNoFalseProof holds every rule of the engine against random trials.
func TestNoFalseProof(t *testing.T) {
	proofs := 0
	rapid.Check(t, func(rt *rapid.T) {
		tr := drawTrial(rt)
		var problems []string
		synctest.Test(t, func(t *testing.T) {
			r := &run{trial: tr}
			r.play(t)
			if r.err == nil {
				proofs++
			}
			problems = r.problems
		})
		for _, p := range problems {
			rt.Error(p)
		}
	})
	if proofs == 0 {
		t.Error("no trial ended with a proof: nothing was tested")
	}
}

// run is a trial being played, with what came of it.
type run struct {
	trial
	begun    time.Time
	levels   [][]stonith.Device
	devices  []*fake.Device
	proof    stonith.Proof
	err      error
	problems []string

	mu      sync.Mutex
	passes  map[time.Time]int // gate passes at each instant
	asked   int
	refused time.Time
}

func (r *run) wrong(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *run) play(t *testing.T) {
	r.begun, r.passes = time.Now(), map[time.Time]int{}
	r.build()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if r.cancel > 0 {
		time.AfterFunc(r.cancel, cancel)
	}
	f := stonith.New(nil)
	o := order(1, r.levels...)
	o.Gate = r.gate
	r.proof, r.err = f.Off(ctx, o)
	returned := time.Now()
	if took, budget := returned.Sub(r.begun), stonith.Budget(r.levels); took > budget {
		r.wrong("took %v with a budget of %v", took, budget)
	}
	if late := returned.Sub(r.begun) - r.cancel; r.cancel > 0 && late > 50*time.Millisecond {
		r.wrong("cancelled, and returned %v later", late)
	}
	time.Sleep(time.Minute)
	for _, d := range r.devices {
		d.Behave(fake.Behavior{})
		d.Release()
	}
	if err := f.Wait(t.Context()); err != nil {
		r.wrong("wait: %v", err)
	}
	r.checkCalls()
	r.checkOutcome()
}

func (r *run) build() {
	for _, level := range r.trial.levels {
		var devices []stonith.Device
		for _, td := range level {
			d := fake.New(td.plugs...)
			for _, p := range td.plugs {
				if td.off {
					d.SetPower(p, agents.Off)
				}
			}
			d.Behave(td.behavior)
			r.devices = append(r.devices, d)
			devices = append(devices, stonith.Device{Name: td.name, Plugs: td.plugs, Timeout: td.timeout, Settle: td.settle, Open: d.Open})
		}
		r.levels = append(r.levels, devices)
	}
	for _, e := range r.events {
		d := r.devices[e.device%len(r.devices)]
		time.AfterFunc(e.at, func() {
			if e.behavior != nil {
				d.Behave(*e.behavior)
			} else {
				d.SetPower([]string{"1", "2", "3"}[e.plug], e.state)
			}
		})
	}
}

func (r *run) gate(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.asked == r.refuse {
		r.refused = time.Now()
		return errors.New("no quorum")
	}
	r.passes[time.Now()]++
	return nil
}

// checkCalls: offs only, each right after its gate, none after a refusal; one handle
// at a time, all closed.
func (r *run) checkCalls() {
	offs := map[time.Time]int{}
	for _, d := range r.devices {
		if d.Handles() != 0 || d.Overlapped() {
			r.wrong("%d handles left open, overlapped %v", d.Handles(), d.Overlapped())
		}
		for _, c := range d.Calls() {
			switch c.Verb {
			case "on":
				r.wrong("an on was sent")
			case "off":
				offs[c.At]++
				if !r.refused.IsZero() && c.At.After(r.refused) {
					r.wrong("an off was sent after the gate refused")
				}
			}
		}
	}
	for at, n := range offs {
		if n > r.passes[at] {
			r.wrong("%d offs at %v with %d gates passed", n, at.Sub(r.begun), r.passes[at])
		}
	}
	var failure *stonith.Failure
	if errors.As(r.err, &failure) && !failure.Commanded && len(offs) > 0 {
		r.wrong("commands went out, and the failure denies it")
	}
}

// checkOutcome: an error is a *Failure; a proof needs every plug of its level to have
// been truly off at two reads, the settle time apart, with no other answer between.
func (r *run) checkOutcome() {
	if r.err != nil {
		var failure *stonith.Failure
		if !errors.As(r.err, &failure) || r.err.Error() == "" || r.proof.Level != 0 {
			r.wrong("failed with %T %v and proof %+v", r.err, r.err, r.proof)
		}
		return
	}
	first := 0
	for _, level := range r.levels[:r.proof.Level-1] {
		first += len(level)
	}
	plugs := r.proof.Plugs
	for i, d := range r.levels[r.proof.Level-1] {
		for _, p := range d.Plugs {
			if len(plugs) == 0 || plugs[0].Device != d.Name || plugs[0].Plug != p {
				r.wrong("no proof of plug %s at %s", p, d.Name)
				return
			}
			r.checkPlug(d, r.devices[first+i], plugs[0])
			plugs = plugs[1:]
		}
	}
}

func (r *run) checkPlug(d stonith.Device, truth *fake.Device, p stonith.PlugProof) {
	var reads []fake.Call
	commanded := false
	for _, c := range truth.Calls() {
		if c.Plug == p.Plug && c.Verb == "status" {
			reads = append(reads, c)
		}
		commanded = commanded || c.Plug == p.Plug && c.Verb == "off"
	}
	if p.WasOff == commanded {
		r.wrong("%s plug %s: was off %v, commanded %v", d.Name, p.Plug, p.WasOff, commanded)
	}
	row := 0 // the reads at the end that all said off
	for row < len(reads) && reads[len(reads)-1-row].State == agents.Off {
		row++
	}
	if row < 2 {
		r.wrong("%s plug %s: proven by %d reads", d.Name, p.Plug, row)
		return
	}
	reads = reads[len(reads)-row:]
	one, two := reads[0], reads[len(reads)-1]
	if gap := two.At.Sub(one.At.Add(one.Took)); gap < d.Settle || one.At.Before(r.begun) {
		r.wrong("%s plug %s: reads only %v apart", d.Name, p.Plug, gap)
	}
	if answered := one.At.Add(one.Took); !p.OffSince.Equal(answered) {
		r.wrong("%s plug %s: off since %v, first read off at %v", d.Name, p.Plug, p.OffSince, answered)
	}
	for _, c := range []fake.Call{one, two} {
		if !wasOff(truth.History(p.Plug), c.At.Add(c.Took)) {
			r.wrong("%s plug %s: was on when read off", d.Name, p.Plug)
		}
	}
}

// wasOff reports whether a plug was off at the instant, or changed in it.
func wasOff(history []fake.Change, at time.Time) bool {
	before := agents.Unknown
	for _, c := range history {
		if c.At.Before(at) {
			before = c.State
		} else if c.At.Equal(at) && c.State == agents.Off {
			return true
		}
	}
	return before == agents.Off
}

// TestTruthIsJudged keeps the judge of the property honest.
func TestTruthIsJudged(t *testing.T) {
	at := time.Now()
	history := []fake.Change{{At: at, State: agents.On}, {At: at.Add(2), State: agents.Off}, {At: at.Add(4), State: agents.On}}
	var got []bool
	for i := range 6 {
		got = append(got, wasOff(history, at.Add(time.Duration(i))))
	}
	if want := []bool{false, false, true, true, true, false}; !slices.Equal(got, want) {
		t.Errorf("off at %v, want %v", got, want)
	}
}
