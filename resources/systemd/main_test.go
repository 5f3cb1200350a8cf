package systemd

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/resources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func envOf(token uint64) resources.Env {
	return resources.Env{Group: "db", Resource: "app", Node: "alpha", Boot: "b1", Token: token, Log: slog.New(slog.DiscardHandler)}
}

func newService(t testing.TB, unit string, token uint64) *service {
	t.Helper()
	o := Options{Unit: unit}
	r, err := o.New(envOf(token))
	if err != nil {
		t.Fatal(err)
	}
	return r.(*service)
}

func wantState(t testing.TB, s *service, want resources.State) string {
	t.Helper()
	state, detail, err := s.Probe(t.Context())
	if err != nil || state != want {
		t.Fatalf("probe: %s, %q, %v; want %s", state, detail, err, want)
	}
	return detail
}

func deadline(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func mustStart(t testing.TB, s *service) {
	t.Helper()
	if err := s.Start(deadline(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
}

func mustStop(t testing.TB, s *service) {
	t.Helper()
	if err := s.Stop(deadline(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	wantState(t, s, resources.Inactive)
}

func wantError(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not mention %q", err, word)
		}
	}
}

// died starts to wait for the death of a service that is followed already when it returns.
func died(t testing.TB, s *service) <-chan error {
	t.Helper()
	reason := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reason <- s.Died(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		s.link.mu.Lock()
		followed := s.link.current != nil
		s.link.mu.Unlock()
		if followed {
			wantState(t, s, resources.Active) // so it has asked, too
			return reason
		}
		if time.Since(begun) > 5*time.Second {
			t.Fatal("Died does not follow the service")
		}
	}
}

func wantDeath(t testing.TB, reason <-chan error, bound time.Duration, words ...string) {
	t.Helper()
	begun := time.Now()
	select {
	case err := <-reason:
		wantError(t, err, words...)
		t.Logf("%s, after %s", err, time.Since(begun))
		if took := time.Since(begun); took > bound {
			t.Errorf("noticed after %s", took)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the death was not noticed")
	}
}
