package redfish

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// blades is a chassis manager: two blades, one of them on, and a drawer that switches nothing.
func blades(first *redfishsim.Switch) func(*redfishsim.Config) {
	return func(c *redfishsim.Config) {
		c.Systems = []redfishsim.System{
			{ID: "Blade0", Chassis: true, Power: first, Allowable: []string{"On", "ForceOff", "Off"}},
			{ID: "Blade1", Chassis: true, Power: redfishsim.NewSwitch(false), Allowable: []string{"On", "ForceOff", "Off"}},
			{ID: "Drawer", Chassis: true, Power: redfishsim.NewSwitch(false), NotHost: true},
		}
	}
}

// TestChassis: a blade is switched by its chassis, with ForceOff and never with the graceful Off,
// and read back from the chassis.
func TestChassis(t *testing.T) {
	power := redfishsim.NewSwitch(true)
	bmc := startBMC(t, blades(power))
	o := options(bmc)
	o.System = chassisURI + "/Blade0"
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	if o.Sees() != agents.SeesMachine {
		t.Error("a blade's power is the machine's")
	}
	a := open(t, o)
	ctx := within(t, 10*time.Second)
	if err := a.Check(ctx, ""); err != nil {
		t.Error(err)
	}
	for _, step := range []struct {
		do   func() error
		want agents.PowerState
	}{
		{func() error { return nil }, agents.On},
		{func() error { return a.Off(ctx, "") }, agents.Off},
		{func() error { return a.On(ctx, "") }, agents.On},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if r, err := a.Status(ctx, ""); err != nil || r.State != step.want || power.State() != (step.want == agents.On) {
			t.Fatalf("read %v, %v, want %v", r, err, step.want)
		}
	}
	if r, err := a.Status(ctx, chassisURI+"/Blade1"); err != nil || r.State != agents.Off {
		t.Errorf("the other blade reads %v, %v", r, err)
	}
	if got := bmc.Resets(); !slices.Equal(got, []string{`{"ResetType":"ForceOff"}`, `{"ResetType":"On"}`}) {
		t.Errorf("sent %v", got)
	}
	if id, err := a.Identity(ctx, ""); err != nil || id != (agents.Identity{}) {
		t.Errorf("a chassis passes for a host: %+v, %v", id, err)
	}
}

// TestChassisIsNamed: a chassis is switched only if it is named by its URI, and a document of
// one kind is never taken in the place of the other.
func TestChassisIsNamed(t *testing.T) {
	body := func(odataType, action string) string {
		return `{"@odata.type":"` + odataType + `","PowerState":"Off","Actions":{"` + action + `":{"target":"/redfish/v1/x"}}}`
	}
	chassis, system := body("#Chassis.v1_5_1.Chassis", "#Chassis.Reset"), body("#ComputerSystem.v1_5_0.ComputerSystem", "#ComputerSystem.Reset")
	for name, c := range map[string]struct {
		key, document string
		err           error
	}{
		"not named":                     {"", "", ErrSystem},
		"by ID":                         {"Blade0", "", ErrSystem},
		"switches nothing":              {chassisURI + "/Drawer", "", ErrSystem},
		"is not there":                  {chassisURI + "/Blade9", "", ErrSystem},
		"the collection":                {chassisURI, "", ErrSystem},
		"a chassis at a system's place": {systemsURI + "/1", chassis, ErrSystem},
		"a system that is called so":    {systemsURI + "/Chassis", chassis, ErrSystem},
		"in the list of systems":        {"", `{"Members":[{"@odata.id":"` + chassisURI + `/Blade0"}]}`, ErrSystem},
		"in the list, by its ID":        {"Blade0", `{"Members":[{"@odata.id":"` + chassisURI + `/Blade0"}]}`, ErrSystem},
		"a system at a chassis' place":  {chassisURI + "/Blade0", system, ErrSystem},
		"another action":                {chassisURI + "/Blade0", body("#Chassis.v1_5_1.Chassis", "#ComputerSystem.Reset"), ErrSystem},
		"a manager":                     {chassisURI + "/Blade0", body("#Manager.v1_5_1.Manager", "#Manager.Reset"), ErrSystem},
		"a power of its own reading":    {chassisURI + "/Blade0", strings.Replace(chassis, `"PowerState":"Off"`, `"PowerState":null`, 1), nil},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := startBMC(t, blades(redfishsim.NewSwitch(true)))
			switch {
			case strings.Contains(c.document, "Members"):
				bmc.SetFault(redfishsim.AtSystems, redfishsim.Document("application/json", c.document))
			case c.document != "":
				bmc.SetFault(redfishsim.Anywhere, redfishsim.Document("application/json", c.document))
				bmc.SetFault(redfishsim.AtRoot, redfishsim.Delay(0)) // which is right
			}
			o := options(bmc)
			o.System = c.key
			r, err := open(t, o).Status(within(t, 5*time.Second), "")
			if r.State != agents.Unknown || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("read %v, %v", r, err)
			}
		})
	}
}
