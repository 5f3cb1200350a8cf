package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
)

// twoFeeds is a node with a BMC, and with an outlet at each of two PDUs below it.
const twoFeeds = `[cluster]
name = "web"
key_file = "/etc/hamgr/cluster.key"

[[node]]
name = "alpha"
addresses = ["10.0.0.11"]
fencing = [["bmc"], ["pdu-a", "pdu-b"]]

[[node]]
name = "quorum1"
addresses = ["10.0.0.12"]
role = "witness"

[[node]]
name = "%s"
addresses = ["10.0.0.13"]
fencing = [["other"]]

[[fence_device]]
name = "bmc"
agent = "fake"
device = "bmc"
machine = true

[[fence_device]]
name = "pdu-a"
agent = "fake"
device = "pdu-a"
plugs = { alpha = ["3"] }

[[fence_device]]
name = "pdu-b"
agent = "fake"
device = "pdu-b"
plugs = { alpha = ["4"] }

[[fence_device]]
name = "other"
agent = "fake"
device = "other"
`

// directTo gives a Direct to fake devices. The third node is named after this host.
func directTo(t *testing.T) (*Direct, map[string]*fake.Device) {
	t.Helper()
	self, err := hostName()
	if err != nil {
		t.Fatal(err)
	}
	devices := map[string]*fake.Device{"bmc": fake.New(""), "pdu-a": fake.New("3"), "pdu-b": fake.New("4"), "other": fake.New("")}
	c, err := config.Parse("hamgr.toml", fmt.Appendf(nil, twoFeeds, self), config.Kinds{Agents: agents.NewRegistry(fake.Kind(devices))})
	if err != nil {
		t.Fatal(err)
	}
	return newDirect(c, slog.New(slog.DiscardHandler)), devices
}

func unobserved(api.FenceEvent) {}

func letGo(t *testing.T, d *Direct) {
	t.Helper()
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func order(action string) api.FenceRequest {
	return api.FenceRequest{Node: "alpha", Action: action, By: "anna"}
}

// Nothing is powered on before every feed of a level was read off twice.
func TestDirectRebootGoesOnAfterProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, devices := directTo(t)
		defer letGo(t, d)
		devices["bmc"].Behave(fake.Behavior{Login: true})
		devices["pdu-b"].Behave(fake.Behavior{Lag: 3 * time.Second})
		devices["pdu-a"].OnPower = func(_ string, s agents.PowerState) {
			if s == agents.On { // a BMC answers when it has power
				devices["bmc"].Behave(fake.Behavior{})
			}
		}
		var texts []string
		r, err := d.Fence(t.Context(), order(api.ActionReboot), func(e api.FenceEvent) { texts = append(texts, e.Text+" "+e.Error) })
		if err != nil || r.Phase != api.PhaseDone || r.Action != api.ActionReboot || r.Op != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		for _, want := range []string{"level 2", "pdu-a 3: read Off twice", "pdu-b 4: read Off twice"} {
			if !strings.Contains(r.Proof, want) {
				t.Errorf("the proof %q does not say %q", r.Proof, want)
			}
		}
		var proven time.Time
		for _, name := range []string{"pdu-a", "pdu-b"} {
			reads := 0
			for _, c := range devices[name].Calls() {
				if c.Verb == "status" && c.State == agents.Off {
					if reads++; reads == 2 && c.At.After(proven) {
						proven = c.At
					}
				}
			}
			if reads < 2 {
				t.Errorf("%s was read off %d times", name, reads)
			}
		}
		for _, name := range []string{"pdu-a", "pdu-b"} {
			for _, c := range devices[name].Calls() {
				if c.Verb == "on" && c.At.Before(proven) {
					t.Errorf("%s was ordered on %s before the proof", name, proven.Sub(c.At))
				}
			}
			if p := devices[name].Power(devices[name].Calls()[1].Plug); p != agents.On {
				t.Errorf("%s is %s in the end", name, p)
			}
		}
		if said := strings.Join(texts, "\n"); !strings.Contains(said, "level 1 failed") || !strings.Contains(said, "alpha is proven off") || !strings.Contains(said, "pdu-a 3: on ordered") {
			t.Errorf("told: %s", said)
		}
	})
}

// A feed that stays on is no proof, and without proof nothing is powered on.
func TestDirectNeverPowersOnUnproven(t *testing.T) {
	for _, action := range []string{api.ActionOff, api.ActionReboot} {
		synctest.Test(t, func(t *testing.T) {
			d, devices := directTo(t)
			defer letGo(t, d)
			devices["bmc"].Behave(fake.Behavior{Status: "unknown"})
			devices["pdu-b"].Behave(fake.Behavior{Command: "ignore"})
			r, err := d.Fence(t.Context(), order(action), unobserved)
			if !errors.Is(err, api.ErrFailed) || r.Proof != "" || r.Phase != "" {
				t.Errorf("%s: %+v, %v", action, r, err)
			}
			for name, device := range devices {
				if slices.ContainsFunc(device.Calls(), func(c fake.Call) bool { return c.Verb == "on" }) {
					t.Errorf("%s: %s was ordered on", action, name)
				}
			}
		})
	}
}

