package stonith_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/stonith"
)

// overlapping reports whether two calls were ever at the device at once.
func overlapping(d *fake.Device) bool {
	calls := d.Calls()
	slices.SortStableFunc(calls, func(a, b fake.Call) int { return a.At.Compare(b.At) })
	for i := 1; i < len(calls); i++ {
		if calls[i].At.Before(calls[i-1].At.Add(calls[i-1].Took)) {
			return true
		}
	}
	return false
}

// fenceAll fences n nodes at once, and tells how long that took.
func fenceAll(t *testing.T, n int, levels func(i int) [][]stonith.Device) time.Duration {
	f := stonith.New(nil)
	begun := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			o := order(1, levels(i)...)
			o.Node = fmt.Sprint("node", i)
			if _, err := f.Off(t.Context(), o); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	took := time.Since(begun)
	if err := f.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	return took
}

// Eight nodes take hardly longer than one: with a BMC each, with one PDU for all of them, and
// with a BMC each and the PDU for a second opinion.
func TestEightNodesAtOnce(t *testing.T) {
	const answer = 10 * time.Millisecond
	pdu := func() *fake.Device {
		d := fake.New("0", "1", "2", "3", "4", "5", "6", "7")
		d.Behave(fake.Behavior{Answer: answer, Lag: 100 * time.Millisecond, Sessions: 1})
		return d
	}
	own := func(i int) stonith.Device {
		d := fake.New()
		d.Behave(fake.Behavior{Answer: answer, Lag: 100 * time.Millisecond})
		device := bmc(fmt.Sprint("bmc", i), d)
		device.Sees = agents.SeesMachine
		return device
	}
	tests := map[string]func(shared *fake.Device, i int) [][]stonith.Device{
		"a BMC each": func(_ *fake.Device, i int) [][]stonith.Device { return [][]stonith.Device{{own(i)}} },
		"one PDU": func(d *fake.Device, i int) [][]stonith.Device {
			return [][]stonith.Device{{bmc("pdu", d, fmt.Sprint(i))}}
		},
		"a BMC each, and one PDU": func(d *fake.Device, i int) [][]stonith.Device {
			return [][]stonith.Device{{own(i)}, {bmc("pdu", d, fmt.Sprint(i))}}
		},
	}
	for name, levels := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				single, shared := pdu(), pdu()
				one := fenceAll(t, 1, func(i int) [][]stonith.Device { return levels(single, i) })
				eight := fenceAll(t, 8, func(i int) [][]stonith.Device { return levels(shared, i) })
				limit := one * 3 / 2
				if name == "one PDU" {
					limit += 8 * 4 * answer // read, off and two reads that prove it, which the PDU answers one after the other
				}
				t.Logf("one node %v, eight nodes %v", one, eight)
				if eight > limit {
					t.Errorf("eight nodes took %v, one takes %v", eight, one)
				}
				if overlapping(shared) || shared.Overlapped() || shared.Handles() != 0 {
					t.Errorf("overlapping calls: %v, handles: %v, %d left open", overlapping(shared), shared.Overlapped(), shared.Handles())
				}
			})
		})
	}
}

