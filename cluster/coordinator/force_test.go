package coordinator_test

import (
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// TestHelloFromAnotherLine: quorum was forced here, and beta was granted db on the line of history that is left behind. It
// does not count as found there, so its greetings must not end what stands here against beta.
func TestHelloFromAnotherLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.must(t, state.Command{Stop: &state.StopGroup{Group: "db", Token: 1, Reason: "moves"}})
		o.must(t, state.Command{Stopped: &state.Report{Group: "db", Token: 1, Node: "beta", Boot: "beta-1"}})
		o.must(t, state.Command{Upgrade: &state.Upgrade{Version: state.Version}})
		o.must(t, state.Command{Force: &state.Force{Node: "alpha", By: "anna"}})
		o.withLine(func() string { return "forced" }, nil)
		o.leads = true
		if _, err := o.Hello(t.Context(), "beta", coordinator.Hello{Boot: "beta-1", Speaks: state.Version, Applied: 1}); !errors.Is(err, state.ErrConflict) {
			t.Errorf("answered: %v", err)
		}
		if o.state().Groups["db"].Found["beta"] == "" {
			t.Error("db may be granted, though beta may run it")
		}
		// It returns with the log of this line, and tells what it found.
		if _, err := o.Hello(t.Context(), "beta", coordinator.Hello{Boot: "beta-1", Line: "forced", Speaks: state.Version, Applied: 1}); err != nil {
			t.Error(err)
		}
		if o.state().Groups["db"].Found["beta"] != "" {
			t.Error("what it says does not count")
		}
	})
}

// TestNobodyIsToldBeforeTheForce: that quorum was forced has to be in the log before anybody goes by it, this node too.
func TestNobodyIsToldBeforeTheForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		force := &state.Force{Node: "alpha", By: "anna"}
		o.withLine(nil, func() (*state.Force, error) { return force, nil })
		o.leads = true
		for _, n := range []string{"alpha", "beta"} {
			if _, err := o.Hello(t.Context(), n, coordinator.Hello{Boot: n + "-1", Ask: true}); !errors.Is(err, coordinator.ErrNotCoordinator) {
				t.Errorf("%s was told: %v", n, err)
			}
		}
		force = nil
		if _, err := o.Hello(t.Context(), "alpha", coordinator.Hello{Boot: "alpha-1", Ask: true}); err != nil {
			t.Error(err)
		}
	})
}

func (o *office) withLine(line func() string, forced func() (*state.Force, error)) {
	o.Coordinator = coordinator.New(coordinator.Config{
		Self: "alpha", Boot: "alpha-1", DetectionTime: time.Second, Seed: o.seed, Replicated: o, Fencer: o, State: o.state, Look: o.look,
		Line: line, Forced: forced, ForceDone: func() error { return nil },
		Levels: func(string) [][]stonith.Device { return nil },
		Log:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}