// A reboot whose power-on fails has fenced the node all the same.
func TestDirectRebootThatStaysOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, devices := directTo(t)
		defer letGo(t, d)
		devices["bmc"].OnPower = func(string, agents.PowerState) { devices["bmc"].Behave(fake.Behavior{Command: "refuse"}) }
		r, err := d.Fence(t.Context(), order(api.ActionReboot), unobserved)
		if err != nil || r.Phase != api.PhaseProven || r.Proof == "" || r.Note == "" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// What a device says of itself decides nothing about how the end of time is told: a command may be out, or not.
func TestDirectEndsWithItsContext(t *testing.T) {
	for name, tt := range map[string]struct {
		bmc  fake.Behavior
		want api.Code
	}{
		"before a command": {fake.Behavior{Stall: []string{"status"}, Deaf: true}, api.ErrTimeout},
		"after a command":  {fake.Behavior{Command: "ignore"}, api.ErrUnknownOutcome},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, devices := directTo(t)
			devices["bmc"].Behave(tt.bmc)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			_, err := d.Fence(ctx, order(api.ActionReboot), unobserved)
			if api.CodeOf(err) != tt.want {
				t.Errorf("%s: %v, want %s", name, err, tt.want)
			}
			if took := time.Since(began); took > time.Second+50*time.Millisecond {
				t.Errorf("%s: returned after %s", name, took)
			}
			devices["bmc"].Release()
			letGo(t, d)
		})
	}
}

func TestDirectRefuses(t *testing.T) {
	d, devices := directTo(t)
	self, _ := hostName()
	for _, tt := range []struct {
		req  api.FenceRequest
		want api.Code
	}{
		{api.FenceRequest{Node: "nobody", Action: api.ActionOff}, api.ErrNotFound},
		{api.FenceRequest{Node: "quorum1", Action: api.ActionOff}, api.ErrUnsafe}, // has no device
		{api.FenceRequest{Node: self, Action: api.ActionOff}, api.ErrUnsafe},
		{api.FenceRequest{Node: self, Action: api.ActionReboot}, api.ErrUnsafe},
		{api.FenceRequest{Node: "alpha", Action: api.ActionRehearse, Level: 1}, api.ErrInvalid},
		{api.FenceRequest{Node: "alpha", Action: api.ActionConfirm}, api.ErrInvalid},
		{api.FenceRequest{Node: "alpha", Action: "cycle"}, api.ErrInvalid},
		{api.FenceRequest{}, api.ErrInvalid},
	} {
		if _, err := d.Fence(t.Context(), tt.req, unobserved); api.CodeOf(err) != tt.want {
			t.Errorf("%+v: %v, want %s", tt.req, err, tt.want)
		}
	}
	for name, device := range devices {
		if calls := device.Calls(); len(calls) > 0 {
			t.Errorf("%s was asked: %+v", name, calls)
		}
	}
	if _, err := d.Status(t.Context(), "nobody"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("status: %v", err)
	}
	if _, err := d.Test(t.Context(), "nobody"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("test: %v", err)
	}
	var problems config.Errors
	if _, err := OpenDirect(filepath.Join(t.TempDir(), "none.toml"), slog.New(slog.DiscardHandler)); !errors.As(err, &problems) {
		t.Errorf("no file: %v", err)
	}
}

// Readings change nothing, and tell what is wrong.
func TestDirectReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, devices := directTo(t)
		defer letGo(t, d)
		devices["pdu-a"].Behave(fake.Behavior{Login: true})
		devices["pdu-b"].Behave(fake.Behavior{Check: "privilege"})
		test, err := d.Test(t.Context(), "")
		if err != nil || len(test.Devices) != 4 {
			t.Fatalf("%+v, %v", test, err)
		}
		want := map[string]string{"bmc": "", "other": "", "pdu-a": "wrong credentials", "pdu-b": "wrong privilege"}
		for _, h := range test.Devices {
			if h.Trouble != want[h.Device] || h.OK != (want[h.Device] == "") || h.ReadBy != ReadDirectly || h.Node == "" {
				t.Errorf("%+v", h)
			}
		}
		devices["bmc"].SetPower("", agents.Off)
		st, err := d.Status(t.Context(), "alpha")
		if err != nil || len(st.Plugs) != 3 || st.Power != "on" || st.ReadBy != ReadDirectly { // an outlet still says on
			t.Errorf("%+v, %v", st, err)
		}
		if st, err := d.Status(t.Context(), "quorum1"); err != nil || len(st.Plugs) != 0 || st.Power != "unknown" {
			t.Errorf("%+v, %v", st, err)
		}
		for name, device := range devices {
			for _, c := range device.Calls() {
				if c.Verb == "off" || c.Verb == "on" {
					t.Errorf("%s was switched: %+v", name, c)
				}
			}
		}
	})
}

func TestShares(t *testing.T) {
	d, _ := directTo(t)
	all := Shares(d.config)
	if len(all) != 4 {
		t.Fatalf("%+v", all)
	}
	_, failovers := Timings(d.config)
	for _, s := range all {
		if s.Timeout <= 0 || s.Settle <= 0 || s.OfLevel < s.Timeout || s.Whole < s.OfLevel {
			t.Errorf("%+v", s)
		}
		for _, f := range failovers {
			if f.Node == s.Node && f.Fence != s.Whole {
				t.Errorf("%s: the failover counts with %s, the shares with %s", s.Node, f.Fence, s.Whole)
			}
		}
	}
	if s := all[2]; s.Node != "alpha" || s.Level != 2 || s.Device != "pdu-b" {
		t.Errorf("%+v", s)
	}
}
