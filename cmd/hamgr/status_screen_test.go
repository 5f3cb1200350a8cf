package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ms(n int64) *int64 { return &n }

func up(address string, age int64) api.LinkStatus {
	return api.LinkStatus{Address: address, UDPAgeMS: ms(age), TCPAgeMS: ms(age)}
}

func healthy() api.Status {
	fenced := func(device string) api.FencingStatus {
		f := api.FencingStatus{Levels: [][]string{{device}, {"pdu-a", "pdu-b"}}, LastProven: noon.AddDate(0, 0, -3)}
		f.Rehearsals = []api.Rehearsal{
			{Device: device, Level: 1, At: noon.AddDate(0, 0, -3), OffMS: 900}, {Device: "pdu-a", Level: 2, At: noon.AddDate(0, 0, -12)}, {Device: "pdu-b", Level: 2, At: noon.AddDate(0, 0, -12)},
		}
		return f
	}
	return api.Status{
		Schema: 1, Cluster: "web", Node: "alpha", Version: "v0.1.0", Quorate: true, Coordinator: "beta", Formed: true, Tolerates: 1, ToleratesBy: "majority of 3 voters",
		Nodes: []api.NodeStatus{
			{Name: "alpha", Role: "member", State: api.NodeAlive, Boot: "b1", ContactAgeMS: ms(0), Applied: 40, Fencing: fenced("alpha-bmc")},
			{Name: "beta", Role: "member", State: api.NodeAlive, Boot: "b2", Coordinator: true, ContactAgeMS: ms(11), Applied: 40, Fencing: fenced("beta-bmc"),
				Links: []api.LinkStatus{up("10.0.0.12:7846", 11), up("10.1.0.12:7846", 30)}},
			{Name: "gamma", Role: "member", State: api.NodeAlive, Boot: "b3", ContactAgeMS: ms(25), Applied: 40, Fencing: fenced("gamma-bmc"),
				Links: []api.LinkStatus{up("10.0.0.13:7846", 25), up("10.1.0.13:7846", 25)}},
		},
		Groups: []api.GroupStatus{
			{Name: "db", State: api.GroupRunning, Node: "gamma", Token: 17, Since: noon.Add(-time.Hour),
				Resources: []api.ResourceStatus{{Name: "data", Kind: "filesystem", State: "active"}, {Name: "server", Kind: "command", State: "active"}}},
			{Name: "wiki", State: api.GroupStopped},
		},
	}
}

// failover is a cluster in the middle of its work, with everything that a screen can show.
func midFailover() api.Status {
	s := healthy()
	s.Tolerates, s.ToleratesBy = 0, "none: 2 of 3 voters are there, and 2 are a majority"
	gamma := &s.Nodes[2]
	gamma.State, gamma.ContactAgeMS = api.NodeDead, ms(14_200)
	gamma.Unclean, gamma.UncleanReason, gamma.FenceOp = true, "silent for 3.1s while it held db", 52
	gamma.Links = []api.LinkStatus{
		{Address: "10.0.0.13:7846", UDPAgeMS: ms(14_200), TCPAgeMS: ms(14_500), Error: "i/o timeout"},
		{Address: "10.1.0.13:7846", Error: "no route to host"},
	}
	beta := &s.Nodes[1]
	beta.Standby, beta.Quarantine = true, "in quarantine for another 10m0s, since it was fenced 3 times within 1h0m0s; to end it: hamgr fence on beta"
	beta.Fencing.Rehearsals[1].At, beta.Fencing.Rehearsals[2].At = time.Time{}, time.Time{}
	gamma.Fencing.Rehearsals = []api.Rehearsal{{Device: "gamma-bmc", Level: 1}, {Device: "pdu-a", Level: 2}, {Device: "pdu-b", Level: 2}}
	gamma.Fencing.Health = []api.DeviceHealth{
		{Device: "gamma-bmc", ReadBy: "alpha", Trouble: "wrong credentials", Error: "401"}, {Device: "gamma-bmc", ReadBy: "beta", Trouble: "wrong credentials", Error: "401"},
		{Device: "pdu-a", Plug: "3", ReadBy: "alpha", OK: true}, {Device: "pdu-a", Plug: "3", ReadBy: "beta", Trouble: "unreachable"},
		{Device: "pdu-b", Plug: "3", ReadBy: "alpha", OK: true}, {Device: "pdu-b", Plug: "3", ReadBy: "beta", OK: true},
	}
	s.Nodes = append(s.Nodes, api.NodeStatus{Name: "quorum1", Role: "witness", State: api.NodeUnknown,
		Links: []api.LinkStatus{{Address: "10.0.0.9:7846"}}})
	s.Groups = []api.GroupStatus{
		{Name: "db", State: api.GroupBlocked, Node: "gamma", Token: 17, Since: noon.Add(-time.Hour), Detail: "until gamma is proven off",
			Resources: []api.ResourceStatus{{Name: "data", State: "unknown"}, {Name: "server", State: "unknown", Detail: "gamma is silent"}}},
		{Name: "wiki", State: api.GroupRunning, Node: "beta", Token: 18, Since: noon,
			Resources: []api.ResourceStatus{{Name: "fs", State: "active"}, {Name: "httpd", State: "failed", Detail: "exit status 1\x1b[2J\nfaked line"}}},
	}
	s.Operations = []api.Operation{
		{Op: 52, Node: "gamma", Boot: "b3", Action: "reboot", Phase: api.PhaseFailed, Executor: "beta", Reason: "silent for 3.1s", Error: "gamma-bmc: 401 Unauthorized", StartedAt: noon, TookMS: 61_000},
		{Op: 51, Node: "alpha", Action: "reboot", Phase: api.PhaseCommitted, StartedAt: noon, TookMS: 900, Waits: "storm brake: the cluster fences at most 1 of 3 members within 2m0s, and that is gamma: held until that is over; if alpha is really dead: hamgr fence off alpha"},
		{Op: 40, Node: "alpha", Action: "rehearse", Level: 2, Phase: api.PhaseDone, By: "anna", Proof: "alpha-bmc read off twice", StartedAt: noon.Add(-2 * time.Hour), TookMS: 212},
	}
	for op := uint64(39); op > 34; op-- {
		s.Operations = append(s.Operations, api.Operation{Op: op, Node: "beta", Action: "off", Phase: api.PhaseCalledOff, StartedAt: noon.Add(-3 * time.Hour)})
	}
	s.Failures = []api.Failure{{Group: "wiki", Resource: "httpd", Node: "beta", Reason: "exit status 1", Count: 2, At: noon}}
	s.Problems = []api.Problem{
		{Severity: api.SeverityAlarm, Text: "gamma cannot be fenced: every level failed, 3 attempts; db stays down", Cure: "hamgr fence status gamma, then mend gamma-bmc"},
		{Severity: api.SeverityWarning, Text: "beta is " + beta.Quarantine, Cure: "hamgr fence on beta ends it"},
		{Severity: api.SeverityWarning, Text: "no further failure is tolerated: 2 of 3 voters are there, and 2 are a majority"},
	}
	s.Dropped = map[string]uint64{"bad seal": 3, "replay": 1, "stale": 0}
	return s
}

