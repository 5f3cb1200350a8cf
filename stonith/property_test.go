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
	serial string // what the target announced
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
	machine         bool // sees the machine itself
	serial          string
	anyIdentity     bool
}

// wrong: it names another machine, and that matters.
func (d trialDevice) wrong(serial string) bool {
	return d.machine && !d.anyIdentity && serial != "" && d.serial != "" && d.serial != serial
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
		Status:  rapid.SampledFrom([]string{"", "", "", "", "unknown", "missing", "error", "on", "credentials"}).Draw(t, "status"),
		Reads:   rapid.SliceOfN(rapid.SampledFrom([]string{"true", "on", "unknown", "missing", "error", "credentials"}), 0, 4).Draw(t, "reads"),
		Login:   rapid.IntRange(0, 9).Draw(t, "login") == 0,
	}
	if rapid.IntRange(0, 5).Draw(t, "identity fails") == 0 {
		b.Identity = "error"
	}
	if rapid.IntRange(0, 4).Draw(t, "rebounds?") == 0 {
		b.Rebound, b.Rebounds = millis(t, "rebound", 10, 200, 330, 1000), rapid.IntRange(0, 3).Draw(t, "rebounds")
	}
	if rapid.IntRange(0, 5).Draw(t, "stalls?") == 0 {
		b.Stall = []string{rapid.SampledFrom([]string{"status", "off", "close", "open", "identity"}).Draw(t, "stall")}
		b.Deaf = rapid.Bool().Draw(t, "deaf")
	}
	return b
}

func drawTrial(t *rapid.T) trial {
	tr := trial{
		refuse: rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(t, "refuse"),
		serial: rapid.SampledFrom([]string{"", "SN1"}).Draw(t, "announced"),
	}
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
				machine:  rapid.IntRange(0, 2).Draw(t, "sees the machine") == 0,
				serial:   rapid.SampledFrom([]string{"", "SN1", "SN1", "SN2"}).Draw(t, "serial"), anyIdentity: rapid.IntRange(0, 5).Draw(t, "any identity") == 0,
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
	trials   []trialDevice // by device
	proof    stonith.Proof
	err      error
	problems []string
	level    time.Time // when the last level began
	returned time.Time

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
	o.Gate, o.Machine.Serial, r.level = r.gate, r.serial, r.begun
	o.Observe = func(s stonith.Step) {
		if s.What == "level failed" {
			r.level = time.Now()
		}
	}
	r.proof, r.err = f.Off(ctx, o)
	r.returned = time.Now()
	if took, budget := r.returned.Sub(r.begun), stonith.Budget(r.levels); took > budget {
		r.wrong("took %v with a budget of %v", took, budget)
	}
	if late := r.returned.Sub(r.begun) - r.cancel; r.cancel > 0 && late > 50*time.Millisecond {
		r.wrong("cancelled, and returned %v later", late)
	}
	time.Sleep(time.Minute)
	for _, d := range r.devices {
		d.Behave(fake.Behavior{})
		d.Release()
	}
	time.Sleep(time.Second)
	for _, d := range r.devices { // where the close was to be stalled too
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
			td.behavior.Serial = td.serial
			d.Behave(td.behavior)
			r.devices, r.trials = append(r.devices, d), append(r.trials, td)
			device := stonith.Device{Name: td.name, Plugs: td.plugs, Timeout: td.timeout, Settle: td.settle, AnyIdentity: td.anyIdentity, Open: d.Open}
			if td.machine {
				device.Sees = agents.SeesMachine
			}
			devices = append(devices, device)
		}
		r.levels = append(r.levels, devices)
	}
	for _, e := range r.events {
		i := e.device % len(r.devices)
		d := r.devices[i]
		time.AfterFunc(e.at, func() {
			if e.behavior != nil {
				b := *e.behavior
				b.Serial = r.trials[i].serial
				d.Behave(b)
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

// checkCalls: offs only, each right after its gate, none after a refusal, none to a device that
// named another machine; one handle and one call at a time, all handles closed.
func (r *run) checkCalls() {
	offs := map[time.Time]int{}
	for i, d := range r.devices {
		if d.Handles() != 0 || d.Overlapped() || overlapping(d) {
			r.wrong("%d handles left open, overlapped %v, calls %v", d.Handles(), d.Overlapped(), overlapping(d))
		}
		refused := false
		for _, c := range d.Calls() {
			refused = refused || c.Verb == "identity" && c.Err == nil && r.trials[i].wrong(r.serial)
			if refused && c.Verb == "off" {
				r.wrong("an off was sent to a device that named another machine")
			}
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
	var all time.Time // when the last plug was first read off
	var again []time.Time
	for i, d := range r.levels[r.proof.Level-1] {
		for _, p := range d.Plugs {
			if len(plugs) == 0 || plugs[0].Device != d.Name || plugs[0].Plug != p {
				r.wrong("no proof of plug %s at %s", p, d.Name)
				return
			}
			off, asked := r.checkPlug(d, r.devices[first+i], plugs[0])
			if off.After(all) {
				all = off
			}
			again = append(again, asked.Add(-d.Settle))
			plugs = plugs[1:]
		}
		r.checkIdentity(first + i)
	}
	for _, asked := range again {
		if asked.Before(all) {
			r.wrong("proven by plugs that were not off together for the settle time: one was asked %v too early", all.Sub(asked))
		}
	}
	r.checkOpinions(first)
}

// checkIdentity: a device that named another machine proves nothing, not even that it was off.
func (r *run) checkIdentity(device int) {
	if !r.trials[device].wrong(r.serial) {
		return
	}
	for _, c := range r.devices[device].Calls() {
		if c.Verb == "identity" && c.Err == nil && !c.At.Before(r.level) && !c.At.After(r.returned) {
			r.wrong("proven by a device that names another machine")
		}
	}
}

// checkOpinions: every device of another level is recorded, and none that sees the machine, and not
// another one, said on last. first is the number of the proving level's first device.
func (r *run) checkOpinions(first int) {
	plugs, last := 0, first+len(r.levels[r.proof.Level-1])
	for i, d := range r.devices {
		if i >= first && i < last {
			continue
		}
		plugs += len(r.trials[i].plugs)
		for _, plug := range r.trials[i].plugs {
			state := agents.Unknown
			for _, c := range d.Calls() {
				if c.Plug == plug && !c.At.Before(r.proof.OffSince()) && !c.At.Add(c.Took).After(r.returned) && c.Err == nil && c.State != agents.Unknown {
					state = c.State
				}
			}
			if state == agents.On && r.trials[i].machine && !r.trials[i].wrong(r.serial) {
				r.wrong("proven while %s plug %s said on", r.trials[i].name, plug)
			}
		}
	}
	if len(r.proof.Opinions) != plugs {
		r.wrong("%d opinions of %d plugs", len(r.proof.Opinions), plugs)
	}
	results := 0
	for _, td := range r.trials[:last] {
		results += len(td.plugs)
	}
	if len(r.proof.Devices) != results {
		r.wrong("%d results of %d plugs", len(r.proof.Devices), results)
	}
}

// checkPlug gives when the first of the reads that prove was answered, and when the last was asked.
func (r *run) checkPlug(d stonith.Device, truth *fake.Device, p stonith.PlugProof) (off, asked time.Time) {
	var reads []fake.Call
	commanded := false
	for _, c := range truth.Calls() {
		if c.Plug == p.Plug && c.Verb == "status" && !c.At.Before(r.level) { // and not for another level's second opinion
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
		return off, asked
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
	return one.At.Add(one.Took), two.At
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
