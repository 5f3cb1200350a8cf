package coordinator_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

var word = state.Confirm{Node: "beta", By: "anna", Reason: "cable pulled"}

// silent is an office that has not heard beta for an hour.
func silent(t *testing.T) *office {
	t.Helper()
	o := newOffice(t)
	o.leads = true
	o.talking["beta"] = false
	o.looks["beta"] = coordinator.Sighting{Gossip: "dead", GossipBoot: "beta-1", Heard: true, Contact: time.Now().Add(-time.Hour)}
	return o
}

// TestConfirmWhileItIsShot: beta is cut off but runs, and its BMC says on and does not obey. The shots keep
// the BMC busy all the time: that nobody else can ask it is no sign of death.
func TestConfirmWhileItIsShot(t *testing.T) {
	for name, c := range map[string]struct {
		said    agents.PowerState
		refused bool
	}{
		"its BMC says on":        {agents.On, true},
		"its BMC gives no state": {agents.Unknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := silent(t)
				o.levels[0][0].Timeout = 20 * time.Second
				o.off = func(ctx context.Context, order stonith.Order) (stonith.Proof, error) {
					select {
					case <-ctx.Done():
					case <-time.After(time.Minute): // several levels
					}
					return stonith.Proof{}, &stonith.Failure{Node: order.Node, Op: order.Op, Devices: []stonith.DeviceResult{{Level: 1, Device: "bmc", State: c.said}}}
				}
				o.check = func() []stonith.Health { return []stonith.Health{{Level: 1, Device: "bmc", State: c.said}} }
				ctx, end := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); o.Run(ctx) }()
				defer func() { end(); <-done }()
				time.Sleep(10 * time.Second) // the first attempt is under way
				if _, err := o.Confirm(t.Context(), word); !errors.Is(err, coordinator.ErrAlive) {
					t.Errorf("confirmed while the first attempt was at the BMC: %v", err)
				}
				time.Sleep(2 * time.Minute)
				if _, err := o.Confirm(t.Context(), word); errors.Is(err, coordinator.ErrAlive) != c.refused {
					t.Errorf("confirmed after attempts: %v", err)
				}
			})
		})
	}
}

// TestConfirmOfOneThatComesBack: the node is heard again while its devices are still being asked.
func TestConfirmOfOneThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := silent(t)
		o.check = func() []stonith.Health {
			time.Sleep(4 * time.Second)
			o.set(func() { o.talking["beta"] = true })
			time.Sleep(500 * time.Millisecond)
			return []stonith.Health{{Level: 1, Device: "bmc", State: agents.Unknown, Error: "no answer"}}
		}
		if _, err := o.Confirm(t.Context(), word); !errors.Is(err, coordinator.ErrAlive) {
			t.Errorf("confirmed though it is heard: %v", err)
		}
	})
}
