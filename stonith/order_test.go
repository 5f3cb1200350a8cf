package stonith_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/stonith"
)

func TestStaleOrdersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := stonith.New(nil), fake.New()
		levels := level(bmc("alpha-bmc", d))
		if _, err := f.Off(t.Context(), order(7, levels)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := len(d.Calls())
		_, err := f.Off(t.Context(), order(6, levels))
		if !errors.Is(err, stonith.ErrStale) || len(d.Calls()) != before {
			t.Errorf("older off: %v, and %d calls", err, len(d.Calls())-before)
		}
		if err := f.On(t.Context(), order(6, levels)); !errors.Is(err, stonith.ErrStale) || d.Power("") != agents.Off {
			t.Errorf("older on: %v, power %v", err, d.Power(""))
		}
		if _, err := f.Off(t.Context(), order(7, levels)); err != nil {
			t.Errorf("retry by the same operation: %v", err)
		}
		if err := f.On(t.Context(), order(8, levels)); err != nil {
			t.Errorf("newer on: %v", err)
		}
		if _, err := f.Off(t.Context(), order(7, levels)); !errors.Is(err, stonith.ErrStale) || d.Power("") != agents.On {
			t.Errorf("off older than an on: %v, power %v", err, d.Power(""))
		}
		beta := order(1, levels)
		beta.Node = "beta"
		if _, err := f.Off(t.Context(), beta); err != nil {
			t.Errorf("another node's first operation: %v", err)
		}
	})
}

func TestNewerOrderEndsOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := stonith.New(nil), fake.New()
		d.Behave(fake.Behavior{Command: "ignore"})
		levels := level(bmc("alpha-bmc", d))
		older := make(chan error)
		go func() { _, err := f.Off(t.Context(), order(7, levels)); older <- err }()
		time.Sleep(time.Second)
		d.Behave(fake.Behavior{})
		begun := time.Now()
		newer := make(chan error)
		go func() { _, err := f.Off(t.Context(), order(8, levels)); newer <- err }()
		var failure *stonith.Failure
		if err := <-older; !errors.Is(err, stonith.ErrStale) || !errors.As(err, &failure) || !failure.Commanded {
			t.Errorf("older: %v", err)
		}
		if time.Since(begun) > 50*time.Millisecond {
			t.Errorf("the older operation ended after %v", time.Since(begun))
		}
		if err := <-newer; err != nil || time.Since(begun) > time.Second {
			t.Errorf("newer: %v after %v", err, time.Since(begun))
		}
	})
}

// An off whose proof is overtaken by a newer on must not be believed: not after its last read, and
// not after the second opinion was heard either.
func TestProofOvertakenByNewerOrder(t *testing.T) {
	for what, last := range map[string]int{"read": 2, "opinion": 1} {
		synctest.Test(t, func(t *testing.T) {
			f, d, pdu := stonith.New(nil), fake.New(), fake.New("3")
			pdu.SetPower("3", agents.Off)
			o := order(7, level(bmc("alpha-bmc", d)), level(bmc("pdu-a", pdu, "3")))
			seen := 0
			newer := make(chan error, 1)
			o.Observe = func(s stonith.Step) {
				if s.What != what || s.State != agents.Off {
					return
				}
				if seen++; seen == last {
					go func() { newer <- f.On(t.Context(), order(8, o.Levels...)) }()
					time.Sleep(time.Nanosecond)
				}
			}
			if _, err := f.Off(t.Context(), o); !errors.Is(err, stonith.ErrStale) {
				t.Fatalf("after the last %s: proven although powered on again: %v", what, err)
			}
			if err := <-newer; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOrderWithoutGate(t *testing.T) {
	d := fake.New()
	o := order(1, level(bmc("alpha-bmc", d)))
	o.Gate = nil
	if _, err := stonith.New(nil).Off(t.Context(), o); !errors.Is(err, stonith.ErrNoGate) || len(d.Calls()) != 0 {
		t.Errorf("off: %v, %d calls", err, len(d.Calls()))
	}
}

// The gate is asked after the reading and right before each command.
func TestGateIsAskedBeforeEachCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := stonith.New(nil), fake.New("1", "2")
		var said []string
		d.OnPower = func(plug string, s agents.PowerState) { said = append(said, plug+" "+s.String()) }
		refused := errors.New("target is back")
		o := order(1, level(bmc("pdu-a", d, "1", "2")))
		o.Gate = func(context.Context) error {
			said = append(said, "gate")
			if len(said) == 3 {
				return refused
			}
			return nil
		}
		_, err := f.Off(t.Context(), o)
		if got := strings.Join(said, ", "); got != "gate, 1 off, gate" {
			t.Errorf("happened: %s", got)
		}
		if !errors.Is(err, stonith.ErrCalledOff) || !errors.Is(err, refused) {
			t.Errorf("error %v", err)
		}
	})
}

// A gate that ignores its context must not hold up the engine.
func TestDeafGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := stonith.New(nil), fake.New()
		o := order(1, level(bmc("alpha-bmc", d)))
		release := make(chan struct{})
		o.Gate = func(context.Context) error { <-release; return nil }
		begun := time.Now()
		if _, err := f.Off(t.Context(), o); err == nil || !strings.Contains(err.Error(), "gate") || time.Since(begun) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		close(release)
		f.Wait(t.Context())
		if d.Power("") != agents.On {
			t.Error("a gate that passed too late let the command out")
		}
	})
}

