package redfish

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

const (
	uuidA = "6ad39b6a-1b52-4f28-86fc-e66df7d737e3"
	uuidB = "fa0c0993-115b-42ea-85cb-891eca2892fc"
)

// twoNodes is a chassis: two hosts, one of them on, and a tray that is no host and says Off.
func twoNodes(c *redfishsim.Config) {
	c.Systems = []redfishsim.System{
		{ID: "Node0", UUID: uuidA, Serial: "SN-CHASSIS", Power: redfishsim.NewSwitch(true)},
		{ID: "Tray", UUID: uuidB, Serial: "SN-TRAY", Power: redfishsim.NewSwitch(false), NotHost: true},
		{ID: "Node1", UUID: uuidB, Serial: "SN-CHASSIS", Power: redfishsim.NewSwitch(false)},
	}
	c.Mode.Shuffle = true // gofish trap 5: the order changes between calls
}

// TestAnotherSystemsDocument: what is read must be the document that was asked for. A redirect, or a
// BMC that mixes up its hosts, may bring that of another one, which is off.
func TestAnotherSystemsDocument(t *testing.T) {
	const asked = "/redfish/v1/Systems/Node0"
	other := `{"@odata.type":"#ComputerSystem.v1_16_0.ComputerSystem","@odata.id":"/redfish/v1/Systems/Node1","Id":"Node1","PowerState":"Off",` +
		`"Actions":{"#ComputerSystem.Reset":{"target":"/redfish/v1/Systems/Node1/Actions/ComputerSystem.Reset"}}}`
	for name, fault := range map[string]redfishsim.Fault{
		"redirected": redfishsim.Redirect(307, "/redfish/v1/Systems/Node1"),
		"mixed up":   redfishsim.Document("application/json", other),
	} {
		for _, system := range []string{asked, asked + "/"} {
			bmc := startBMC(t, twoNodes)
			o := options(bmc)
			o.System = system
			a := open(t, o)
			bmc.SetFault(redfishsim.AtSystem, redfishsim.Times(1, fault))
			if r, err := a.Status(within(t, 5*time.Second), ""); !errors.Is(err, ErrSystem) || r.State != agents.Unknown {
				t.Errorf("%s, %s: %v, %v, while it is on", name, system, r, err)
			}
			bmc.SetFault(redfishsim.AtSystem, redfishsim.Times(1, fault))
			if err := a.Off(within(t, 5*time.Second), ""); !errors.Is(err, ErrSystem) {
				t.Errorf("%s, %s: off: %v", name, system, err)
			}
		}
	}
}

// TestWhichSystem: a plug or the key system names exactly one host, or nothing is done.
func TestWhichSystem(t *testing.T) {
	for name, c := range map[string]struct {
		key, plug string
		want      agents.PowerState
		err       error
		says      string
	}{
		"key, URI":             {key: "/redfish/v1/Systems/Node1", want: agents.Off},
		"key, URI with slash":  {key: "/redfish/v1/Systems/Node0/", want: agents.On},
		"key, ID":              {key: "Node1", want: agents.Off},
		"key, UUID":            {key: strings.ToUpper(uuidA), want: agents.On},
		"key, UUID turned":     {key: swapped(uuidB), want: agents.Off},
		"plug before key":      {key: "Node0", plug: "Node1", want: agents.Off},
		"plug, URI":            {plug: "/redfish/v1/Systems/Node0", want: agents.On},
		"none named":           {err: ErrSystem, says: "/redfish/v1/Systems/Node0, /redfish/v1/Systems/Node1"},
		"unknown ID":           {key: "Node2", err: ErrSystem, says: "/redfish/v1/Systems/Node1"},
		"unknown URI":          {key: "/redfish/v1/Systems/Node2", err: ErrSystem, says: "/redfish/v1/Systems/Node2"},
		"shared serial number": {key: "SN-CHASSIS", err: ErrSystem, says: "several are called SN-CHASSIS"},
		"not a host, by ID":    {key: "Tray", err: ErrSystem},
		"not a host, by URI":   {key: "/redfish/v1/Systems/Tray", err: ErrSystem, says: "no host"},
		"the collection":       {key: "/redfish/v1/Systems", err: ErrSystem},
		"case of an ID":        {key: "node1", err: ErrSystem},
		"another host's URI":   {plug: "https://127.0.0.9/redfish/v1/Systems/Node1", err: ErrSystem},
		"up and down":          {plug: "/redfish/v1/../../Systems/Node1", err: ErrSystem},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := startBMC(t, twoNodes)
			o := options(bmc)
			o.System = c.key
			a := open(t, o)
			ctx := within(t, 5*time.Second)
			for range 3 { // the second time from what was found the first time
				r, err := a.Status(ctx, c.plug)
				if r.State != c.want || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
					t.Fatalf("read %v, %v, want %v, %v", r, err, c.want, c.err)
				}
				if c.says != "" && !strings.Contains(err.Error(), c.says) {
					t.Fatalf("error %q does not say %q", err, c.says)
				}
			}
			if c.err != nil {
				if err := a.Off(ctx, c.plug); !errors.Is(err, c.err) {
					t.Errorf("off: %v", err)
				}
				if len(bmc.Resets()) > 0 {
					t.Error("something was shot")
				}
			}
		})
	}
}

