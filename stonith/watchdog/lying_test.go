package watchdog

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRoundedUpIsRefused(t *testing.T) {
	for rounds, want := range map[time.Duration]error{
		0: nil, -time.Second: nil, time.Second: ErrUnfit, -10 * time.Second: ErrUnfit,
	} {
		inBubble(t, func(t *testing.T, h *host) {
			h.dog.rounds = rounds
			h.start()
			h.hear()
			h.refuses("db", want)
			if runs, _, _ := h.dog.state(); runs != (want == nil) {
				t.Fatalf("rounds by %s: runs %v", rounds, runs)
			}
			h.live(10 * time.Minute)
			h.mustRun()
			if r := h.guard.Report(); (r.Trouble != "") != (want != nil) {
				t.Fatalf("reports %+v", r)
			}
		})
	}
}

// One that is refused and cannot be stopped is fed, so that it resets nobody.
func TestUnfitAndNoWayOut(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.dog.rounds, h.dog.noWayOut = time.Second, true
		h.start()
		h.hear()
		h.refuses("db", ErrUnfit)
		time.Sleep(10 * time.Minute)
		h.mustRun()
	})
}

func TestNoWayOutIsFedToTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.dog.noWayOut = true
		h.passedTest()
		h.start()
		h.hear()
		h.hold("db")
		h.release("db")
		time.Sleep(10 * time.Minute)
		h.mustRun()
		if c, _ := h.guard.Ask(); c.Armed {
			t.Fatal("its silence must not count: it holds nothing, and is fed for ever")
		}
		h.hear()
		h.hold("db")
		h.mustEnd(time.Now(), h.o.Timing.Expiry)
	})
}

func TestBusyIsRefusedAndTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.dog.openErr = ErrBusy
		h.start()
		h.hear()
		h.refuses("db", ErrBusy)
		if c := h.hear(); c.Armed {
			t.Fatalf("claims %+v", c)
		}
		h.dog.set(func() { h.dog.openErr = nil })
		h.hold("db")
		if r := h.guard.Report(); r.Trouble != "" || !r.Armed {
			t.Fatalf("reports %+v", r)
		}
	})
}

func TestFailingDeviceIsNoWatchdog(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.passedTest()
		h.start()
		h.hear()
		h.hold("db")
		h.dog.set(func() { h.dog.feedErr = errDown })
		time.Sleep(h.o.Timing.Interval)
		synctest.Wait()
		if c := h.hear(); c.Armed || !strings.Contains(c.Why, errDown.Error()) {
			t.Fatalf("claims %+v", c)
		}
		h.refuses("web", errDown)
		if !strings.Contains(h.guard.Report().Trouble, errDown.Error()) {
			t.Fatal("no alarm")
		}
	})
}

// One that does not fire is found out by the first pause that is long enough, and never counted on again.
func TestDoesNotFire(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.dog.dead = true
		h.passedTest()
		h.start()
		h.hear()
		h.hold("db")
		h.become(func(context.Context) error { return errDown })
		h.live(2 * h.o.Timing.Late(0))
		h.become(func(context.Context) error { return nil })
		h.live(time.Minute)
		if c := h.hear(); c.Armed || c.Tested || !strings.Contains(c.Why, ErrNoReset.Error()) {
			t.Fatalf("claims %+v", c)
		}
		h.refuses("web", ErrNoReset)
		h.release("db")
		h.refuses("web", ErrNoReset)
		test, err := readTest(h.o.DataDir)
		if err != nil || test.Verdict != Failed {
			t.Fatalf("the test's record: %+v, %v", test, err)
		}
		// A daemon that stayed away for too long finds it out, too.
		h.stop()
		h.passedTest()
		if err := (note{Armed: true, Path: h.o.Path, Heard: h.o.Now(), Fed: h.o.Now()}).write(h.o.Dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * h.o.Timing.Late(0))
		h.start("db")
		synctest.Wait()
		h.refuses("web", ErrNoReset)
		if test, err := readTest(h.o.DataDir); err != nil || test.Verdict != Failed {
			t.Fatalf("the test's record: %+v, %v", test, err)
		}
	})
}

func TestSoftwareAndUntestedNeverCount(t *testing.T) {
	for name, change := range map[string]func(h *host){
		"software":      func(h *host) { h.dog.name = softwareName; h.passedTest() },
		"another":       func(h *host) { h.passedTest(); h.dog.name = "other" },
		"untested":      func(h *host) {},
		"of other path": func(h *host) { h.passedTest(); h.o.Path = "/dev/watchdog7" },
		"off":           func(h *host) { h.passedTest(); h.o.Path = Off },
		"fake":          func(h *host) { h.passedTest(); h.o.Path = Fake },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *host) {
				change(h)
				h.start()
				h.hear()
				h.hold("db")
				c := h.hear()
				v := Decide(Case{Boot: "b1", Claim: &c, Silent: 1000 * time.Hour, Expiry: h.o.Timing.Expiry})
				if v.Proven || v.Never == "" {
					t.Fatalf("claims %+v, verdict %+v", c, v)
				}
				h.release("db")
			})
		})
	}
}

func TestStoppedGuardRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.start()
		h.stop()
		h.refuses("db", ErrStopped)
		if err := h.guard.Release(t.Context(), "db"); !errors.Is(err, ErrStopped) {
			t.Fatal(err)
		}
	})
}
