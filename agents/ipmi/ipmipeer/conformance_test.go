package ipmipeer_test

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"
	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/agenttest"
	"github.com/hamgr/hamgr/agents/ipmi"
	"github.com/hamgr/hamgr/agents/ipmi/ipmipeer"
)

// These tests are apart from the agent's own, and not parallel, since they count the process's
// files and goroutines.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret holds what shells, URLs, JSON and printf trip over, and what ipmi_sim can read.
const (
	secret      = `p"a's$s%s#w\o;!`
	wrongSecret = "not-this-one"
)

func device(addr string, change func(*ipmi.Options)) *agenttest.Device {
	o := ipmi.Kind().Options().(*ipmi.Options)
	o.Address, o.Username = addr, ipmipeer.DefaultUsername
	o.Password = agents.NewSecret(secret)
	if change != nil {
		change(o)
	}
	return &agenttest.Device{Open: func(log *slog.Logger) (agents.Agent, error) { return o.Open(log) }}
}

// silent is a port at which somebody listens and says nothing; closed is one without.
func silent(t testing.TB) (silent, closed string) {
	t.Helper()
	for _, addr := range []*string{&silent, &closed} {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		*addr = c.LocalAddr().String()
		if addr == &closed {
			c.Close()
		} else {
			t.Cleanup(func() { c.Close() })
		}
	}
	return silent, closed
}

func common(t testing.TB, addr string) *agenttest.Peer {
	silent, closed := silent(t)
	wrong := device(addr, func(o *ipmi.Options) { o.Password = agents.NewSecret(wrongSecret) })
	plug := device(addr, nil)
	plug.Plug = "2"
	return &agenttest.Peer{
		Device: *device(addr, nil), Secrets: []string{secret, wrongSecret},
		Identity:      &agents.Identity{UUID: ipmipeer.DefaultUUID},
		WrongPassword: wrong, WrongPlug: plug,
		Unreachable: device(closed, nil), Stalled: device(silent, nil),
		Operations: 1000,
	}
}

// TestConformanceSim holds the agent to the contract at ipmi_sim.
func TestConformanceSim(t *testing.T) {
	agenttest.Run(t, func(t testing.TB) *agenttest.Peer {
		b := ipmipeer.Start(t, ipmipeer.Config{Password: secret})
		p := common(t, b.Addr())
		p.Power, p.SetPower = b.Power, b.SetPower
		p.Commands = func() int { return len(b.Calls()) }
		p.Stuck = func() { b.SetMode(ipmipeer.Stuck) }
		p.Fails = func() { b.SetMode(ipmipeer.Fail) }
		p.Lag = func() { b.SetMode(ipmipeer.Lag(500 * time.Millisecond)) }
		p.Odd = map[string]func(){"the BMC cannot read it": func() { b.SetMode(ipmipeer.Blind) }}
		p.Freeze, p.Thaw, p.Restart = b.Freeze, b.Thaw, b.Restart
		p.Cannot = map[string]string{"Sessions": "ipmi_sim does not tell; see TestSlotsComeBack"}
		p.Operations = 200
		return p
	})
}

// TestConformanceReference does so at go-ipmi's server, with suite 17.
func TestConformanceReference(t *testing.T) {
	agenttest.Run(t, func(t testing.TB) *agenttest.Peer {
		r := ipmipeer.StartReference(t, ipmipeer.Config{Password: secret}, 8)
		p := common(t, r.Addr())
		p.Power, p.SetPower, p.Sessions = r.Power, r.SetPower, r.Sessions
		p.Commands = func() int { return len(r.Calls()) }
		p.Stuck = func() { r.SetControl(types.CodeOK, true) }
		p.Fails = func() { r.SetControl(types.CodeUnspecifiedError, false) }
		p.Odd = map[string]func(){}
		for name, answer := range map[string][]byte{"no data": nil, "too short": {0, 0}} {
			p.Odd[name] = func() { r.SetStatus(func() ([]byte, types.CompletionCode) { return answer, types.CodeOK }) }
		}
		p.Unreachable, p.Stalled = nil, nil
		const ipmiSim = "tried with ipmi_sim"
		p.Cannot = map[string]string{"Lag": ipmiSim, "Freeze": ipmiSim, "Thaw": ipmiSim, "Restart": ipmiSim, "Unreachable": ipmiSim, "Stalled": ipmiSim}
		return p
	})
}