// A cancel is obeyed at once at every moment, whatever the device is doing, and the
// handles come back.
func TestCancelAtAnyMoment(t *testing.T) {
	behaviors := []fake.Behavior{
		{Answer: 30 * time.Millisecond}, {Lag: time.Second}, {Command: "refuse"}, {Login: true},
		{Stall: []string{"open"}}, {Stall: []string{"status"}}, {Stall: []string{"off"}}, {Stall: []string{"close"}},
		{Stall: []string{"status"}, Deaf: true}, {Stall: []string{"off"}, Deaf: true}, {Stall: []string{"close"}, Deaf: true},
		{Stall: []string{"identity"}}, {Stall: []string{"identity"}, Deaf: true}, {Status: "on"},
	}
	good := fake.Behavior{}
	type pair struct{ first, other fake.Behavior } // of the device that proves and of the one with the second opinion
	var pairs []pair
	for _, b := range behaviors {
		pairs = append(pairs, pair{b, good}, pair{good, b})
	}
	for i, p := range pairs {
		for after := time.Duration(0); after < 1100*time.Millisecond; after += 7 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				f, d, other := stonith.New(nil), fake.New(), fake.New()
				d.Behave(p.first)
				other.Behave(p.other)
				ctx, cancel := context.WithCancelCause(t.Context())
				why := errors.New("operator gave up")
				time.AfterFunc(after, func() { cancel(why) })
				begun := time.Now()
				o := order(1, level(sees("alpha-bmc", d)), level(sees("other", other)))
				o.Machine.Serial = "SN1"
				_, err := f.Off(ctx, o)
				if late := time.Since(begun) - after; late > 50*time.Millisecond || late >= 0 && err != nil && !errors.Is(err, why) {
					t.Errorf("behaviors %d, cancel after %v: returned %v later with %v", i, after, late, err)
				}
				time.Sleep(time.Minute)
				for range 2 { // the call, and then the close
					for _, d := range []*fake.Device{d, other} {
						d.Behave(good)
						d.Release()
					}
					time.Sleep(time.Second)
				}
				if f.Wait(t.Context()); d.Handles() != 0 || other.Handles() != 0 {
					t.Errorf("behaviors %d, cancel after %v: %d and %d handles left open", i, after, d.Handles(), other.Handles())
				}
			})
		}
	}
}

// The same in real time, once: goroutines and timers behave there too.
func TestCancelInRealTime(t *testing.T) {
	f, d := stonith.New(nil), fake.New()
	d.Behave(fake.Behavior{Stall: []string{"status"}, Deaf: true})
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error, 1)
	go func() {
		_, err := f.Off(ctx, order(1, level(bmc("alpha-bmc", d))))
		returned <- err
	}()
	for len(d.Calls()) < 2 { // until the read is under way
		time.Sleep(time.Millisecond)
	}
	begun := time.Now()
	cancel()
	if err := <-returned; !errors.Is(err, context.Canceled) || time.Since(begun) > 150*time.Millisecond {
		t.Errorf("returned after %v with %v", time.Since(begun), err)
	}
	d.Release()
	if err := f.Wait(t.Context()); err != nil || d.Handles() != 0 {
		t.Errorf("wait: %v, %d handles", err, d.Handles())
	}
}

