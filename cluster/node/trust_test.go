package node

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// sinceNow is a kernel that has just started, in virtual time.
func sinceNow() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

func TestTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := 3 * time.Second
		tr := newTrust(d, sinceNow(), new(Pace), slog.New(slog.DiscardHandler))
		if tr.now() {
			t.Fatal("trusted before it asked")
		}
		era, ask := tr.question()
		if !ask {
			t.Fatal("a fresh node does not ask")
		}
		// It stands still between question and answer: the answer is of the past.
		tr.look(func() { tr.lose(time.Now(), d) })
		tr.answered(era)
		if tr.now() {
			t.Fatal("an answer from before the pause was believed")
		}
		era, _ = tr.question()
		tr.answered(era)
		if !tr.now() || tr.wait(t.Context()) != nil {
			t.Fatal("not trusted after the answer")
		}
		time.Sleep(d)
		if s := tr.silence(); s != d {
			t.Fatalf("silence %s", s)
		}
		// Its own pause is not the coordinator's silence.
		tr.look(func() { tr.lose(time.Now(), d) })
		if s := tr.silence(); s != 0 || tr.now() {
			t.Fatalf("silence %s, trusted %v", s, tr.now())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if tr.wait(ctx) == nil {
			t.Fatal("waited for nothing")
		}
	})
}

// TestTrustKeepsTime: as long as the process runs, watching it costs no trust.
func TestTrustKeepsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tr := newTrust(time.Second, sinceNow(), new(Pace), slog.New(slog.DiscardHandler))
		done := make(chan struct{})
		go func() { tr.watch(ctx); close(done) }()
		era, _ := tr.question()
		tr.answered(era)
		began := tr.awakeSince()
		time.Sleep(time.Hour)
		if !tr.now() || tr.awakeSince() != began {
			t.Error("lost trust without a pause")
		}
		cancel()
		<-done
	})
}

// TestPauseIsNoticedByWhoAsks: after a pause anybody may run before the watch does, and must not get the trust of before.
func TestPauseIsNoticedByWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := time.Second
		kernel := sinceNow()
		pace := &Pace{}
		var suspended time.Duration // in which the usual clock stands still
		tr := newTrust(d, func() time.Duration { return kernel() + suspended }, pace, slog.New(slog.DiscardHandler))
		done := make(chan struct{})
		go func() { tr.watch(ctx); close(done) }()
		time.Sleep(d / 3)
		era, _ := tr.question()
		tr.answered(era)
		suspended = d / 3
		if !tr.now() {
			t.Error("a short pause costs trust")
		}
		suspended += time.Minute
		if tr.now() {
			t.Error("trusted right after a pause of a minute")
		}
		if tr.answered(era); tr.now() {
			t.Error("an answer from before the pause was believed")
		}
		if s := tr.silence(); s != 0 {
			t.Errorf("its own pause is the coordinator's silence, of %s", s)
		}
		if g := pace.longestGap(); g < time.Minute-d || g > time.Minute+d {
			t.Errorf("the longest pause was %s", g)
		}
		cancel()
		<-done
	})
}
