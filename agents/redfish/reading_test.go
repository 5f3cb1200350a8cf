package redfish

import (
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// TestOnlyOffIsOff: of all that a BMC may say about the power, one word is off.
// (gofish trap 4 and 6: PowerState alone counts, and only "Off" is off.)
func TestOnlyOffIsOff(t *testing.T) {
	for value, want := range map[string]agents.Reading{
		`"Off"`:                {State: agents.Off, Detail: "Off"},
		`"On"`:                 {State: agents.On, Detail: "On"},
		`"PoweringOff"`:        {Detail: "PoweringOff"},
		`"PoweringOn"`:         {Detail: "PoweringOn"},
		`"Paused"`:             {Detail: "Paused"},
		`"Unknown"`:            {Detail: "Unknown"},
		`"off"`:                {Detail: "off"},
		`"OFF"`:                {Detail: "OFF"},
		`" Off"`:               {Detail: " Off"},
		`"Off\u0000"`:          {Detail: "Off?"},
		`""`:                   {Detail: "<empty>"},
		`null`:                 {Detail: "<null>"},
		`0`:                    {Detail: "<not a string>"},
		`false`:                {Detail: "<not a string>"},
		`["Off"]`:              {Detail: "<not a string>"},
		`{"PowerState":"Off"}`: {Detail: "<not a string>"},
		``:                     {Detail: "<missing>"},
	} {
		t.Run(value, func(t *testing.T) {
			bmc := startBMC(t, func(c *redfishsim.Config) {
				c.Mode = redfishsim.Mode{PowerState: value, NoPowerState: value == ""}
			})
			got, err := open(t, options(bmc)).Status(within(t, 5*time.Second), "")
			if err != nil || got != want {
				t.Errorf("read %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

// systemDocument is the smallest document that the agent believes.
func systemDocument(properties string) string {
	return `{"@odata.type":"#ComputerSystem.v1_16_0.ComputerSystem","Id":"1",` + properties +
		`"Actions":{"#ComputerSystem.Reset":{"target":"/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"}}}`
}

// TestOddDocuments: a document that says Off somewhere, but not as prescribed, is an error or unknown.
func TestOddDocuments(t *testing.T) {
	json := "application/json"
	for name, c := range map[string]struct {
		fault redfishsim.Fault
		want  error // nil: unknown without an error
	}{
		"HTML page":              {redfishsim.HTML(), ErrNotRedfish},
		"HTML called JSON":       {redfishsim.Document(json, "<html>Off</html>"), ErrNotRedfish},
		"empty":                  {redfishsim.Document(json, ""), ErrNotRedfish},
		"truncated":              {redfishsim.Document(json, systemDocument(`"PowerState":"Off",`)[:90]), ErrNotRedfish},
		"two documents":          {redfishsim.Document(json, systemDocument(`"PowerState":"Off",`)+systemDocument("")), ErrNotRedfish},
		"array":                  {redfishsim.Document(json, "["+systemDocument(`"PowerState":"Off",`)+"]"), ErrNotRedfish},
		"string":                 {redfishsim.Document(json, `"Off"`), ErrNotRedfish},
		"twice, on and off":      {redfishsim.Document(json, systemDocument(`"PowerState":"On","PowerState":"Off",`)), ErrNotRedfish},
		"name in lower case":     {redfishsim.Document(json, systemDocument(`"powerstate":"Off",`)), nil},
		"only in Oem":            {redfishsim.Document(json, systemDocument(`"Oem":{"PowerState":"Off"},`)), nil},
		"requested, not reached": {redfishsim.Document(json, systemDocument(`"RequestedPowerState":"Off",`)), nil},
		"a chassis":              {redfishsim.Document(json, strings.Replace(systemDocument(`"PowerState":"Off",`), "#ComputerSystem.v1_16_0.ComputerSystem", "#Chassis.v1_10_0.Chassis", 1)), ErrSystem},
		"a manager":              {redfishsim.Document(json, strings.Replace(systemDocument(`"PowerState":"Off",`), "#ComputerSystem.v1_16_0.ComputerSystem", "#Manager.v1_10_0.Manager", 1)), ErrSystem},
		"no type":                {redfishsim.Document(json, `{"PowerState":"Off"}`), ErrSystem},
		"no host":                {redfishsim.Document(json, `{"@odata.type":"#ComputerSystem.v1_0_0.ComputerSystem","PowerState":"Off"}`), ErrSystem},
		"an error with 200":      {redfishsim.Document(json, `{"error":{"code":"Base.1.8.GeneralError"}}`), ErrSystem},
		"1 GB":                   {redfishsim.Huge(1 << 30), ErrNotRedfish},
		"reset in mid-body":      {redfishsim.Break(), ErrUnreachable},
		"401":                    {redfishsim.Answer(401, "Base.1.8.NoValidSession"), ErrCredentials},
		"403":                    {redfishsim.Answer(403, "Base.1.8.InsufficientPrivilege"), ErrPrivilege},
		"403, change password":   {redfishsim.Answer(403, "Base.1.8.PasswordChangeRequired"), ErrPasswordChange},
		"404":                    {redfishsim.Answer(404, "Base.1.8.ResourceMissingAtURI"), ErrSystem},
		"500":                    {redfishsim.Answer(500, "Base.1.8.InternalError"), ErrRefused},
		"304":                    {redfishsim.Answer(304, ""), ErrNotRedfish},
		"206":                    {redfishsim.Answer(206, testPassword), ErrNotRedfish},
		"no content":             {redfishsim.Answer(204, ""), ErrNotRedfish},
		"503 for an hour":        {redfishsim.RetryAfter("3599"), ErrBusy},
		"elsewhere":              {redfishsim.Redirect(302, "https://127.0.0.9:1/redfish/v1/Systems/1"), ErrNotRedfish},
		"in circles":             {redfishsim.Redirect(307, "/redfish/v1/Systems/1"), ErrNotRedfish},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := startBMC(t, nil)
			bmc.SetFault(redfishsim.AtSystem, c.fault)
			o := options(bmc)
			o.System = bmc.SystemURI("1")
			got, err := open(t, o).Status(within(t, 5*time.Second), "")
			if got.State != agents.Unknown {
				t.Errorf("read %+v out of it", got)
			}
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			noSecret(t, err)
		})
	}
}

// TestOddRoots: the same for the service root, which gofish reads.
func TestOddRoots(t *testing.T) {
	for name, c := range map[string]struct {
		fault redfishsim.Fault
		want  error
	}{
		"HTML page":       {redfishsim.HTML(), ErrNotRedfish},
		"some other JSON": {redfishsim.Document("application/json", `{"hello":"world"}`), ErrNotRedfish},
		"404":             {redfishsim.Answer(404, ""), ErrRefused},
		"elsewhere":       {redfishsim.Redirect(301, "https://127.0.0.9:1/redfish/v1/"), ErrNotRedfish},
		"1 GB":            {redfishsim.Huge(1 << 30), ErrNotRedfish},
	} {
		for _, auth := range []string{AuthBasic, AuthSession} {
			t.Run(name+", "+auth, func(t *testing.T) {
				bmc := startBMC(t, nil)
				bmc.SetFault(redfishsim.AtRoot, c.fault)
				o := options(bmc)
				o.Auth = auth
				got, err := open(t, o).Status(within(t, 5*time.Second), "")
				if got.State != agents.Unknown || !errors.Is(err, c.want) {
					t.Errorf("read %+v, %v, want %v", got, err, c.want)
				}
				for _, r := range bmc.Requests() {
					if r.Method == http.MethodPost {
						t.Errorf("credentials were sent to %s", r.Path)
					}
				}
			})
		}
	}
}

// TestBodyLimit: a body without end costs neither memory nor time.
func TestBodyLimit(t *testing.T) {
	bmc := startBMC(t, nil)
	bmc.SetFault(redfishsim.AtSystem, redfishsim.Huge(1<<30))
	a := open(t, options(bmc))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := a.Status(within(t, 5*time.Second), ""); !errors.Is(err, ErrNotRedfish) {
		t.Errorf("error %v", err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16*bodyLimit {
		t.Errorf("%d MiB were read", used>>20)
	}
}

// TestSameHostRedirect: a redirect within the BMC is followed by reads.
func TestSameHostRedirect(t *testing.T) {
	bmc := startBMC(t, nil)
	bmc.SetFault(redfishsim.AtSystem, redfishsim.Times(1, redfishsim.Redirect(308, "/redfish/v1/Systems/1/")))
	if r, err := open(t, options(bmc)).Status(within(t, 5*time.Second), ""); err != nil || r.State != agents.On {
		t.Errorf("read %v, %v", r, err)
	}
}

// TestBusyRead: a busy BMC is asked again for as long as the context allows, and no longer.
func TestBusyRead(t *testing.T) {
	t.Parallel()
	bmc := startBMC(t, nil)
	a := open(t, options(bmc))
	bmc.SetFault(redfishsim.AtSystem, redfishsim.Times(3, redfishsim.RetryAfter("0")))
	if r, err := a.Status(within(t, 10*time.Second), ""); err != nil || r.State != agents.On {
		t.Errorf("read %v, %v", r, err)
	}
	bmc.SetFault(redfishsim.AtSystem, redfishsim.RetryAfter("5"))
	start := time.Now()
	if _, err := a.Status(within(t, 2*time.Second), ""); !errors.Is(err, ErrBusy) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("waited %v for a BMC that wants 5 s, with 2 s to go", took)
	}
}

// noSecret fails if an error shows a part of the credentials.
func noSecret(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for _, part := range []string{testPassword, testPassword[:6], `p\"a`, "ZmVuY2Vy"} {
		if strings.Contains(err.Error(), part) {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}