// TestOnlyHost: with one host among the members none need be named.
func TestOnlyHost(t *testing.T) {
	bmc := startBMC(t, func(c *redfishsim.Config) { twoNodes(c); c.Systems = c.Systems[:2] })
	if r, err := open(t, options(bmc)).Status(within(t, 5*time.Second), ""); err != nil || r.State != agents.On {
		t.Errorf("read %v, %v", r, err)
	}
	bmc = startBMC(t, func(c *redfishsim.Config) { twoNodes(c); c.Systems = c.Systems[1:2] })
	if _, err := open(t, options(bmc)).Status(within(t, 5*time.Second), ""); !errors.Is(err, ErrSystem) {
		t.Errorf("error %v", err)
	}
}

// TestPages: a host on the second page counts; a list that is cut short is not believed.
func TestPages(t *testing.T) {
	bmc := startBMC(t, func(c *redfishsim.Config) { twoNodes(c); c.Mode.PageSize, c.Mode.Shuffle = 1, false })
	o := options(bmc)
	if _, err := open(t, o).Status(within(t, 5*time.Second), ""); !errors.Is(err, ErrSystem) {
		t.Errorf("two hosts on three pages: %v", err)
	}
	o.System = "Node1"
	if r, err := open(t, o).Status(within(t, 5*time.Second), ""); err != nil || r.State != agents.Off {
		t.Errorf("read %v, %v", r, err)
	}
	bmc.SetFault(redfishsim.AtSystems, redfishsim.Document("application/json",
		`{"Members":[{"@odata.id":"/redfish/v1/Systems/Node0"}],"Members@odata.nextLink":"/redfish/v1/Systems?$skip=1"}`))
	o.System = ""
	if _, err := open(t, o).Status(within(t, 5*time.Second), ""); !errors.Is(err, ErrSystem) {
		t.Errorf("a list without end: %v", err)
	}
}

// TestUnreadableMember: a member that cannot be read may be the one that is meant.
func TestUnreadableMember(t *testing.T) {
	bmc := startBMC(t, func(c *redfishsim.Config) { twoNodes(c); c.Mode.Shuffle = false })
	bmc.SetFault(redfishsim.AtSystem, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, "Node1") {
			redfishsim.Answer(500, "")(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	})
	if r, err := open(t, options(bmc)).Status(within(t, 5*time.Second), ""); err == nil {
		t.Errorf("read %v of a system that was picked by exclusion", r)
	}
}

// TestSystemReplaced: a name that no longer fits what was found is looked for again.
func TestSystemReplaced(t *testing.T) {
	bmc := startBMC(t, twoNodes)
	o := options(bmc)
	o.System = uuidA
	a := open(t, o)
	ctx := within(t, 5*time.Second)
	if r, err := a.Status(ctx, ""); err != nil || r.State != agents.On {
		t.Fatalf("read %v, %v", r, err)
	}
	bmc.SetFault(redfishsim.AtSystem, redfishsim.Times(1, redfishsim.Document("application/json", systemDocument(`"PowerState":"Off","UUID":"`+uuidB+`",`))))
	if r, err := a.Status(ctx, ""); !errors.Is(err, ErrSystem) || r.State != agents.Unknown {
		t.Errorf("read %v, %v from another machine", r, err)
	}
	if r, err := a.Status(ctx, ""); err != nil || r.State != agents.On {
		t.Errorf("read %v, %v", r, err)
	}
}

// TestIdentity: what firmware writes when nobody set a UUID is not an identity.
func TestIdentity(t *testing.T) {
	for uuid, want := range map[string]string{
		strings.ToUpper(uuidA):                 uuidA,
		"":                                     "",
		"00000000-0000-0000-0000-000000000000": "",
		"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF": "",
		"03000200-0400-0500-0006-000700080009": "",
		"Not Specified":                        "",
		"6ad39b6a1b524f2886fce66df7d737e3":     "",
	} {
		bmc := startBMC(t, func(c *redfishsim.Config) { c.UUID, c.Serial = uuid, "  SN1  " })
		id, err := open(t, options(bmc)).Identity(within(t, 5*time.Second), "")
		if err != nil || id.UUID != want || id.Serial != "SN1" {
			t.Errorf("%q: %+v, %v", uuid, id, err)
		}
	}
}
