package ipmi

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/ipmi/ipmipeer"
)

// peer is what the three kinds of peers have in common.
type peer interface {
	Addr() string
	Power() agents.PowerState
	Calls() []string
}

// TestPeers: off and on at each kind of peer, seen from both sides, with one command each.
func TestPeers(t *testing.T) {
	key := ipmipeer.Config{BMCKey: "00ff01a5c30000000000000000000042"}
	for name, start := range map[string]func(t *testing.T) (peer, string){
		"ipmi_sim":      func(t *testing.T) (peer, string) { return ipmipeer.Start(t, ipmipeer.Config{}), ipmipeer.DefaultUUID },
		"ipmi_sim, key": func(t *testing.T) (peer, string) { return ipmipeer.Start(t, key), ipmipeer.DefaultUUID },
		"reference": func(t *testing.T) (peer, string) {
			return ipmipeer.StartReference(t, ipmipeer.Config{}, 4), ipmipeer.DefaultUUID
		},
		"reference, suite 3": func(t *testing.T) (peer, string) {
			return ipmipeer.StartReference(t, ipmipeer.Config{}, 4, types.CipherSuiteID3), ipmipeer.DefaultUUID
		},
		"reference, key": func(t *testing.T) (peer, string) { return ipmipeer.StartReference(t, key, 4), ipmipeer.DefaultUUID },
		"pyghmi":         func(t *testing.T) (peer, string) { return ipmipeer.StartPyghmi(t, ipmipeer.Config{}), "" },
		"pyghmi, key":    func(t *testing.T) (peer, string) { return ipmipeer.StartPyghmi(t, key), "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, uuid := start(t)
			o := options(p.Addr())
			if name[len(name)-3:] == "key" {
				o.BMCKey = agents.NewSecret("0x" + key.BMCKey)
			}
			a := open(t, o)
			if err := a.Check(within(t, 5*time.Second), ""); err != nil {
				t.Fatal(err)
			}
			id, err := a.Identity(within(t, 5*time.Second), "")
			if err != nil || id != (agents.Identity{UUID: uuid}) {
				t.Errorf("identity is %+v, %v", id, err)
			}
			reads(t, a, agents.On)
			if err := a.Off(within(t, 5*time.Second), ""); err != nil {
				t.Fatal(err)
			}
			reads(t, a, agents.Off)
			if p.Power() != agents.Off {
				t.Error("the machine is not off")
			}
			if err := a.On(within(t, 5*time.Second), ""); err != nil {
				t.Fatal(err)
			}
			reads(t, a, agents.On)
			if got := p.Calls(); !slices.Equal(got, []string{"off", "on"}) {
				t.Errorf("commands that arrived: %v", got)
			}
			if err := a.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}
