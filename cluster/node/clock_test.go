package node

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestWallClockStepIsTold: each step is told of once, with its sign; neither that a host was suspended, nor a clock that is
// slewed, nor a pause of the process is a step.
func TestWallClockStepIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var stepped, suspended, pause time.Duration // of the wall clock; not seen by timers; between two looks
		since := sinceNow()
		start := time.Now()
		uptime := func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return since() + suspended
		}
		wall := func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			suspended, pause = suspended+pause, 0
			return start.Add(since() + suspended + stepped)
		}
		told, in := io.Pipe()
		var steps []time.Duration
		read, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(read)
			for lines := json.NewDecoder(told); ; {
				var line struct {
					Msg, Level string
					By         time.Duration
				}
				if lines.Decode(&line) != nil {
					return
				}
				if line.Msg != "wall clock stepped" || line.Level != "WARN" {
					t.Errorf("%+v", line)
				}
				steps = append(steps, line.By)
			}
		}()
		go func() {
			defer close(done)
			watchClock(ctx, uptime, wall, slog.New(slog.NewJSONHandler(in, nil)))
		}()
		want := []time.Duration{-time.Hour, 30 * time.Second, 24 * time.Hour, -24 * time.Hour}
		for _, by := range want {
			time.Sleep(10 * clockLook)
			mu.Lock()
			stepped += by
			mu.Unlock()
		}
		for _, f := range []func(){
			func() { suspended += time.Hour },
			func() { pause = time.Hour },
			func() { stepped += clockStep / 4 }, // more than is ever slewed
		} {
			time.Sleep(10 * clockLook)
			mu.Lock()
			f()
			mu.Unlock()
		}
		time.Sleep(10 * clockLook)
		cancel()
		<-done
		in.Close()
		<-read
		if !slices.Equal(steps, want) {
			t.Errorf("told of %v, not of %v", steps, want)
		}
	})
}
