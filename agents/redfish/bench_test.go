package redfish

import (
	"context"
	"log/slog"
	"testing"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// BenchmarkFence is what an off costs that is at once obeyed: connect, read, off, read back
// twice, close.
func BenchmarkFence(b *testing.B) {
	for _, auth := range []string{AuthBasic, AuthSession} {
		b.Run(auth, func(b *testing.B) {
			power := redfishsim.NewSwitch(true)
			bmc := startBMC(b, func(c *redfishsim.Config) { c.Power = power })
			o := options(bmc)
			o.Auth = auth
			ctx := context.Background()
			for b.Loop() {
				power.On(ctx)
				h, err := o.Open(slog.New(slog.DiscardHandler))
				if err != nil {
					b.Fatal(err)
				}
				for range 3 {
					r, err := h.Status(ctx, "")
					if err != nil {
						b.Fatal(err)
					}
					if r.State == agents.On {
						if err := h.Off(ctx, ""); err != nil {
							b.Fatal(err)
						}
					}
				}
				if err := h.Close(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