func TestNodeNote(t *testing.T) {
	for want, o := range map[string]api.Operation{
		"being switched on (operation 7)": {Op: 7, Action: api.ActionOn}, "being rehearsed (operation 7)": {Op: 7, Action: api.ActionRehearse},
		"being fenced (operation 7)": {Op: 8, Action: api.ActionOn}, // of the own operation nothing is known
	} {
		s := healthy()
		s.Operations = []api.Operation{o}
		if got := nodeNote(s, api.NodeStatus{Name: "gamma", FenceOp: 7}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	s := healthy()
	health := []api.DeviceHealth{{Device: "gamma-bmc", ReadBy: "beta", OK: true}, {Device: "gamma-bmc", ReadBy: "alpha", Trouble: "unreachable"}}
	for state, want := range map[string]string{api.NodeAlive: "gamma-bmc: unreachable to alpha", api.NodeSuspect: "gamma-bmc: unreachable to alpha", api.NodeDead: "", api.NodeLeft: ""} {
		s.Nodes[0].State = state
		if got := nodeNote(s, api.NodeStatus{Name: "gamma", Fencing: api.FencingStatus{Health: health}}); got != want {
			t.Errorf("alpha is %s: %q, want %q", state, got, want)
		}
	}
}

func noQuorum() api.Status {
	s := healthy()
	s.Quorate, s.Coordinator, s.Tolerates = false, "", 0
	s.Note = "no quorum: what is shown may be old"
	s.Problems = []api.Problem{{Severity: api.SeverityAlarm, Text: "no quorum: only alpha of 3 voters is reached", Cure: "bring beta or gamma back, or mend the network between them"}}
	return s
}

func forming() api.Status {
	return api.Status{Cluster: "web", Node: "alpha", Version: "v0.1.0", Waiting: "waiting for one more of beta, gamma to form the cluster",
		Nodes: []api.NodeStatus{{Name: "alpha", Role: "member", State: api.NodeAlive}}}
}

func TestStatusScreen(t *testing.T) {
	for name, s := range map[string]api.Status{"healthy": healthy(), "failover": midFailover(), "noquorum": noQuorum(), "forming": forming(), "empty": {}, "operated": underOperators(), "maintenance": allInMaintenance()} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			writeStatus(&got, s, noon)
			golden(t, filepath.Join("testdata", "status", name+".txt"), got.Bytes())
			if i := strings.IndexFunc(got.String(), func(r rune) bool { return r < ' ' && r != '\n' }); i >= 0 {
				t.Errorf("control character at byte %d", i)
			}
		})
	}
}

// golden compares with a file; -update rewrites it. Commit what it rewrote only if you
// understand the difference.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; got:\n%s", path, got)
	}
}

func TestShortMS(t *testing.T) {
	for in, want := range map[int64]string{0: "0ms", 999: "999ms", 1000: "1s", 14_200: "14.2s", 59_999: "60s", 61_000: "1m01s", 90_000: "1m30s", 600_000: "10m", 3_600_000: "1h", 47 * 3_600_000: "47h", 72 * 3_600_000: "3d"} {
		if got := shortMS(in); got != want {
			t.Errorf("%d ms: %q, want %q", in, got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	const day = 24 * time.Hour
	for in, want := range map[time.Duration]string{-time.Hour: "just now", 0: "just now", 59 * time.Second: "just now", time.Minute: "1 minute ago", 59 * time.Minute: "59 minutes ago", time.Hour: "1 hour ago", 47 * time.Hour: "47 hours ago", 2 * day: "2 days ago", 12*day + time.Hour: "12 days ago"} {
		if got := ago(in); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}