func TestFailureKeepsEveryError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, worse := fake.New(), fake.New()
		bad.Behave(fake.Behavior{Login: true})
		worse.Behave(fake.Behavior{Status: "error"})
		_, err := stonith.New(nil).Off(t.Context(), order(3, level(bmc("alpha-bmc", bad)), level(bmc("pdu-a", worse))))
		var failure *stonith.Failure
		if !errors.As(err, &failure) || !errors.Is(err, fake.ErrLogin) || !errors.Is(err, fake.ErrDevice) {
			t.Fatalf("error %v", err)
		}
		if failure.Node != "alpha" || failure.Op != 3 || !failure.Commanded || failure.Cause != nil || len(failure.Levels) != 2 {
			t.Errorf("failure %+v", failure)
		}
		for _, part := range []string{"fence alpha via alpha-bmc: power status: login refused", "fence alpha via pdu-a: power status: device answered"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in %q", part, err)
			}
		}
	})
}

func TestBudget(t *testing.T) {
	device := func(d time.Duration) stonith.Device { return stonith.Device{Timeout: d} }
	tests := []struct {
		levels [][]stonith.Device
		want   time.Duration
	}{
		{nil, 0},
		{[][]stonith.Device{{}}, 0},
		{[][]stonith.Device{{device(3), device(5), device(4)}, {device(7)}}, 5 + 7 + 7 + 5}, // with second opinions
		{[][]stonith.Device{{device(-5)}, {device(2)}}, 0 + 2 + 2 + 0},
		{[][]stonith.Device{{device(time.Minute)}, {device(time.Hour)}}, time.Hour + time.Minute + 2*time.Second},
		{[][]stonith.Device{{}, {device(2)}}, 2},
		{[][]stonith.Device{{device(math.MaxInt64)}}, math.MaxInt64},
		{[][]stonith.Device{{device(math.MaxInt64 - 1)}, {device(1)}}, math.MaxInt64},
		{[][]stonith.Device{{device(math.MaxInt64)}, {device(math.MaxInt64)}, {device(1)}}, math.MaxInt64},
	}
	for _, tt := range tests {
		if got := stonith.Budget(tt.levels); got != tt.want {
			t.Errorf("%v: got %d, want %d", tt.levels, got, tt.want)
		}
	}
}

// Odd numbers of a configuration nobody checked must not overflow into a proof, a
// panic or a wait for ever.
func TestOddNumbers(t *testing.T) {
	tests := []struct {
		timeout, settle time.Duration
		proven          bool
	}{
		{0, 0, false},
		{-1, time.Second, false},
		{math.MinInt64, math.MinInt64, false},
		{time.Minute, math.MinInt64, true},
		{time.Minute, -1, true},
		{time.Minute, math.MaxInt64, false},
		{math.MaxInt64, time.Second, true},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.timeout, tt.settle), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := fake.New()
				device := bmc("alpha-bmc", d)
				device.Timeout, device.Settle = tt.timeout, tt.settle
				begun := time.Now()
				_, err := stonith.New(nil).Off(t.Context(), order(1, level(device)))
				if (err == nil) != tt.proven || time.Since(begun) > max(tt.timeout, time.Second) {
					t.Errorf("after %v: %v", time.Since(begun), err)
				}
			})
		})
	}
}

// contradictory is an agent that answers off and an error in one.
type contradictory struct{ agents.Agent }

func (a contradictory) Status(ctx context.Context, plug string) (agents.Reading, error) {
	return agents.Reading{State: agents.Off, Detail: "Off"}, errors.New("answer of another request")
}

func TestOffBesideAnErrorIsNotOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New()
		device := bmc("alpha-bmc", d)
		device.Open = func() (agents.Agent, error) {
			a, err := d.Open()
			return contradictory{a}, err
		}
		target := stonith.Target{Node: "alpha", Levels: [][]stonith.Device{{device}}}
		f := stonith.New(nil)
		if proof, err := f.Off(t.Context(), order(1, level(device))); err == nil {
			t.Errorf("proven: %+v", proof)
		}
		if s := f.Status(t.Context(), target); s[0].State != agents.Unknown || s[0].Error == "" {
			t.Errorf("status %+v", s)
		}
	})
}