// A thousand operations on shared devices, cancelled at random, beside checks: no handle stays
// open, no call meets another one, nothing of it goes on.
func TestThousandOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4))
		f := stonith.New(nil)
		devices := map[string]*fake.Device{}
		for _, name := range []string{"pdu-a", "pdu-b", "bmc0", "bmc1", "bmc2", "bmc3"} {
			devices[name] = fake.New("0", "1", "2", "3")
		}
		target := func(node int) stonith.Target {
			device := func(name string) stonith.Device { return bmc(name, devices[name], fmt.Sprint(node)) }
			machine := device(fmt.Sprint("bmc", node))
			machine.Sees = agents.SeesMachine
			return stonith.Target{
				Node: fmt.Sprint("node", node), Machine: stonith.Machine{Serial: "SN1"},
				Levels: [][]stonith.Device{{machine}, {device("pdu-a"), device("pdu-b")}},
			}
		}
		var wg sync.WaitGroup
		proofs := 0
		var mu sync.Mutex
		for i := range 1000 {
			d := devices[[]string{"pdu-a", "pdu-b", "bmc0", "bmc1", "bmc2", "bmc3"}[rng.IntN(6)]]
			b := fake.Behavior{Answer: time.Duration(rng.IntN(40)) * time.Millisecond, Sessions: 1, Serial: []string{"SN1", "SN2"}[rng.IntN(2)]}
			switch rng.IntN(6) {
			case 0:
				b.Stall = []string{[]string{"status", "off", "on", "close", "identity"}[rng.IntN(5)]}
			case 1:
				b.Status = []string{"error", "credentials", "missing"}[rng.IntN(3)]
			}
			d.Behave(b)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(1500))*time.Millisecond)
			o := stonith.Order{Target: target(rng.IntN(4)), Op: uint64(i / 5), Gate: open, Level: rng.IntN(3)}
			kind := rng.IntN(4)
			wg.Go(func() {
				defer cancel()
				var err error
				switch kind {
				case 0:
					f.Check(ctx, o.Target)
				case 1:
					err = f.On(ctx, o)
				default:
					if _, err = f.Off(ctx, o); err == nil {
						mu.Lock()
						proofs++
						mu.Unlock()
					}
				}
				if late := time.Until(deadline(ctx)); late < -50*time.Millisecond {
					t.Errorf("returned %v late: %v", -late, err)
				}
			})
			time.Sleep(time.Duration(rng.IntN(80)) * time.Millisecond)
		}
		wg.Wait()
		for _, d := range devices {
			d.Behave(fake.Behavior{})
			d.Release()
		}
		if err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		for name, d := range devices {
			if d.Handles() != 0 || d.Overlapped() || overlapping(d) {
				t.Errorf("%s: %d handles, overlapped: handles %v, calls %v", name, d.Handles(), d.Overlapped(), overlapping(d))
			}
			for _, c := range d.Calls() {
				if errors.Is(c.Err, fake.ErrSessions) {
					t.Fatalf("%s: a session was missing", name)
				}
			}
		}
		if proofs < 20 {
			t.Errorf("%d proofs: hardly anything was tested", proofs)
		}
	})
}

func deadline(ctx context.Context) time.Time { d, _ := ctx.Deadline(); return d }

// What one operation's cancel breaks is made anew for those who share the device.
func TestSharedHandleIsReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := stonith.New(nil), fake.New("1", "2")
		d.Behave(fake.Behavior{Answer: 50 * time.Millisecond, Sessions: 1})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := f.Off(ctx, order(1, level(bmc("pdu", d, "1")))); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: %v", err)
			}
		})
		wg.Go(func() {
			o := order(1, level(bmc("pdu", d, "2")))
			o.Node = "beta"
			time.Sleep(time.Millisecond)
			if _, err := f.Off(t.Context(), o); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(70 * time.Millisecond) // alpha's off is under way
		cancel()
		wg.Wait()
		f.Wait(t.Context())
		calls := d.Calls()
		i := slices.IndexFunc(calls, func(c fake.Call) bool { return errors.Is(c.Err, context.Canceled) })
		if i < 0 {
			t.Fatal("no call was cut short")
		}
		for _, c := range calls[i+1:] {
			if c.Handle == calls[i].Handle && c.Verb != "close" {
				t.Errorf("%s on the broken handle", c.Verb)
			}
		}
		if last := slices.MaxFunc(calls, func(a, b fake.Call) int { return cmp.Compare(a.Handle, b.Handle) }); last.Handle != 2 || d.Overlapped() || overlapping(d) {
			t.Errorf("%d handles were made, overlapped %v", last.Handle, d.Overlapped())
		}
	})
}
