package watchdog

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func inBubble(t *testing.T, f func(t *testing.T, h *host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		defer h.dog.set(func() {
			if h.dog.timer != nil {
				h.dog.timer.Stop()
			}
		})
		defer func() {
			if h.guard != nil {
				_ = h.guard.Stop(context.Background())
			}
		}()
		f(t, h)
	})
}

func TestArmedOnlyWhileHolding(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.start()
		h.live(10 * time.Minute)
		opens := 0
		h.dog.set(func() { opens = h.dog.opens })
		if opens > 0 {
			t.Fatal("armed by a node that holds nothing")
		}
		opening := make(chan struct{})
		h.dog.set(func() { h.dog.pause = func(op string) { <-opening } })
		held := make(chan error, 1)
		go func() { held <- h.guard.Hold(context.Background(), "db") }()
		synctest.Wait()
		select {
		case err := <-held:
			t.Fatalf("held before the watchdog was armed: %v", err)
		default:
		}
		close(opening)
		if err := <-held; err != nil {
			t.Fatal(err)
		}
		h.dog.set(func() { h.dog.pause = func(string) {} })
		var timeout time.Duration
		h.dog.set(func() { timeout = h.dog.timeout })
		if runs, _, _ := h.dog.state(); !runs || timeout != h.o.Timing.Timeout {
			t.Fatalf("runs %v with %s", runs, timeout)
		}
		h.hold("web")
		h.live(10 * time.Minute)
		h.mustRun()
		var feeds []time.Time
		h.dog.set(func() { feeds = slices.Clone(h.dog.feeds) })
		for i := range feeds[1:] {
			if gap := feeds[i+1].Sub(feeds[i]); gap > h.o.Timing.Timeout/4 {
				t.Fatalf("not fed for %s", gap)
			}
		}
		h.release("db")
		if runs, _, _ := h.dog.state(); !runs {
			t.Fatal("disarmed although one group is held")
		}
		h.release("web")
		h.release("web") // once more does no harm
		if runs, _, _ := h.dog.state(); runs {
			t.Fatal("armed although nothing is held")
		}
		time.Sleep(10 * time.Minute) // alone, and it holds nothing
		h.mustRun()
	})
}

func TestHangIsReset(t *testing.T) {
	for name, alive := range map[string]func(context.Context) error{
		"says no": func(context.Context) error { return errDown },
		"is mute": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *host) {
				h.start()
				h.hear()
				h.hold("db")
				h.live(time.Minute)
				since := time.Now()
				h.become(alive)
				var others sync.WaitGroup
				others.Go(func() { h.live(time.Minute) }) // the coordinator is heard all the time
				defer others.Wait()
				time.Sleep(h.o.Timing.Fresh + time.Second)
				h.refuses("web", ErrStarved)
				if took := h.mustEnd(since, h.o.Timing.Fresh+h.o.Timing.Interval+h.o.Timing.Timeout); took < h.o.Timing.Timeout {
					t.Fatalf("reset after %s", took)
				}
			})
		})
	}
}

// A pause that a healthy daemon may make does no harm.
func TestShortPauseIsNone(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.start()
		h.hear()
		h.hold("db")
		for range 20 {
			h.live(10 * time.Second)
			h.become(func(context.Context) error { return errDown })
			h.live(h.o.Timing.Fresh + h.o.Timing.Timeout/2)
			h.become(func(context.Context) error { return nil })
		}
		h.live(time.Minute)
		h.mustRun()
	})
}

func TestAloneItStopsInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.start()
		h.hear()
		h.hold("db")
		h.live(time.Minute)
		h.hear()
		time.Sleep(letGo*detection + detection/4 + slowStop) // and no more answers
		h.mustRun()
		h.release("db")
		time.Sleep(10 * time.Minute)
		h.mustRun()
	})
}

