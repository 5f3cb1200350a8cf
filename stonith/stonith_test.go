package stonith_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/stonith"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open is the gate of an order that stands.
func open(context.Context) error { return nil }

// bmc describes a fake device as one of the target's.
func bmc(name string, d *fake.Device, plugs ...string) stonith.Device {
	if len(plugs) == 0 {
		plugs = []string{""}
	}
	return stonith.Device{
		Name: name, Agent: "fake", Plugs: plugs, Open: d.Open,
		Timeout: 10 * time.Second, Settle: 300 * time.Millisecond,
	}
}

// order fences alpha by these levels.
func order(op uint64, levels ...[]stonith.Device) stonith.Order {
	return stonith.Order{
		Target: stonith.Target{Node: "alpha", Boot: "b1", Levels: levels},
		Op:     op, Gate: open,
	}
}

func level(devices ...stonith.Device) []stonith.Device { return devices }

func TestOffProves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := stonith.New(nil), fake.New()
		proof, err := f.Off(t.Context(), order(7, level(bmc("alpha-bmc", d))))
		if err != nil {
			t.Fatal(err)
		}
		f.Wait(t.Context())
		want := stonith.PlugProof{Device: "alpha-bmc", Detail: "Off", OffSince: proof.OffSince()}
		if early := d.History("")[1].At; proof.OffSince().Before(early) {
			t.Errorf("off since %s, before power went at %s", proof.OffSince(), early)
		}
		if proof.Node != "alpha" || proof.Boot != "b1" || proof.Op != 7 || proof.Level != 1 ||
			len(proof.Plugs) != 1 || proof.Plugs[0] != want || d.Handles() != 0 {
			t.Errorf("proof %+v, %d handles open", proof, d.Handles())
		}
	})
}
