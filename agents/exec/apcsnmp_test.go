package exec

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
)

// talking are the processes that have an address of the peer's on their command line.
func talking(address string) (found []string) {
	host, port, _ := net.SplitHostPort(address)
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		b, _ := os.ReadFile(file)
		if args := strings.Split(string(b), "\x00"); len(args) > 1 && strings.Contains(string(b), host) && strings.Contains(string(b), port) && !strings.HasSuffix(args[0], "snmpd") {
			found = append(found, strings.Join(args, " "))
		}
	}
	return found
}

// goneFrom waits until nobody talks to the peer.
func goneFrom(t *testing.T, address string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); len(talking(address)) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("left behind: %q", talking(address))
		}
	}
}

// fence_apc_snmp, unchanged, against net-snmp's snmpd.
func TestAPCSNMP(t *testing.T) {
	t.Parallel()
	needAgents(t)
	const community = "s3cr3t-c0mm"
	pdu := snmppeer.Start(t, "apc-rpdu", func(c *snmppeer.Config) { c.Community = community })
	host, port, _ := net.SplitHostPort(pdu.Address())
	device := func(community string) *agent {
		o := Kind().Options().(*Options)
		o.Command = "fence_apc_snmp"
		o.Options = map[string]string{"ip": host, "ipport": port, "snmp_version": "2c", "shell_timeout": "1", "login_timeout": "1"}
		o.Secrets = map[string]agents.Secret{"community": agents.NewSecret(community)}
		return open(t, o)
	}
	h := device(community)
	ctx := within(t, 60*time.Second)
	reads := func(outlet int, want agents.PowerState) {
		t.Helper()
		if r, err := h.Status(ctx, fmt.Sprint(outlet)); err != nil || r.State != want || pdu.Outlet(outlet) != want.String() {
			t.Errorf("outlet %d: %v %q, %v; it is %v, want %v", outlet, r.State, r.Detail, err, pdu.Outlet(outlet), want)
		}
	}
	reads(3, agents.On)
	if err := h.Check(ctx, "3"); err != nil {
		t.Error(err)
	}
	if miss := errWith(h.Check(ctx, "13"), agents.ErrPlug, "no such plug; it has 1, 2, 3, 4, 5, 6, 7, 8"); miss != "" {
		t.Error(miss)
	}
	if err := h.Off(ctx, "3"); err != nil {
		t.Error(err)
	}
	reads(3, agents.Off)
	reads(4, agents.On)
	if err := h.On(ctx, "3"); err != nil {
		t.Error(err)
	}
	reads(3, agents.On)
	if calls := strings.Join(pdu.Calls(), ", "); calls != "3 off, 3 on" {
		t.Errorf("the PDU was told %s", calls)
	}
	// To the agent, an outlet that does not exist is off. Not to us.
	r, err := h.Status(ctx, "13")
	if miss := errWith(err, agents.ErrPlug, `plug "13"`, "no such plug"); miss != "" || r.State != agents.Unknown {
		t.Errorf("no such outlet: %v, %s", r, miss)
	}

	// It obeys, and answers an error; then it accepts, and does nothing.
	pdu.Fault("failobey")
	if err := h.Off(ctx, "3"); err == nil || strings.Contains(err.Error(), community) {
		t.Errorf("the PDU answered an error, and the agent says: %v", err)
	}
	pdu.Fault("")
	reads(3, agents.Off)
	pdu.SetOutlet(3, "on")
	pdu.Fault("stuck")
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := h.Off(short, "3"); err == nil {
		t.Error("nothing was switched, and the agent says nothing of it")
	}
	pdu.Fault("")
	reads(3, agents.On)

	// snmpget leaves the process group (it has a terminal of its own), and ends with that terminal.
	pdu.Freeze()
	for range 3 {
		short, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		start := time.Now()
		r, err := h.Status(short, "3")
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || r.State != agents.Unknown || took > time.Second {
			t.Errorf("%v, %v after %v", r, err, took)
		}
		cancel()
	}
	goneFrom(t, pdu.Address())
	pdu.Thaw()

	// A wrong community is answered with silence.
	r, err = device("wrong-c0mmun1ty").Status(within(t, 15*time.Second), "3")
	if miss := errWith(err, agents.ErrUnreachable); miss != "" || r.State != agents.Unknown {
		t.Errorf("%v: %s", r, miss)
	}
	if err != nil && strings.Contains(err.Error(), "c0mmun1ty") {
		t.Errorf("the community is shown: %v", err)
	}
}
