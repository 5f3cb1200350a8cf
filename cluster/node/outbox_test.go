package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
)

func report(token uint64) state.Command {
	return state.Command{Started: &state.Report{Group: "db", Token: token}}
}

func TestOutboxDeliversInOrderAndInsists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []uint64
		tries := 0
		o := newOutbox(func(_ context.Context, c state.Command) error {
			tries++
			if tries < 6 {
				return errNoCoordinator
			}
			got = append(got, c.Started.Token)
			if c.Started.Token == 2 {
				return fmt.Errorf("too late: %w", state.ErrSuperseded)
			}
			return nil
		}, slog.New(slog.DiscardHandler))
		for i := range 3 {
			o.send(report(uint64(i + 1)))
		}
		done := make(chan struct{})
		go func() { o.run(t.Context()); close(done) }()
		o.flush(t.Context())
		if fmt.Sprint(got) != "[1 2 3]" {
			t.Errorf("delivered %v", got)
		}
		o.close()
		<-done
	})
}

func TestOutboxEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		o := newOutbox(func(context.Context, state.Command) error { return errors.New("no network") }, slog.New(slog.DiscardHandler))
		o.send(report(1))
		done := make(chan struct{})
		go func() { o.run(ctx); close(done) }()
		time.Sleep(time.Minute)
		cancel()
		began := time.Now()
		<-done
		o.flush(ctx)
		if time.Since(began) > 0 {
			t.Errorf("took %s to end", time.Since(began))
		}
	})
}
