package redfish

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// TestCheckRight: an account that may not reset is found out by reading, wherever the BMC shows
// it; what is not shown is not held against it.
func TestCheckRight(t *testing.T) {
	t.Parallel()
	type mode = redfishsim.Mode
	for name, c := range map[string]struct {
		mode  mode
		fault redfishsim.Fault // at the accounts
		want  agents.Trouble
	}{
		"operator":                        {mode: mode{}},
		"administrator":                   {mode: mode{Role: redfishsim.RoleAdministrator}},
		"read only":                       {mode: mode{Role: redfishsim.RoleReadOnly}, want: agents.Privilege},
		"read only, told by the account":  {mode: mode{Role: redfishsim.RoleReadOnly, HideRoles: true}, want: agents.Privilege},
		"own role with the right":         {mode: mode{Privileges: []string{"Login", "ConfigureComponents"}}},
		"own role of 2022":                {mode: mode{Privileges: []string{"Login", "OperateSystems"}}},
		"own role without":                {mode: mode{Privileges: []string{"Login", "ConfigureManager"}}, want: agents.Privilege},
		"own role with nothing":           {mode: mode{Privileges: []string{}}, want: agents.Privilege},
		"own role, the maker's right":     {mode: mode{Privileges: []string{"Login"}, OemPrivileges: []string{"VirtualPowerAndReset"}}},
		"read only, nothing shown":        {mode: mode{Role: redfishsim.RoleReadOnly, HideRoles: true, HideAccounts: true}},
		"operator, nothing shown":         {mode: mode{HideRoles: true, HideAccounts: true}},
		"accounts are a page":             {mode: mode{HideRoles: true}, fault: redfishsim.HTML()},
		"accounts are not there":          {mode: mode{HideRoles: true}, fault: redfishsim.Answer(404, "Base.1.8.ResourceMissingAtURI")},
		"accounts break off":              {mode: mode{HideRoles: true}, fault: redfishsim.HangUp()},
		"accounts are odd":                {mode: mode{HideRoles: true}, fault: redfishsim.Document("application/json", `{"Accounts":7,"Members":[{}]}`)},
		"password must be changed":        {mode: mode{MustChangePassword: true}, want: agents.Credentials},
		"sessions cannot be read":         {mode: mode{Location: redfishsim.BodyOnly}},
		"first reads of accounts refused": {mode: mode{Role: redfishsim.RoleReadOnly, HideRoles: true}, fault: redfishsim.Times(1, redfishsim.RetryAfter("0")), want: agents.Privilege},
	} {
		for _, auth := range []string{AuthBasic, AuthSession} {
			t.Run(name+", "+auth, func(t *testing.T) {
				t.Parallel()
				bmc := startBMC(t, func(conf *redfishsim.Config) { conf.Mode = c.mode })
				bmc.SetFault(redfishsim.AtAccounts, c.fault)
				o := options(bmc)
				o.Auth = auth
				err := open(t, o).Check(within(t, 5*time.Second), "")
				if got := agents.TroubleOf(err); got != c.want {
					t.Errorf("%q, want %q: %v", got, c.want, err)
				}
				noSecret(t, err)
				for _, r := range bmc.Requests() {
					if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Path != "/redfish/v1/SessionService/Sessions" {
						t.Errorf("checking sent %s %s", r.Method, r.Path)
					}
				}
			})
		}
	}
}

// TestCheckPatience: an account service that stalls holds a check up for its own time only, and
// costs nothing but the knowledge.
func TestCheckPatience(t *testing.T) {
	bmc := startBMC(t, nil)
	bmc.SetFault(redfishsim.AtAccounts, redfishsim.StallHeader())
	a := open(t, options(bmc))
	start := time.Now()
	if err := a.Check(within(t, 100*time.Millisecond), ""); agents.TroubleOf(err) != agents.Unreachable {
		t.Errorf("the end of the context is told as %v", err)
	}
	if took := time.Since(start); took > 100*time.Millisecond+slack {
		t.Errorf("took %v", took)
	}
	if _, err := a.Status(within(t, time.Second), ""); err != nil {
		t.Error(err)
	}
}

// TestCheckFit: a device that could not be switched off is refused before it is needed.
func TestCheckFit(t *testing.T) {
	button := []string{"On", "PushPowerButton", "PowerCycle", "ForceRestart", "GracefulShutdown", "Off"}
	for name, c := range map[string]struct {
		systems []redfishsim.System
		is      error
		want    agents.Trouble
	}{
		"no ForceOff":           {[]redfishsim.System{{Allowable: button}}, ErrNoForceOff, agents.Unfit},
		"no ForceOff in info":   {[]redfishsim.System{{ActionInfo: button}}, ErrNoForceOff, agents.Unfit},
		"no On":                 {[]redfishsim.System{{Allowable: []string{"ForceOff"}}}, nil, agents.NoTrouble},
		"nothing said":          {[]redfishsim.System{{}}, nil, agents.NoTrouble},
		"several":               {[]redfishsim.System{{ID: "1"}, {ID: "2"}}, ErrSystem, agents.WrongPlug},
		"no host":               {[]redfishsim.System{{NotHost: true}}, ErrSystem, agents.WrongPlug},
		"target elsewhere":      {[]redfishsim.System{{Target: "https://127.0.0.9/reset"}}, ErrNotRedfish, agents.Protocol},
		"chassis, none named":   {[]redfishsim.System{{ID: "Blade0", Chassis: true}}, ErrSystem, agents.WrongPlug},
		"chassis beside a host": {[]redfishsim.System{{ID: "1"}, {ID: "Blade0", Chassis: true}}, nil, agents.NoTrouble},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := startBMC(t, func(conf *redfishsim.Config) { conf.Systems = c.systems })
			err := open(t, options(bmc)).Check(within(t, 5*time.Second), "")
			if got := agents.TroubleOf(err); got != c.want || !errors.Is(err, c.is) {
				t.Errorf("%q, want %q: %v", got, c.want, err)
			}
			if len(bmc.Resets()) > 0 {
				t.Error("checking sent a command")
			}
		})
	}
}
