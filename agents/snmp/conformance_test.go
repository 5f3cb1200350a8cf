package snmp

import (
	"log/slog"
	"net"
	"testing"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/agenttest"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
)

// TestConformance holds the agent to the contract, with snmpd as the PDU.
func TestConformance(t *testing.T) {
	t.Run("version 3", func(t *testing.T) {
		conform(t, func(address string) *Options { return with3(address, snmppeer.Fencer) })
	})
	t.Run("version 2c", func(t *testing.T) {
		conform(t, func(address string) *Options { return with2c(address, "private") })
	})
}

func conform(t *testing.T, options func(address string) *Options) {
	agenttest.Run(t, func(t testing.TB) *agenttest.Peer {
		p := snmppeer.Start(t, "sentry3")
		device := func(address, plug string) *agenttest.Device {
			return &agenttest.Device{Plug: plug, Open: options(address).Open}
		}
		fault := func(mode string) func() { return func() { p.Fault(mode) } }
		odd := map[string]func(){"no rows": fault("noindex"), "another outlet's row": fault("shift 1")}
		for _, word := range []string{"offWait", "onWait", "offError", "noComm", "reading", "offFuse"} {
			odd[word] = fault("show " + word)
		}
		peer := &agenttest.Peer{
			Device:  *device(p.Address(), "1.1.3=outlet3"),
			Secrets: []string{snmppeer.Fencer.AuthPassword, snmppeer.Fencer.PrivPassword},
			Power: func() agents.PowerState {
				var state agents.PowerState
				state.UnmarshalText([]byte(p.Outlet(3)))
				return state
			},
			SetPower:    func(s agents.PowerState) { p.SetOutlet(3, s.String()) },
			Commands:    func() int { return len(p.Calls()) },
			Identity:    &agents.Identity{Name: "outlet3"},
			Unreachable: device(nobody(t), "1.1.3"),
			Stalled:     device(mute(t), "1.1.3"),
			WrongPlug:   device(p.Address(), "1.1.3=outlet4"),
			Stuck:       fault("stuck"),
			Fails:       fault("failobey"),
			Lag:         fault("lag 0.3"),
			Odd:         odd,
			Freeze:      p.Freeze,
			Thaw:        p.Thaw,
			Restart:     func() { p.Restart("") },
			Cannot:      map[string]string{"Sessions": "SNMP has none"},
		}
		if o := options(""); o.Version == version3 {
			wrong := snmppeer.Fencer
			wrong.AuthPassword = "not the password"
			peer.Operations = 1000
			peer.WrongPassword = &agenttest.Device{Plug: "1.1.3", Open: func(log *slog.Logger) (agents.Agent, error) {
				return with3(p.Address(), wrong).Open(log)
			}}
		} else {
			peer.Cannot["WrongPassword"] = "a wrong community is answered with silence, as by the device that never answers"
		}
		return peer
	})
}

// nobody is an address where nothing listens, mute one where nothing answers.
func nobody(t testing.TB) string {
	c := listen(t)
	c.Close()
	return c.LocalAddr().String()
}

func mute(t testing.TB) string { return listen(t).LocalAddr().String() }

func listen(t testing.TB) net.PacketConn {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
