package redfishsim

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// client is a plain HTTP client of a BMC, so that the simulator is tested without the
// agent that it is to test.
type client struct {
	t   *testing.T
	bmc *BMC
	*http.Client
	token string
}

func start(t *testing.T, c Config) *client {
	t.Helper()
	c.Username, c.Password = "admin", "secret"
	bmc, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bmc.Stop)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bmc.CAPEM())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
	return &client{t: t, bmc: bmc, Client: &http.Client{Transport: transport, Timeout: 5 * time.Second}}
}

// do sends a request with the token, else with basic authentication, and decodes the answer.
func (c *client) do(method, path, body string, headers ...string) (int, map[string]any, http.Header) {
	c.t.Helper()
	req, err := http.NewRequest(method, c.bmc.URL()+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if c.token != "" {
		req.Header.Set("X-Auth-Token", c.token)
	} else {
		req.SetBasicAuth("admin", "secret")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var doc map[string]any
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &doc); err != nil {
			c.t.Fatalf("%s %s: %v in %q", method, path, err, raw)
		}
	}
	return resp.StatusCode, doc, resp.Header
}

func (c *client) reset(resetType string, headers ...string) int {
	c.t.Helper()
	status, _, _ := c.do(http.MethodPost, systemsPath+"/1/Actions/ComputerSystem.Reset", `{"ResetType":"`+resetType+`"}`, headers...)
	return status
}

func (c *client) power() any {
	c.t.Helper()
	_, doc, _ := c.do(http.MethodGet, systemsPath+"/1", "")
	return doc["PowerState"]
}

// TestResetTypes: each value does to the power what it does to a real machine.
func TestResetTypes(t *testing.T) {
	for _, c := range []struct {
		from      bool
		resetType string
		status    int
		to        bool
	}{
		{true, "ForceOff", 204, false},
		{false, "ForceOff", 204, false},
		{false, "On", 204, true},
		{false, "ForceOn", 204, true},
		{true, "ForceRestart", 204, true},
		{true, "PowerCycle", 204, true},
		{true, "PushPowerButton", 204, false},
		{false, "PushPowerButton", 204, true},
		{true, "GracefulShutdown", 204, true}, // nobody listens
		{true, "Off", 400, true},
	} {
		power := NewSwitch(c.from)
		allowable := []string{"On", "ForceOff", "ForceOn", "ForceRestart", "PowerCycle", "PushPowerButton", "GracefulShutdown"}
		cl := start(t, Config{Systems: []System{{Power: power, Allowable: allowable}}})
		if got := cl.reset(c.resetType); got != c.status || power.State() != c.to {
			t.Errorf("%s from %v: HTTP %d, power %v", c.resetType, c.from, got, power.State())
		}
	}
}

// TestAccess: who gets in, and with what.
func TestAccess(t *testing.T) {
	c := start(t, Config{Mode: Mode{SessionLimit: 2}})
	if status, doc, _ := c.do(http.MethodGet, "/redfish/v1/", "", "Authorization", ""); status != 200 || doc["RedfishVersion"] == nil {
		t.Errorf("the root without credentials: %d", status)
	}
	if status, _, _ := c.do(http.MethodGet, systemsPath, "", "Authorization", ""); status != 401 {
		t.Errorf("systems without credentials: %d", status)
	}
	logIn := func(password string) (int, string, string) {
		status, _, h := c.do(http.MethodPost, sessionsPath, `{"UserName":"admin","Password":"`+password+`"}`)
		return status, h.Get("X-Auth-Token"), h.Get("Location")
	}
	if status, token, _ := logIn("wrong"); status != 401 || token != "" {
		t.Errorf("wrong password: %d", status)
	}
	_, token, location := logIn("secret")
	logIn("secret")
	if status, _, _ := logIn("secret"); status != 503 || c.bmc.OpenSessions() != 2 {
		t.Errorf("third of two sessions: %d, %d open", status, c.bmc.OpenSessions())
	}
	c.token = token
	if c.power() != "On" {
		t.Error("the token does not open")
	}
	if status, _, _ := c.do(http.MethodDelete, location, ""); status != 204 || c.bmc.OpenSessions() != 1 {
		t.Errorf("logout: %d, %d open", status, c.bmc.OpenSessions())
	}
	if status, _, _ := c.do(http.MethodGet, systemsPath, ""); status != 401 {
		t.Errorf("with an ended session: %d", status)
	}
	c.token = ""
	c.bmc.SetMode(func(m *Mode) { m.SessionTimeout = time.Nanosecond })
	if n := c.bmc.OpenSessions(); n != 0 {
		t.Errorf("%d sessions did not time out", n)
	}
	c.bmc.SetMode(func(m *Mode) { m.Role = RoleReadOnly })
	if status := c.reset("ForceOff"); status != 403 || c.power() != "On" {
		t.Errorf("reset with a read-only role: %d", status)
	}
	c.bmc.SetMode(func(m *Mode) { m.MustChangePassword = true })
	if status, _, _ := c.do(http.MethodGet, systemsPath, ""); status != 403 {
		t.Errorf("with a password to be changed: %d", status)
	}
	c.bmc.SetMode(func(m *Mode) { *m = Mode{NoBasic: true} })
	if status, _, _ := c.do(http.MethodGet, systemsPath, ""); status != 401 {
		t.Errorf("basic where it is not taken: %d", status)
	}
}

