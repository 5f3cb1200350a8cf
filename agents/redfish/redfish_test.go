package redfish

import (
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// TestOffAndOn is the plain life of a device, with each way to log in.
func TestOffAndOn(t *testing.T) {
	for _, auth := range []string{AuthBasic, AuthSession} {
		t.Run(auth, func(t *testing.T) {
			power := redfishsim.NewSwitch(true)
			bmc := startBMC(t, func(c *redfishsim.Config) { c.Power = power })
			o := options(bmc)
			o.Auth = auth
			a := open(t, o)
			ctx := within(t, 10*time.Second)

			expect := func(want agents.PowerState) {
				t.Helper()
				r, err := a.Status(ctx, "")
				if err != nil || r.State != want {
					t.Fatalf("status %v, %v, want %v", r, err, want)
				}
			}
			expect(agents.On)
			if err := a.Off(ctx, ""); err != nil {
				t.Fatal(err)
			}
			if power.State() {
				t.Fatal("the machine is still on")
			}
			expect(agents.Off)
			if err := a.On(ctx, ""); err != nil {
				t.Fatal(err)
			}
			expect(agents.On)
			id, err := a.Identity(ctx, "")
			if err != nil || id.UUID != testUUID || id.Serial != testSerial {
				t.Fatalf("identity %+v, %v", id, err)
			}
		})
	}
}
