package redfish

import (
	"context"
	"encoding/base64"
	"log/slog"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/agenttest"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// TestContract holds the agent to the contract of all agents, with each way to log in and for
// each kind of document that has a power.
func TestContract(t *testing.T) {
	for _, auth := range []string{AuthBasic, AuthSession} {
		t.Run(auth, func(t *testing.T) {
			agenttest.Run(t, func(t testing.TB) *agenttest.Peer { return contractPeer(t, auth, false) })
		})
	}
	t.Run("chassis", func(t *testing.T) {
		agenttest.Run(t, func(t testing.TB) *agenttest.Peer { return contractPeer(t, AuthBasic, true) })
	})
}

func contractPeer(t testing.TB, auth string, chassis bool) *agenttest.Peer {
	power := redfishsim.NewSwitch(true)
	bmc := startBMC(t, func(c *redfishsim.Config) {
		c.Systems = []redfishsim.System{
			{ID: "1", UUID: testUUID, Serial: testSerial, Power: power, ActionInfo: []string{"On", "ForceOff"}},
		}
		if chassis {
			c.Systems = []redfishsim.System{{ID: "Blade0", Serial: testSerial, Chassis: true, Power: power, Allowable: []string{"On", "ForceOff", "Off"}}}
		}
	})
	device := func(plug string, change func(*Options)) *agenttest.Device {
		return &agenttest.Device{Plug: plug, Open: func(log *slog.Logger) (agents.Agent, error) {
			o := options(bmc)
			o.Auth = auth
			if change != nil {
				change(o)
			}
			return o.Open(log)
		}}
	}
	var thawed chan struct{}
	identity := agents.Identity{UUID: testUUID, Serial: testSerial}
	plug, wrong := "1", "2"
	if chassis {
		plug, wrong, identity = chassisURI+"/Blade0", chassisURI+"/Blade1", agents.Identity{}
	}
	mode := func(change func(*redfishsim.Mode)) func() { return func() { bmc.SetMode(change) } }
	shows := func(state string) func() { return mode(func(m *redfishsim.Mode) { m.PowerState = state }) }
	p := &agenttest.Peer{
		Device:   *device(plug, nil),
		Secrets:  []string{testPassword, base64.StdEncoding.EncodeToString([]byte(testUser + ":" + testPassword)), "wrong-but-secret"},
		Identity: &identity,
		Power: func() agents.PowerState {
			if power.State() {
				return agents.On
			}
			return agents.Off
		},
		SetPower: func(s agents.PowerState) {
			if s == agents.On {
				power.On(context.Background())
			} else {
				power.Off(context.Background())
			}
		},
		Commands: func() int { return len(bmc.Resets()) },
		Sessions: bmc.OpenSessions,
		WrongPassword: device(plug, func(o *Options) {
			o.Password = agents.NewSecret("wrong-but-secret")
		}),
		Unreachable: device(plug, func(o *Options) { o.Address = "https://127.0.0.1:1" }),
		Stalled: device(plug, func(o *Options) {
			o.Address = startBMC(t, func(c *redfishsim.Config) { c.Mode.Mute = true }).URL()
		}),
		WrongPlug: device(wrong, nil),
		Stuck:     mode(func(m *redfishsim.Mode) { m.Lie = true }),
		Fails: func() {
			bmc.SetFault(redfishsim.AtReset, redfishsim.Obeying(redfishsim.Answer(500, "Base.1.8.InternalError")))
		},
		Lag: mode(func(m *redfishsim.Mode) {
			m.Answer, m.Hesitate, m.PoweringOff = 202, 60*time.Millisecond, 60*time.Millisecond
		}),
		Odd: map[string]func(){
			"null": shows("null"), "Paused": shows(`"Paused"`), "PoweringOff": shows(`"PoweringOff"`), "off": shows(`"off"`),
			"0": shows("0"), "false": shows("false"), "list": shows(`["Off"]`), "Unknown": shows(`"Unknown"`),
			"missing": mode(func(m *redfishsim.Mode) { m.PowerState, m.NoPowerState = "", true }),
		},
		Freeze: func() {
			thawed = make(chan struct{})
			bmc.SetFault(redfishsim.Anywhere, redfishsim.StallUntil(thawed))
		},
		Thaw:    func() { bmc.SetFault(redfishsim.Anywhere, nil); close(thawed) },
		Restart: func() { bmc.Down(); bmc.Up() },
	}
	if chassis { // what stalls is the BMC, whatever was asked of it
		p.Freeze, p.Thaw, p.Stalled, p.Operations = nil, nil, nil, 50
		p.Cannot = map[string]string{"Freeze": "tried with a system", "Thaw": "tried with a system", "Stalled": "tried with a system"}
	}
	return p
}
