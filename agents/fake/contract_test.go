package fake_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/agenttest"
	"github.com/hamgr/hamgr/agents/fake"
)

// TestContract holds the fake to the contract that the real agents are held to.
func TestContract(t *testing.T) {
	agenttest.Run(t, func(testing.TB) *agenttest.Peer {
		d := fake.New("1")
		identity := agents.Identity{UUID: "6ad39b6a-1b52-4f28-86fc-e66df7d737e3", Serial: "SN1", Name: "outlet 1"}
		d.Behave(fake.Behavior{Answer: time.Millisecond, UUID: identity.UUID, Serial: identity.Serial, Outlet: identity.Name})
		behave := func(change func(*fake.Behavior)) func() {
			return func() { b := d.Behavior(); change(&b); d.Behave(b) }
		}
		open := func(login bool) func(*slog.Logger) (agents.Agent, error) {
			return func(*slog.Logger) (agents.Agent, error) {
				behave(func(b *fake.Behavior) { b.Login = login })()
				return d.Open()
			}
		}
		return &agenttest.Peer{
			Identity: &identity,
			Device:   agenttest.Device{Plug: "1", Open: open(false)},
			Power:    func() agents.PowerState { return d.Power("1") },
			SetPower: func(s agents.PowerState) { d.SetPower("1", s) },
			Commands: func() (n int) {
				for _, c := range d.Calls() {
					if (c.Verb == "off" || c.Verb == "on") && (c.Err == nil || errors.Is(c.Err, fake.ErrDevice)) {
						n++
					}
				}
				return n
			},
			Sessions:      d.Handles,
			WrongPassword: &agenttest.Device{Plug: "1", Open: open(true)},
			WrongPlug:     &agenttest.Device{Plug: "2", Open: open(false)},
			Stuck:         behave(func(b *fake.Behavior) { b.Command = "ignore" }),
			Fails:         behave(func(b *fake.Behavior) { b.Command = "error" }),
			Lag:           behave(func(b *fake.Behavior) { b.Lag = 50 * time.Millisecond }),
			Odd: map[string]func(){
				"transitional": behave(func(b *fake.Behavior) { b.Status = "unknown" }),
				"missing":      behave(func(b *fake.Behavior) { b.Status = "missing" }),
				"error":        behave(func(b *fake.Behavior) { b.Status = "error" }),
			},
			Freeze: behave(func(b *fake.Behavior) { b.Stall = []string{"status", "off", "on", "close", "identity", "check"} }),
			Thaw:   func() { behave(func(b *fake.Behavior) { b.Stall = nil })(); d.Release() },
			Cannot: map[string]string{
				"Unreachable": "memory is always there",
				"Stalled":     "memory has no address at which something else could be",
				"Restart":     "memory does not restart",
			},
			Patience: time.Second,
		}
	})
}
