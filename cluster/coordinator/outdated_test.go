package coordinator_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// TestOutdatedProvesNothing: a node that does not run with the cluster's configuration may have devices that feed other nodes by
// now. It gets no operation, this coordinator too; and a configuration that is committed while it is at one ends that.
func TestOutdatedProvesNothing(t *testing.T) {
	one := [][]stonith.Device{{{Name: "pdu", Plugs: []string{"1"}, Timeout: 5 * time.Second}}}
	for name, c := range map[string]struct {
		alpha, gamma string // what they run with
		later        string // what the log has once gamma is at it
		proven       bool
	}{
		"both up to date":          {"new", "new", "new", true},
		"the executor is outdated": {"new", "old", "new", false},
		"the coordinator is":       {"old", "new", "new", true},
		"both are":                 {"old", "old", "new", false},
		"it is meanwhile":          {"new", "new", "newer", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o *office
				asked := 0
				o = delegating(t, one, delegate{
					off: func(_ context.Context, op state.Operation) (stonith.Proof, error) {
						asked++
						o.set(func() { o.newest = c.later })
						return readOff(op, 1, "1"), nil
					},
					on: func(context.Context, state.Operation) error { return nil },
				})
				o.text, o.newest = c.alpha, "new"
				o.open(o.seed)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				done := make(chan struct{})
				go func() { defer close(done); o.Run(ctx) }()
				for ctx.Err() == nil {
					_, _ = o.Hello(ctx, "gamma", coordinator.Hello{Boot: "gamma-1", Text: c.gamma, Applied: o.state().Applied})
					time.Sleep(250 * time.Millisecond)
				}
				<-done
				if len(o.shots) > 0 && c.alpha != "new" {
					t.Error("the coordinator shot with what it has")
				}
				if asked > 0 && c.gamma != "new" {
					t.Error("the executor was asked")
				}
				if r := o.state().Groups["db"].Released; (r != nil) != c.proven {
					t.Errorf("released: %+v, want a proof: %t", r, c.proven)
				}
			})
		})
	}
}
