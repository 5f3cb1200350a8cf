package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var off = FenceRequest{Node: "gamma", Action: ActionOff, By: "anna", Reason: "smoke"}

func TestFenceStreamsItsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := overPipes(t, "beta", fake{forwarded: func(ctx context.Context, peer string, req FenceRequest, observe func(FenceEvent)) (FenceResult, error) {
			if peer != "beta" || req != off {
				return FenceResult{}, fmt.Errorf("peer %q asks %+v", peer, req)
			}
			for i := range 3 {
				time.Sleep(time.Minute) // longer than silence: empty lines keep the stream alive
				observe(FenceEvent{Op: 7, Phase: PhaseOff, Text: fmt.Sprint("step ", i)})
			}
			return FenceResult{Op: 7, Node: req.Node, Phase: PhaseDone, Proof: "read off"}, ctx.Err()
		}})
		begin := time.Now()
		var seen []time.Duration
		got, err := c.Fence(t.Context(), off, func(e FenceEvent) {
			if e.Text != fmt.Sprint("step ", len(seen)) {
				t.Errorf("event %d is %+v", len(seen), e)
			}
			seen = append(seen, time.Since(begin))
		})
		if err != nil || got.Op != 7 || got.Proof != "read off" || got.Schema != Schema {
			t.Errorf("got %+v, %v", got, err)
		}
		if want := []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute}; !slices.Equal(seen, want) {
			t.Errorf("events seen at %v, want %v: as they happen", seen, want)
		}
	})
}

func TestFenceErrors(t *testing.T) {
	for _, withEvent := range []bool{false, true} {
		c := overUnix(t, fake{fence: func(_ context.Context, _ FenceRequest, observe func(FenceEvent)) (FenceResult, error) {
			if withEvent {
				observe(FenceEvent{Phase: PhaseOff, Text: "refused"})
			}
			return FenceResult{}, &Error{Code: ErrFailed, Message: "every level failed", Hint: "look at the BMC"}
		}})
		_, err := c.Fence(t.Context(), off, nil)
		if !errors.Is(err, ErrFailed) || err.Error() != "every level failed" || AsError(err).Hint != "look at the BMC" {
			t.Errorf("with event %v: %#v", withEvent, err)
		}
	}
}

// A request that is wrong in itself is not sent.
func TestFenceIsCheckedBeforeItIsSent(t *testing.T) {
	c := client(t, func(context.Context) (net.Conn, error) { return nil, errors.New("dialled") })
	for _, req := range []FenceRequest{{}, {Node: "a"}, {Node: "a", Action: "cycle"}, {Node: "a", Action: "off", Reason: string(make([]byte, 1025))}} {
		if _, err := c.Fence(t.Context(), req, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", req, err)
		}
	}
}

// Whoever waits may stop waiting: the backend sees it at once, and the asker learns that
// the outcome is not known.
func TestFenceCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int64
		begin := time.Now()
		c := overPipes(t, "beta", fake{forwarded: func(ctx context.Context, _ string, _ FenceRequest, _ func(FenceEvent)) (FenceResult, error) {
			<-ctx.Done()
			ended.Store(int64(time.Since(begin)))
			return FenceResult{}, ctx.Err()
		}})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		_, err := c.Fence(ctx, off, nil)
		if !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.Canceled) || AsError(err).Hint == "" {
			t.Errorf("got %#v", err)
		}
		synctest.Wait()
		if got := time.Duration(ended.Load()); got != 3*time.Second {
			t.Errorf("the backend's context ended after %v, want 3s", got)
		}
	})
}

// The daemon's own word on a deadline arrives before the asker's patience ends.
func TestFenceDeadlineIsAnsweredByTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := overPipes(t, "beta", fake{forwarded: func(ctx context.Context, _ string, _ FenceRequest, _ func(FenceEvent)) (FenceResult, error) {
			<-ctx.Done()
			return FenceResult{}, fmt.Errorf("operation 7 goes on: %w", ErrUnknownOutcome)
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := c.Fence(ctx, off, nil)
		if !errors.Is(err, ErrUnknownOutcome) || err.Error() != "operation 7 goes on: unknown outcome" {
			t.Errorf("got %v", err)
		}
	})
}

// A host that freezes in the middle sends nothing more, not even the end of the connection.
func TestFenceNoticesSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, speak := range map[string]string{
			"before the answer": "",
			"in the stream":     "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n{\"event\":{\"phase\":\"off\",\"text\":\"x\"}}\n",
		} {
			near, far := net.Pipe()
			go func() {
				if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
					far.Write([]byte(speak))
				}
			}()
			c := client(t, func(context.Context) (net.Conn, error) { return near, nil })
			begin := time.Now()
			_, err := c.Fence(t.Context(), off, nil)
			if !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, errSilent) || time.Since(begin) != silence {
				t.Errorf("%s: got %v after %v", name, err, time.Since(begin))
			}
			far.Close()
		}
	})
}