func TestAloneAndStuckItIsReset(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.start()
		h.hear()
		h.hold("db")
		h.live(time.Minute)
		since := time.Now()
		h.hear()
		if took := h.mustEnd(since, h.o.Timing.Expiry); took < h.o.Timing.Patience {
			t.Fatalf("reset after %s, in the middle of an orderly stop", took)
		}
		_, _, last := h.dog.state()
		if late := last.Sub(since); late > h.o.Timing.Patience {
			t.Fatalf("fed after %s", late)
		}
	})
}

// A node that is to freeze goes on; its silence proves nothing.
func TestFrozenIsFed(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.o.LetsGo = false
		h.passedTest()
		h.start()
		h.hold("db")
		time.Sleep(10 * time.Minute)
		h.mustRun()
		if c := h.hear(); c.Armed {
			t.Fatalf("claims %+v", c)
		}
	})
}

func TestNextDaemonTakesOver(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.start()
		h.hear()
		h.hold("db")
		for range 10 {
			h.live(20 * time.Second)
			h.stop()
			time.Sleep(RestartTime)
			h.start("db")
		}
		h.live(time.Minute)
		h.mustRun()
		h.stop()
		if runs, _, _ := h.dog.state(); !runs {
			t.Fatal("a daemon that ended disarmed it")
		}
		// It died after the last stop was proven, and before it disarmed.
		h.start()
		synctest.Wait()
		if runs, _, _ := h.dog.state(); runs {
			t.Fatal("it runs, and nothing is held")
		}
	})
}

// A daemon that crashes again and again, and hears nobody, does not keep its host from being reset.
func TestCrashLoopIsReset(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.start()
		h.hear()
		h.hold("db")
		h.live(time.Minute)
		since := time.Now()
		h.hear()
		for time.Since(since) < h.o.Timing.Expiry {
			time.Sleep(5 * time.Second)
			h.stop()
			time.Sleep(time.Second)
			h.start("db")
		}
		h.mustEnd(since, h.o.Timing.Expiry)
	})
}

func TestExcuseNeedsACoordinator(t *testing.T) {
	for _, known := range []bool{false, true} {
		inBubble(t, func(t *testing.T, h *host) {
			h.passedTest()
			h.start()
			h.hear()
			h.hold("db")
			h.live(time.Minute)
			if c := h.hear(); !c.Armed || !c.Tested {
				t.Fatalf("claims %+v", c)
			}
			before, m := h.guard.Ask()
			h.guard.Excuse("in maintenance")
			h.guard.Heard(m) // asked before it had an excuse
			since := time.Now()
			if !before.Armed {
				t.Fatalf("claims %+v", before)
			}
			if !known {
				h.mustEnd(since, h.o.Timing.Expiry)
				return
			}
			if c := h.hear(); c.Armed {
				t.Fatalf("claims %+v", c)
			}
			time.Sleep(10 * time.Minute)
			h.mustRun()
			h.stop()
			h.start("db") // a new daemon finds the node excused
			time.Sleep(10 * time.Minute)
			h.mustRun()
			h.guard.Excuse("")
			if c, _ := h.guard.Ask(); c.Armed {
				t.Fatal("armed, while a daemon that starts now would find an excuse")
			}
			h.live(time.Minute)
			if c := h.hear(); !c.Armed {
				t.Fatalf("claims %+v", c)
			}
			h.mustEnd(time.Now(), h.o.Timing.Expiry)
		})
	}
}

// What was armed under another configuration goes on.
func TestOtherDeviceIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.start()
		h.hear()
		h.hold("db")
		h.stop()
		armed := h.o.Path
		h.o.Path = Off
		h.start("db")
		h.live(time.Minute)
		h.mustRun()
		if h.guard.Report().Path != armed {
			t.Fatalf("guards %q", h.guard.Report().Path)
		}
		h.release("db")
		if runs, _, _ := h.dog.state(); runs {
			t.Fatal("it runs, and nothing is held")
		}
		h.stop()
		h.start()
		h.hold("db")
		if runs, _, _ := h.dog.state(); runs || h.guard.Report().Path != Off {
			t.Fatalf("guards %q", h.guard.Report().Path)
		}
	})
}
