package independent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/agenttest"
	"github.com/hamgr/hamgr/agents/redfish"
)

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestContract: the agent keeps the contract of all agents with a BMC that others wrote, as far as
// that one goes: in clear, and behind TLS.
func TestContract(t *testing.T) {
	for name, tls := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			agenttest.Run(t, func(t testing.TB) *agenttest.Peer { return peer(start(t, tls)) })
		})
	}
}

func peer(m *mock) *agenttest.Peer {
	return &agenttest.Peer{
		Device:   agenttest.Device{Open: m.open(nil)},
		Secrets:  []string{password, "YWRtaW46YWRtaW5wYXNz", "wrong-but-secret"}, // and base64 of both, as it is sent
		Identity: &agents.Identity{UUID: "38947555-7742-3448-3784-823347823834", Serial: "437XR1138R2"},
		Power:    m.power, SetPower: m.setPower,
		Commands: func() int { return int(m.resets.Load()) },
		WrongPassword: &agenttest.Device{Open: m.open(func(o *redfish.Options) {
			o.Password = agents.NewSecret("wrong-but-secret")
		})},
		Unreachable: &agenttest.Device{Open: m.open(func(o *redfish.Options) { o.Address = "http://127.0.0.1:1"; o.Insecure, o.PinSHA256 = true, "" })},
		WrongPlug:   &agenttest.Device{Plug: "other", Open: m.open(nil)},
		Lag:         func() {}, // it always has one
		Freeze:      m.freeze, Thaw: m.thaw,
		Restart: func() { m.down(); m.up() },
		Cannot: map[string]string{
			"Sessions": "it has no sessions",
			"Stalled":  "that is no BMC at all, and tried with our own simulator",
			"Stuck":    "it obeys each command that it accepts",
			"Fails":    "it obeys no command that it refuses",
			"Odd":      "it shows what it is, and is either on or off",
		},
		Patience: 10 * time.Second,
	}
}

// TestDirect: without anything of ours in between.
func TestDirect(t *testing.T) {
	m := start(t, false)
	o := m.options()
	o.Address = "http://" + m.address
	a, err := o.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Close(within(t, time.Second)); err != nil {
			t.Error(err)
		}
	}()
	ctx := within(t, 10*time.Second)
	for _, want := range []agents.PowerState{agents.Off, agents.On} {
		do := map[agents.PowerState]func(context.Context, string) error{agents.Off: a.Off, agents.On: a.On}[want]
		if err := do(ctx, ""); err != nil {
			t.Fatal(err)
		}
		for {
			r, err := a.Status(ctx, "")
			truth := m.power()
			if err != nil {
				t.Fatal(err)
			}
			if want == agents.Off && r.State == agents.Off && truth != agents.Off {
				t.Fatalf("read off, and it is %v", truth)
			}
			if r.State == want && truth == want {
				break
			}
		}
	}
}

// TestPrivilege: an account that the mock makes a mere reader is found out by reading.
func TestPrivilege(t *testing.T) {
	m := start(t, true)
	a, err := m.open(nil)(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close(within(t, time.Second))
	check := a.(agents.Checker).Check
	if err := check(within(t, 10*time.Second), ""); err != nil {
		t.Error(err)
	}
	m.request("PATCH", "/redfish/v1/AccountService/Accounts/1", `{"RoleId":"ReadOnly"}`)
	if err := check(within(t, 10*time.Second), ""); !errors.Is(err, agents.ErrPrivilege) {
		t.Errorf("a reader passes: %v", err)
	}
}

// TestNotTrusted: another certificate than the pinned one gets no password.
func TestNotTrusted(t *testing.T) {
	m := start(t, true)
	a, err := m.open(func(o *redfish.Options) { o.PinSHA256 = "" })(nil) // the host's CAs
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close(within(t, time.Second))
	if _, err := a.Status(within(t, 5*time.Second), ""); !errors.Is(err, agents.ErrUntrusted) {
		t.Errorf("error %v", err)
	}
}