// TestIfMatch: each policy of entity tags.
func TestIfMatch(t *testing.T) {
	c := start(t, Config{Mode: Mode{ETag: ETagRequired}})
	_, _, h := c.do(http.MethodGet, systemsPath+"/1", "")
	tag := h.Get("ETag")
	if got := c.reset("ForceOff"); got != 428 {
		t.Errorf("without a tag: %d", got)
	}
	if got := c.reset("ForceOff", "If-Match", `"other"`); got != 412 {
		t.Errorf("with a wrong tag: %d", got)
	}
	if got := c.reset("ForceOff", "If-Match", tag); got != 204 || tag == "" {
		t.Errorf("with the tag %q: %d", tag, got)
	}
	if got := c.reset("On", "If-Match", tag); got != 412 {
		t.Errorf("with a tag from before the last reset: %d", got)
	}
	c.bmc.SetMode(func(m *Mode) { m.ETag = ETagChecked })
	if got := c.reset("On"); got != 204 {
		t.Errorf("without a tag where it is only checked: %d", got)
	}
}

// TestTransitions: what is shown while a machine takes its time, and that a newer reset wins.
func TestTransitions(t *testing.T) {
	power := NewSwitch(true)
	c := start(t, Config{Power: power, Mode: Mode{EarlyOff: time.Hour}})
	c.reset("ForceOff")
	if c.power() != "Off" || !power.State() {
		t.Errorf("early off: shows %v, is on: %v", c.power(), power.State())
	}
	c.bmc.SetMode(func(m *Mode) { *m = Mode{PoweringOff: time.Hour} })
	c.reset("ForceOff")
	if c.power() != "PoweringOff" || !power.State() {
		t.Errorf("shows %v, is on: %v", c.power(), power.State())
	}
	c.bmc.SetMode(func(m *Mode) { *m = Mode{} })
	c.reset("ForceOff")
	if c.power() != "Off" || power.State() {
		t.Errorf("shows %v, is on: %v", c.power(), power.State())
	}
	c.bmc.SetMode(func(m *Mode) { *m = Mode{PoweringOn: 20 * time.Millisecond} })
	c.reset("On")
	if c.power() == "Off" {
		t.Error("off after On")
	}
	eventually(t, "it is on", func() bool { return c.power() == "On" && power.State() })
}

// TestTask: a task runs, completes, and is gone.
func TestTask(t *testing.T) {
	c := start(t, Config{Mode: Mode{Answer: 202}})
	_, _, h := c.do(http.MethodPost, systemsPath+"/1/Actions/ComputerSystem.Reset", `{"ResetType":"ForceOff"}`)
	for _, want := range []any{"Running", "Completed", nil} {
		if _, doc, _ := c.do(http.MethodGet, h.Get("Location"), ""); doc["TaskState"] != want {
			t.Errorf("task %v, want %v", doc["TaskState"], want)
		}
	}
}

// TestRequests: the log shows what was asked for, how it was answered, and no credentials.
func TestRequests(t *testing.T) {
	c := start(t, Config{})
	c.do(http.MethodPost, sessionsPath, `{"UserName":"admin","Password":"secret"}`)
	c.reset("ForceOff")
	c.bmc.SetFault(AtReset, Obeying(Answer(500, "Base.1.8.InternalError")))
	c.reset("On")
	log := c.bmc.Requests()
	if len(log) != 3 || log[1].Auth != "basic" || log[1].Status != 204 || log[2].Status != 500 || c.power() != "On" {
		t.Errorf("%+v", log)
	}
	if text, _ := json.Marshal(log); strings.Contains(string(text), "secret") {
		t.Errorf("the log shows the password: %s", text)
	}
	if got := c.bmc.Resets(); len(got) != 2 || got[1] != `{"ResetType":"On"}` {
		t.Errorf("resets %v", got)
	}
}

// TestDownAndUp: a BMC without power refuses connections, forgets its sessions, and comes
// back at the same address.
func TestDownAndUp(t *testing.T) {
	c := start(t, Config{Plain: true})
	c.bmc.FillSessions(3)
	address := c.bmc.Addr()
	c.bmc.Down()
	if resp, err := c.Get(c.bmc.URL() + "/redfish/v1/"); err == nil {
		resp.Body.Close()
		t.Error("answers while it is down")
	}
	if err := c.bmc.Up(); err != nil {
		t.Fatal(err)
	}
	if c.bmc.Addr() != address || c.bmc.OpenSessions() != 0 || c.power() != "On" {
		t.Errorf("back at %s with %d sessions", c.bmc.Addr(), c.bmc.OpenSessions())
	}
	c.bmc.Stop()
	if err := c.bmc.Up(); err == nil {
		t.Error("came up after Stop")
	}
}

// TestStopEndsStalls: Stop waits for nobody who waits for ever.
func TestStopEndsStalls(t *testing.T) {
	for _, f := range []Fault{StallHeader(), StallBody(time.Millisecond), Delay(time.Hour)} {
		c := start(t, Config{Plain: true})
		c.bmc.SetFault(Anywhere, f)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := c.Get(c.bmc.URL() + "/redfish/v1/"); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		eventually(t, "the request arrived", func() bool { return len(c.bmc.Requests()) > 0 })
		c.bmc.Stop()
		<-done
	}
}
