package snmp

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"

	"github.com/hamgr/hamgr/agents"
)

// capturesVariable names a folder with answers of real PDUs, in lines OID|type|value (snmprec).
const capturesVariable = "HAMGR_SNMP_CAPTURES"

// captured says what the agent must find in each capture: the family, an outlet, its name and
// what can be read of it. Most captures lack the status column, and are refused for that.
var captured = map[string]struct {
	profile string // named in the file, if not detected
	family  string
	outlet  string
	name    string // a part of it
	state   agents.PowerState
	trouble error
}{
	"apc_ap7900b":         {"apc-ms", "apc-ms", "1", "", agents.On, nil},
	"apc_apdu9959eu3":     {"apc-ms", "apc-ms", "24", "", agents.On, nil},
	"apc_masterswitch2":   {"", "apc-ms", "8", "", agents.On, nil},
	"eatonpdu_2":          {"", "eaton-epdu", "24", "", agents.On, nil},
	"hpe-mapdu_pdu2":      {"", "hpe-mpdu", "1", "Outlet L1-1", agents.Off, nil},
	"poweralert_pdu":      {"", "tripplite-webcardlx", "10", "outlet-10", agents.On, nil},
	"raritan-pdu":         {"", "raritan-px1", "1", "", agents.Unknown, agents.ErrPlug},
	"raritan-pdu_px2":     {"", "raritan-px2", "1", "", agents.Unknown, agents.ErrPlug},
	"raritan-pdu_px3":     {"", "raritan-px2", "1", "", agents.Unknown, agents.ErrPlug},
	"sentry3_switched":    {"", "sentry3", "AA1", "", agents.Unknown, agents.ErrPlug},
	"vertiv-pdu_mn03edr1": {"", "vertiv-v5", "1", "", agents.Unknown, agents.ErrPlug},
	"enlogic-pdu_v2":      {"", "enlogic", "1", "", agents.Unknown, agents.ErrPlug},
}

// TestCaptures answers with what real PDUs answered.
func TestCaptures(t *testing.T) {
	folder := os.Getenv(capturesVariable)
	if folder == "" {
		t.Logf("%s is not set: no captures are read", capturesVariable)
		return
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.snmprec"))
	if err != nil || len(files) != len(captured) {
		t.Fatalf("%d captures in %s, %d are described: %v", len(files), folder, len(captured), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".snmprec")
		t.Run(name, func(t *testing.T) {
			want, ok := captured[name]
			if !ok {
				t.Fatal("not described")
			}
			l := startLiar(t, nil)
			l.mu.Lock()
			l.objects = readCapture(t, file)
			l.mu.Unlock()
			o := with2c(l.address(), "public")
			o.Profile = want.profile
			a := open(t, o)
			r, err := a.Status(within(t, 3*time.Second), want.outlet)
			if a.s.family == nil || a.s.family.name != want.family {
				t.Fatalf("detected as %v, %v", a.s.family, err)
			}
			if want.trouble != nil {
				wantError(t, err, want.trouble, "no outlet")
				return
			}
			if err != nil || r.State != want.state {
				t.Errorf("read %+v, %v", r, err)
			}
			id, err := a.Identity(within(t, 3*time.Second), want.outlet)
			if err != nil || id.Name == "" || !strings.Contains(id.Name, want.name) {
				t.Errorf("identity %+v, %v", id, err)
			}
			wantState(t, a, want.outlet+"="+id.Name, want.state)
		})
	}
}

func readCapture(t *testing.T, file string) map[string]gosnmp.SnmpPDU {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]gosnmp.SnmpPDU{}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), "|", 3)
		v := gosnmp.SnmpPDU{Name: f[0], Type: gosnmp.OctetString, Value: f[2]}
		switch f[1] {
		case "2":
			n, err := strconv.Atoi(f[2])
			if err != nil {
				continue // a serial number was replaced there
			}
			v.Type, v.Value = gosnmp.Integer, n
		case "6":
			v.Type = gosnmp.ObjectIdentifier
		case "4x":
			raw, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatal(err)
			}
			v.Value = raw
		case "4":
		default:
			continue
		}
		objects[v.Name] = v
	}
	return objects
}
