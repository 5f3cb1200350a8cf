package systemd

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/resources"
)

// hostVariable says that the test binary runs on a host with a systemd of its own, which it may do anything
// to. e2e/systemd/test.sh makes such a host. What then is missing is a failure.
const hostVariable = "HAMGR_SYSTEMD_HOST"

func TestMain(m *testing.M) {
	if onHost() {
		if _, err := os.Stat(privateSocket); err != nil {
			fmt.Fprintf(os.Stderr, "%s is set, and there is no systemd: %v\n", hostVariable, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

func onHost() bool { return os.Getenv(hostVariable) != "" }

// onlyOnHost is for tests that need a systemd. The others run against a fake one.
func onlyOnHost(t testing.TB) {
	t.Helper()
	if !onHost() {
		t.Skip("needs a host with a systemd of its own: e2e/systemd/test.sh runs this there")
	}
}

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
