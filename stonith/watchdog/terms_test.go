package watchdog

import (
	"testing"
	"time"
)

// TestOldTermsUntilTheOthersKnow: a daemon that begins with longer times, or with leave to keep what it holds, is reset by the
// times of the one before, which the others still count on, until a coordinator has heard of the new ones.
func TestOldTermsUntilTheOthersKnow(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"longer":   func(o *Options) { o.Timing = Derive(10*detection, slowStop) },
		"no limit": func(o *Options) { o.LetsGo = false },
	} {
		for _, known := range []bool{false, true} {
			inBubble(t, func(t *testing.T, h *host) {
				h.passedTest()
				h.start()
				h.hear()
				h.hold("db")
				time.Sleep(time.Second)
				told := h.hear()
				since := time.Now()
				if !told.Armed {
					t.Fatalf("%s: %+v", name, told)
				}
				h.stop()
				before := h.o
				change(&h.o)
				h.start("db")
				if known {
					h.live(2 * detection)
					if c := h.hear(); c.Armed && c.Expiry <= told.Expiry {
						t.Errorf("%s: claims %+v", name, c)
					}
					time.Sleep(told.Expiry)
					h.mustRun()
				} else {
					h.mustEnd(since, told.Expiry)
				}
				h.stop()
				h.o = before
			})
		}
	}
}

// TestUndisputedIsFed: while nobody can coordinate elsewhere, a node that holds something is fed; after that its time begins.
func TestUndisputedIsFed(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.passedTest()
		h.start()
		h.hear()
		h.hold("db")
		for range 100 {
			_, m := h.guard.Ask()
			h.guard.Undisputed(m)
			time.Sleep(detection)
		}
		h.mustRun()
		h.mustEnd(time.Now(), h.o.Timing.Expiry)
	})
}