// A connection that breaks leaves the outcome unknown; one that was never had does not.
func TestFenceBrokenConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		dial func(context.Context) (net.Conn, error)
		want Code
	}{
		"no connection": {func(context.Context) (net.Conn, error) { return nil, errors.New("refused") }, ErrUnreachable},
		"closed at once": {func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			far.Close()
			return near, nil
		}, ErrUnknownOutcome},
		"stream cut": {func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				http.ReadRequest(bufio.NewReader(far))
				far.Write([]byte("HTTP/1.1 200 OK\r\n\r\n{}\n{\"event\":{\"phase\":\"off\",\"text\":\"x\"}}\n"))
				far.Close()
			}()
			return near, nil
		}, ErrUnknownOutcome},
	} {
		if _, err := client(t, tt.dial).Fence(t.Context(), off, nil); CodeOf(err) != tt.want {
			t.Errorf("%s: got %v (%s), want %s", name, err, CodeOf(err), tt.want)
		}
	}
}

// A reader that stalls loses events, never the end, and holds the backend up by nothing.
func TestSlowReaderLosesEventsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 10 * backlog
		c := overPipes(t, "beta", fake{forwarded: func(_ context.Context, _ string, _ FenceRequest, observe func(FenceEvent)) (FenceResult, error) {
			begin := time.Now()
			for range events {
				observe(FenceEvent{Phase: PhaseOff, Text: "x"})
			}
			return FenceResult{Op: 1, TookMS: time.Since(begin).Milliseconds()}, nil
		}})
		seen := 0
		got, err := c.Fence(t.Context(), off, func(FenceEvent) { seen++; time.Sleep(time.Millisecond) })
		if err != nil || got.Op != 1 || got.TookMS != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
		if seen < backlog || seen > events {
			t.Errorf("%d events of %d seen", seen, events)
		}
	})
}

// Stopping the server ends what runs, lets the answers out and waits for the backend.
func TestServeStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes("beta")
		var left atomic.Bool
		stop := start(t, l, Nodes(fake{forwarded: func(ctx context.Context, _ string, _ FenceRequest, _ func(FenceEvent)) (FenceResult, error) {
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond)
			left.Store(true)
			return FenceResult{}, fmt.Errorf("the daemon stops: %w", ErrUnknownOutcome)
		}}))
		c := client(t, l.dial)
		if idle, err := l.dial(t.Context()); err != nil { // a peer that never asks anything
			t.Fatal(err)
		} else {
			defer idle.Close()
		}
		answer := make(chan error, 1)
		go func() {
			_, err := c.Fence(t.Context(), off, nil)
			answer <- err
		}()
		time.Sleep(time.Second)
		begin := time.Now()
		stop()
		if !left.Load() || time.Since(begin) > time.Second {
			t.Errorf("stopped after %v, backend left: %v", time.Since(begin), left.Load())
		}
		if err := <-answer; !errors.Is(err, ErrUnknownOutcome) || err.Error() != "the daemon stops: unknown outcome" {
			t.Errorf("the asker was told %v", err)
		}
		if _, err := c.Fence(t.Context(), off, nil); !errors.Is(err, ErrUnreachable) {
			t.Errorf("after the stop: %v", err)
		}
	})
}

// A backend that is slow to leave is waited for, although its asker is given up.
func TestServeWaitsForItsBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes("beta")
		var left atomic.Bool
		stop := start(t, l, Nodes(fake{call: func(ctx context.Context, _, _ string, _ []byte) ([]byte, error) {
			<-ctx.Done()
			time.Sleep(10 * stopGrace)
			left.Store(true)
			return nil, nil
		}}))
		c := client(t, l.dial)
		answer := make(chan error, 1)
		go func() {
			_, err := c.Call(t.Context(), "report", nil)
			answer <- err
		}()
		time.Sleep(time.Second)
		stop()
		if !left.Load() {
			t.Error("stopped while the backend was at work")
		}
		if err := <-answer; !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("the asker was told %v", err)
		}
	})
}

// The deadline for a request's body does not end a request that takes longer.
func TestSlowStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes("")
		start(t, l, Operator(fake{status: func(ctx context.Context) (Status, error) {
			select {
			case <-ctx.Done():
				return Status{}, context.Cause(ctx)
			case <-time.After(2 * headerTimeout):
				return Status{Node: "alpha"}, nil
			}
		}}))
		if s, err := client(t, l.dial).Status(t.Context()); err != nil || s.Node != "alpha" {
			t.Errorf("got %+v, %v", s, err)
		}
	})
}

// A frozen daemon must not freeze those who ask for its status.
func TestStatusTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := client(t, func(context.Context) (net.Conn, error) { return near, nil })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := c.Status(ctx); !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
