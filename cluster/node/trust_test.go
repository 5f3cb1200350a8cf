package node

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := 3 * time.Second
		tr := newTrust(d, slog.New(slog.DiscardHandler))
		if tr.now() {
			t.Fatal("trusted before it asked")
		}
		era, ask := tr.question()
		if !ask {
			t.Fatal("a fresh node does not ask")
		}
		// It stands still between question and answer: the answer is of the past.
		tr.lose(time.Now(), d)
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
		tr.lose(time.Now(), d)
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
		tr := newTrust(time.Second, slog.New(slog.DiscardHandler))
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
