package node

import (
	"errors"
	"testing"
)

func TestUnitOf(t *testing.T) {
	for cgroups, want := range map[string]string{
		"0::/system.slice/hamgr.service\n":                             "hamgr.service",
		"0::/hamgr.slice/hamgr@1.service/resource\n":                   "hamgr@1.service",
		"12:cpu:/\n1:name=systemd:/system.slice/hamgr.service\n0::/\n": "hamgr.service",
		"0::/user.slice/user-0.slice/session-3.scope\n":                "",
		"": "",
	} {
		if unit, err := unitOf(cgroups); unit != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", cgroups, unit, err)
		}
	}
}

// TestNoService: who runs a daemon by hand is not taken for systemd. What a real one says is tested in e2e/systemd.
func TestNoService(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("INVOCATION_ID", "")
	if job, err := serviceJob(t.Context()); job != jobNone || !errors.Is(err, errNoService) {
		t.Errorf("%q, %v", job, err)
	}
}
