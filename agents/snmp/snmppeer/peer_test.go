package snmppeer

import (
	"os/exec"
	"strings"
	"testing"
)

// TestPDU looks at the peer with net-snmp's own client, so that the agent's tests rest on
// something.
func TestPDU(t *testing.T) {
	p := Start(t, "apc-rpdu2")
	snmp := func(command string, args ...string) string {
		path, err := find(command)
		if err != nil {
			t.Fatalf("%v (and snmp)", err)
		}
		out, _ := exec.Command(path, append([]string{"-On", "-v2c", "-c", "private", "-t", "2", p.Address()}, args...)...).CombinedOutput()
		return strings.TrimSpace(string(out))
	}
	const status, control = ".1.3.6.1.4.1.318.1.1.26.9.2.3.1.5.3", ".1.3.6.1.4.1.318.1.1.26.9.2.4.1.5.3"
	if got := snmp("snmpget", status); got != status+" = INTEGER: 2" {
		t.Errorf("on reads %q", got)
	}
	if got := snmp("snmpset", control, "i", "2"); got != control+" = INTEGER: 2" {
		t.Errorf("off answers %q", got)
	}
	if got := snmp("snmpget", status); got != status+" = INTEGER: 1" || p.Outlet(3) != "off" {
		t.Errorf("off reads %q, the outlet is %s", got, p.Outlet(3))
	}
	p.Fault("failobey")
	if got := snmp("snmpset", control, "i", "1"); !strings.Contains(got, "commitFailed") || p.Outlet(3) != "on" {
		t.Errorf("on answers %q, the outlet is %s", got, p.Outlet(3))
	}
	if got := p.Calls(); len(got) != 2 || got[0] != "3 off" || got[1] != "3 on" {
		t.Errorf("calls %q", got)
	}
}
