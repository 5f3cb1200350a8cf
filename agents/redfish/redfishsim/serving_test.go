package redfishsim

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSilence: a connection is neither taken nor refused, until the BMC is up again.
func TestSilence(t *testing.T) {
	c := start(t, Config{})
	if err := c.bmc.Silence(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTimeout("tcp", c.bmc.Addr(), 150*time.Millisecond)
	var timeout net.Error
	if err == nil {
		conn.Close()
	}
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("dialing: %v, want a timeout", err)
	}
	if err := c.bmc.Up(); err != nil {
		t.Fatal(err)
	}
	if p := c.power(); p != "On" {
		t.Errorf("power %v", p)
	}
	if err := c.bmc.Silence(); err != nil { // Stop ends it as well
		t.Fatal(err)
	}
}

// TestHTTP10: the answer says so, has no length, and ends with the connection.
func TestHTTP10(t *testing.T) {
	c := start(t, Config{Mode: Mode{HTTP10: true, Clock: -20 * 365 * 24 * time.Hour}})
	conn, err := tls.Dial("tcp", c.bmc.Addr(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprint(conn, "GET /redfish/v1/ HTTP/1.1\r\nHost: bmc\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Proto != "HTTP/1.0" || resp.StatusCode != 200 || resp.ContentLength != -1 {
		t.Errorf("%s, HTTP %d, %d bytes", resp.Proto, resp.StatusCode, resp.ContentLength)
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err != nil || time.Since(date) < 19*365*24*time.Hour {
		t.Errorf("the clock shows %v, %v", date, err)
	}
	if p := c.power(); p != "On" {
		t.Errorf("power %v", p)
	}
}

// TestStale: the state before is shown for a while after the power was really switched.
func TestStale(t *testing.T) {
	power := NewSwitch(true)
	c := start(t, Config{Power: power, Mode: Mode{Stale: 100 * time.Millisecond}})
	c.reset("ForceOff")
	eventually(t, "the machine is off", func() bool { return !power.State() })
	if p := c.power(); p != "On" {
		t.Errorf("shown %v", p)
	}
	eventually(t, "it is shown", func() bool { return c.power() == "Off" })
	c.reset("On")
	eventually(t, "the machine is on", power.State)
	if p := c.power(); p != "Off" {
		t.Errorf("shown %v", p)
	}
	eventually(t, "it is shown", func() bool { return c.power() == "On" })
}

// TestChassis: a chassis is in its own collection, with its own action.
func TestChassis(t *testing.T) {
	power := NewSwitch(true)
	c := start(t, Config{Systems: []System{{ID: "1"}, {ID: "Blade0", Chassis: true, Power: power, Allowable: []string{"On", "ForceOff"}}}})
	for path, want := range map[string]string{systemsPath: systemsPath + "/1", chassisPath: chassisPath + "/Blade0"} {
		_, doc, _ := c.do(http.MethodGet, path, "")
		if got := fmt.Sprint(doc["Members"]); got != fmt.Sprintf("[map[@odata.id:%s]]", want) {
			t.Errorf("%s has %s", path, got)
		}
	}
	if status, _, _ := c.do(http.MethodPost, chassisPath+"/Blade0/Actions/Chassis.Reset", `{"ResetType":"ForceOff"}`); status != 204 || power.State() {
		t.Errorf("HTTP %d, on %v", status, power.State())
	}
	_, doc, _ := c.do(http.MethodGet, chassisPath+"/Blade0", "")
	if doc["PowerState"] != "Off" || !strings.HasPrefix(fmt.Sprint(doc["@odata.type"]), "#Chassis.") {
		t.Errorf("document %v", doc)
	}
	if p := c.power(); p != "On" {
		t.Errorf("the system is %v", p)
	}
}

// TestRoles: what an account may do is what its role says, and is shown where it is not hidden.
func TestRoles(t *testing.T) {
	for _, r := range []struct {
		mode   Mode
		role   string
		status int
	}{
		{Mode{}, RoleOperator, 204},
		{Mode{Role: RoleReadOnly}, RoleReadOnly, 403},
		{Mode{Privileges: []string{"Login"}}, customRole, 403},
		{Mode{Privileges: []string{"ConfigureComponents"}}, customRole, 204},
		{Mode{Privileges: []string{"Login"}, OemPrivileges: []string{"VirtualPowerAndReset"}}, customRole, 204},
	} {
		c := start(t, Config{Mode: r.mode})
		_, doc, h := c.do(http.MethodPost, sessionsPath, `{"UserName":"admin","Password":"secret"}`)
		if got := fmt.Sprint(doc["Roles"]); got != "["+r.role+"]" {
			t.Errorf("the session has roles %s, want %s", got, r.role)
		}
		c.token = h.Get("X-Auth-Token")
		if _, doc, _ := c.do(http.MethodGet, h.Get("Location"), ""); doc["UserName"] != "admin" {
			t.Errorf("session %v", doc)
		}
		if _, doc, _ := c.do(http.MethodGet, accountsPath+"/Accounts/2", ""); doc["UserName"] != "admin" || doc["RoleId"] != r.role {
			t.Errorf("account %v", doc)
		}
		if status, _, _ := c.do(http.MethodGet, accountsPath+"/Roles/"+r.role, ""); status != 200 {
			t.Errorf("the role: HTTP %d", status)
		}
		if got := c.reset("ForceOff"); got != r.status {
			t.Errorf("role %s: HTTP %d, want %d", r.role, got, r.status)
		}
		c.bmc.SetMode(func(m *Mode) { m.HideAccounts = true })
		if status, _, _ := c.do(http.MethodGet, accountsPath, ""); status != 403 {
			t.Errorf("hidden accounts: HTTP %d", status)
		}
	}
}

// TestLogins: basic authentication for the login itself, and 400 past the limit.
func TestLogins(t *testing.T) {
	c := start(t, Config{Mode: Mode{LoginByBasic: true, SessionLimit: 1, LimitAnswer: 400}})
	body := `{"UserName":"admin","Password":"secret"}`
	c.token = "none"
	if status, _, _ := c.do(http.MethodPost, sessionsPath, body); status != 401 {
		t.Errorf("without basic: HTTP %d", status)
	}
	c.token = ""
	if status, _, _ := c.do(http.MethodPost, sessionsPath, body); status != 201 {
		t.Errorf("with basic: HTTP %d", status)
	}
	if status, doc, _ := c.do(http.MethodPost, sessionsPath, body); status != 400 || !strings.Contains(fmt.Sprint(doc), "SessionLimitExceeded") {
		t.Errorf("past the limit: HTTP %d, %v", status, doc)
	}
}

// TestDocuments: documents are served as they are, but for the power.
func TestDocuments(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"root.json":    `{"@odata.id":"/redfish/v1/","Vendor":"Nobody"}`,
		"Systems.json": `{"@odata.id":"/redfish/v1/Systems","Members":[{"@odata.id":"/redfish/v1/Systems/Self"}]}`,
		"S.json": `{"@odata.id":"/redfish/v1/Systems/Self","@odata.type":"#ComputerSystem.v1_9_0.ComputerSystem","PowerState":"On","Odd":7,
			"Actions":{"#ComputerSystem.Reset":{"target":"/odd/target","@Redfish.ActionInfo":"/redfish/v1/Info"}}}`,
		"Info.json": `{"@odata.id":"/redfish/v1/Info","Parameters":[{"Name":"ResetType","AllowableValues":["ForceOff"]}]}`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := start(t, Config{Documents: folder})
	if _, doc, _ := c.do(http.MethodGet, "/redfish/v1/", ""); doc["Vendor"] != "Nobody" {
		t.Errorf("root %v", doc)
	}
	for resetType, want := range map[string]int{"ForceOff": 204, "PushPowerButton": 400} {
		if status, _, _ := c.do(http.MethodPost, "/odd/target", `{"ResetType":"`+resetType+`"}`); status != want {
			t.Errorf("%s: HTTP %d", resetType, status)
		}
	}
	if _, doc, _ := c.do(http.MethodGet, "/redfish/v1/Systems/Self", ""); doc["PowerState"] != "Off" || doc["Odd"] != 7.0 {
		t.Errorf("system %v", doc)
	}
	if _, doc, _ := c.do(http.MethodGet, "/redfish/v1/Info", ""); doc["Parameters"] == nil {
		t.Errorf("action info %v", doc)
	}
	if _, err := Start(Config{Documents: t.TempDir()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty folder: %v", err)
	}
}