func TestOpenWithoutHandle(t *testing.T) {
	for name, open := range map[string]func() (agents.Agent, error){
		"no agent":  nil,
		"no handle": func() (agents.Agent, error) { return nil, nil },
		"error":     func() (agents.Agent, error) { return nil, fake.ErrDevice },
	} {
		device := stonith.Device{Name: "alpha-bmc", Plugs: []string{""}, Timeout: time.Second, Open: open}
		f := stonith.New(nil)
		var failure *stonith.Failure
		if _, err := f.Off(t.Context(), order(1, level(device))); !errors.As(err, &failure) || failure.Commanded {
			t.Errorf("%s: %v", name, err)
		}
		if err := f.Wait(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nothing is powered on before every off of the node has drained, also by the same operation.
func TestOnWaitsForOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, slow, fast := stonith.New(nil), fake.New(), fake.New()
		slow.Behave(fake.Behavior{Lag: 3 * time.Second})
		o := order(7, level(bmc("pdu-a", fast), bmc("pdu-b", slow)))
		var offDone time.Time
		off := make(chan error)
		go func() {
			_, err := f.Off(t.Context(), o)
			offDone = time.Now()
			off <- err
		}()
		time.Sleep(time.Second)
		if err := f.On(t.Context(), o); err != nil {
			t.Error(err)
		}
		if err := <-off; err != nil {
			t.Error(err)
		}
		for _, d := range []*fake.Device{slow, fast} {
			for _, c := range d.Calls() {
				if c.Verb == "on" && c.At.Before(offDone) {
					t.Errorf("an on was sent %v before the off was over", offDone.Sub(c.At))
				}
			}
			if d.Power("") != agents.On {
				t.Error("not powered on")
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fast.Behave(fake.Behavior{Command: "ignore"})
		go func() { _, err := f.Off(t.Context(), o); off <- err }()
		time.Sleep(100 * time.Millisecond)
		if err := f.On(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while it waits: %v", err)
		}
		<-off
	})
}

// An off ends an on of the same operation: what that would power on must not be proven off.
func TestOffEndsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := stonith.New(nil), fake.New()
		d.SetPower("", agents.Off)
		d.Behave(fake.Behavior{Command: "ignore"})
		o := order(7, level(bmc("alpha-bmc", d)))
		ended := make(chan error)
		go func() { ended <- f.On(t.Context(), o) }()
		time.Sleep(time.Second)
		d.Behave(fake.Behavior{})
		if _, err := f.Off(t.Context(), o); err != nil {
			t.Error(err)
		}
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "an off of the same operation came") {
				t.Errorf("the on ended with %v", err)
			}
		default:
			t.Error("the off was proven while the on went on")
		}
	})
}

// A level alone has nothing to do with the others.
func TestLevelAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, first, second := stonith.New(nil), fake.New(), fake.New()
		first.Behave(fake.Behavior{Command: "ignore"})
		o := order(1, level(bmc("alpha-bmc", first)), level(bmc("pdu-a", second)))
		for n, want := range map[int]error{-1: stonith.ErrNoDevices, 3: stonith.ErrNoDevices} {
			o.Level = n
			if _, err := f.Off(t.Context(), o); !errors.Is(err, want) {
				t.Errorf("off by level %d: %v", n, err)
			}
			if err := f.On(t.Context(), o); !errors.Is(err, want) {
				t.Errorf("on by level %d: %v", n, err)
			}
		}
		o.Level = 2
		proof, err := f.Off(t.Context(), o)
		if err != nil || proof.Level != 2 || len(proof.Devices) != 1 || proof.Devices[0].Device != "pdu-a" || proof.Devices[0].TookMS < 300 {
			t.Errorf("%v, proof %+v", err, proof)
		}
		if err := f.On(t.Context(), o); err != nil || second.Power("") != agents.On {
			t.Errorf("on: %v", err)
		}
		o.Level = 1
		if _, err := f.Off(t.Context(), o); err == nil || second.Power("") != agents.On {
			t.Errorf("off by the level that does not obey: %v, the other is %v", err, second.Power(""))
		}
	})
}
