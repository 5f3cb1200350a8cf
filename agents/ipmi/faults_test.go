package ipmi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/ipmi/ipmipeer"
)

// fence does what the engine does, with calls of at most half the budget: read, order off while
// it is on, read back until it is off twice.
func fence(ctx context.Context, a *agent, machine func() agents.PowerState) error {
	offs, ordered := 0, time.Time{}
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		r, err := a.Status(call, "")
		switch {
		case err != nil:
			offs = 0
		case r.State == agents.Off:
			if machine() != agents.Off {
				cancel()
				return errors.New("false off")
			}
			offs++
		case time.Since(ordered) > 2*time.Second:
			offs = 0
			a.Off(call, "")
			ordered = time.Now()
		}
		cancel()
		if offs == 2 {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return ctx.Err()
}

// TestLoss (B09): datagrams are lost, repeated, reordered and damaged in both directions. No state
// is false ever; at 10 % nearly all fencings end within 20 s.
func TestLoss(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		faults ipmipeer.Faults
		runs   int
		budget time.Duration
		done   float64 // at least this part ends in time
	}{
		{ipmipeer.Faults{Lose: .10, Repeat: .10, Reorder: .10, Damage: .02}, 200, 20 * time.Second, .99},
		{ipmipeer.Faults{Lose: .30, Repeat: .30, Reorder: .30, Damage: .02}, 60, 10 * time.Second, .3},
	} {
		t.Run(fmt.Sprintf("%.0f per cent", 100*c.faults.Lose), func(t *testing.T) {
			t.Parallel()
			var done atomic.Int32
			var wg sync.WaitGroup
			start := time.Now()
			var longest atomic.Int64
			for seed := range c.runs {
				r := ipmipeer.StartReference(t, ipmipeer.Config{}, 64)
				proxy := ipmipeer.StartProxy(t, r.Addr(), uint64(seed), c.faults)
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), c.budget)
					defer cancel()
					began := time.Now()
					h, err := options(proxy.Addr()).Open(nil)
					if err != nil {
						t.Error(err)
						return
					}
					defer h.Close(context.Background())
					switch err := fence(ctx, h.(*agent), r.Power); {
					case err == nil:
						done.Add(1)
						longest.Store(max(longest.Load(), int64(time.Since(began))))
					case !errors.Is(err, context.DeadlineExceeded):
						t.Errorf("seed %d: %v", seed, err)
					}
					// What still is on its way says off, and the machine is on again.
					r.SetPower(agents.On)
					for range 5 {
						call, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
						// An order that comes late may still be obeyed: then it is off again.
						if got, _ := h.Status(call, ""); got.State == agents.Off && r.Power() == agents.On {
							t.Errorf("seed %d: off is read, and it is on", seed)
						}
						cancel()
					}
				})
			}
			wg.Wait()
			t.Logf("%d of %d in time, the longest took %v, all %v", done.Load(), c.runs, time.Duration(longest.Load()), time.Since(start))
			if got := float64(done.Load()) / float64(c.runs); got < c.done {
				t.Errorf("%.1f %% done in time, want %.1f %%", 100*got, 100*c.done)
			}
		})
	}
}

// TestNoSlot (B08): all slots are taken for the first tries.
func TestNoSlot(t *testing.T) {
	t.Parallel()
	r := ipmipeer.StartReference(t, ipmipeer.Config{}, 4)
	r.NoSlot(3)
	a := open(t, options(r.Addr()))
	if err := a.Off(within(t, 5*time.Second), ""); err != nil || r.Power() != agents.Off {
		t.Errorf("%v, machine %v", err, r.Power())
	}
	r.NoSlot(1 << 30)
	b := open(t, options(r.Addr()))
	if _, err := b.Status(within(t, 400*time.Millisecond), ""); !errors.Is(err, agents.ErrBusy) {
		t.Errorf("without a slot for good: %v", err)
	}
}

// TestSlotsComeBack (B08): 500 rounds, cancelled anywhere, at a BMC with few slots; none is left
// taken, and the shot goes through. ipmi_sim tells its slots by letting nobody else in.
func TestSlotsComeBack(t *testing.T) {
	t.Parallel()
	t.Run("reference", func(t *testing.T) {
		t.Parallel()
		r := ipmipeer.StartReference(t, ipmipeer.Config{}, 8)
		rounds(t, r.Addr(), 500, time.Millisecond)
		eventually(t, "no session is left", func() bool { return r.Sessions() == 0 })
		a := open(t, options(r.Addr()))
		if err := a.Off(within(t, time.Second), ""); err != nil || r.Power() != agents.Off {
			t.Errorf("the shot: %v", err)
		}
	})
	t.Run("ipmi_sim", func(t *testing.T) {
		t.Parallel()
		b := ipmipeer.Start(t, ipmipeer.Config{})
		rounds(t, b.Addr(), 500, 4*time.Millisecond)
		const slots = 63
		for i := range slots {
			a := open(t, options(b.Addr()))
			if _, err := a.Status(within(t, time.Second), ""); err != nil {
				t.Fatalf("only %d of %d slots are free: %v", i, slots, err)
			}
		}
	})
}

func rounds(t *testing.T, addr string, n int, span time.Duration) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	finished := 0
	for range n {
		h, err := options(addr).Open(nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.Int64N(int64(span))))
		if _, err := h.Status(ctx, ""); err == nil {
			finished++
		}
		cancel()
		h.Close(context.Background())
	}
	if finished == 0 || finished == n {
		t.Errorf("%d of %d rounds were not cancelled: nothing was tried", finished, n)
	}
}

// TestRestart: the BMC restarts and forgets the session; the handle finds back within one call.
func TestRestart(t *testing.T) {
	t.Parallel()
	b := ipmipeer.Start(t, ipmipeer.Config{})
	a := open(t, options(b.Addr()))
	reads(t, a, agents.On)
	for range 2 {
		b.Restart()
		reads(t, a, agents.On)
	}
	b.Restart()
	if err := a.Off(within(t, 3*time.Second), ""); err != nil {
		// Lost with the session, and not sent again by itself.
		reads(t, a, agents.On)
		if err := a.Off(within(t, 3*time.Second), ""); err != nil {
			t.Error(err)
		}
	}
	reads(t, a, agents.Off)
	if got := b.Calls(); len(got) != 1 {
		t.Errorf("commands that arrived: %v", got)
	}
	b.Freeze()
	if got, err := a.Status(within(t, 300*time.Millisecond), ""); got.State != agents.Unknown || err == nil {
		t.Errorf("frozen: %v, %v", got, err)
	}
	b.Thaw()
	reads(t, a, agents.Off)
}

// TestCancel: whatever is being waited for, the end of the context ends the call; and Close does
// not take longer than it may.
func TestCancel(t *testing.T) {
	slack := 50 * time.Millisecond
	if raceEnabled {
		slack *= 3
	}
	type call = func(ctx context.Context, a *agent) error
	calls := map[string]call{
		"status":   func(ctx context.Context, a *agent) error { _, err := a.Status(ctx, ""); return err },
		"off":      func(ctx context.Context, a *agent) error { return a.Off(ctx, "") },
		"check":    func(ctx context.Context, a *agent) error { return a.Check(ctx, "") },
		"identity": func(ctx context.Context, a *agent) error { _, err := a.Identity(ctx, ""); return err },
	}
	r := ipmipeer.StartReference(t, ipmipeer.Config{}, 1000)
	for name, do := range calls {
		for answers := range 5 { // open, RAKP 2, RAKP 4, two commands
			t.Run(fmt.Sprintf("%s, silent after %d answers", name, answers), func(t *testing.T) {
				t.Parallel()
				proxy := ipmipeer.StartProxy(t, r.Addr(), 1, ipmipeer.Faults{})
				count := 0
				proxy.Forge(func(b []byte) [][]byte {
					if count++; count > answers {
						return nil
					}
					return [][]byte{b}
				})
				o := options(proxy.Addr())
				o.CipherSuite = 17
				a := open(t, o)
				for try := 0; ; try++ {
					ctx, cancel := context.WithCancel(context.Background())
					var ended time.Time
					timer := time.AfterFunc(80*time.Millisecond, func() { ended = time.Now(); cancel() })
					err := do(ctx, a)
					late := time.Since(ended)
					timer.Stop()
					cancel()
					if err == nil {
						break // these answers were enough
					}
					if !errors.Is(err, context.Canceled) || agents.Lasting(err) {
						t.Errorf("%v", err)
					}
					if late <= slack {
						break
					}
					if try == 2 { // a busy machine may be late by itself, once
						t.Fatalf("returned %v after its context", late)
					}
				}
				start := time.Now()
				a.Close(context.Background())
				if took := time.Since(start); took > closeLimit+slack {
					t.Errorf("close took %v", took)
				}
			})
		}
	}
}

// TestNothingLeft: a thousand operations that end anywhere leave no socket behind; goroutines
// are looked for by TestMain.
func TestNothingLeft(t *testing.T) {
	r := ipmipeer.StartReference(t, ipmipeer.Config{}, 8)
	proxy := ipmipeer.StartProxy(t, r.Addr(), 1, ipmipeer.Faults{Lose: .02, Repeat: .1, Reorder: .1, Hold: time.Millisecond})
	random := rand.New(rand.NewPCG(1, 2))
	before := -1
	for i := range 1000 {
		a := open(t, options(r.Addr()))
		if i%10 == 0 {
			a.target.address = proxy.Addr()
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.Int64N(int64(2*time.Millisecond))))
		switch random.IntN(4) {
		case 0:
			a.Status(ctx, "")
		case 1:
			a.Off(ctx, "")
		case 2:
			a.Check(ctx, "")
		case 3:
			a.Identity(ctx, "")
		}
		cancel()
		limited, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		a.Close(limited)
		cancel()
		if i == 9 {
			before = openSockets(t)
		}
	}
	// The proxy keeps a socket for each of the hundred that it saw, 9 after the tenth handle.
	eventually(t, "no socket more", func() bool { return openSockets(t) <= before+100 })
	if r.Power() == agents.Unknown {
		t.Error("never")
	}
}

func openSockets(t *testing.T) (n int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// TestQuiet: a session without trouble logs nothing.
func TestQuiet(t *testing.T) {
	t.Parallel()
	r := ipmipeer.StartReference(t, ipmipeer.Config{}, 4)
	var said logged
	h, err := options(r.Addr()).Open(slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	reads(t, h.(*agent), agents.On)
	if err := h.Close(context.Background()); err != nil || said.has("level") {
		t.Errorf("%v; log: %s", err, said.text.String())
	}
}
