package exec

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/ipmi/ipmipeer"
)

// fence_ipmilan, unchanged, against OpenIPMI's simulator.
func TestIPMILAN(t *testing.T) {
	t.Parallel()
	needAgents(t)
	bmc := ipmipeer.Start(t, ipmipeer.Config{Password: `s$p;ab'c%!`})
	host, port, _ := net.SplitHostPort(bmc.Addr())
	o := Kind().Options().(*Options)
	o.Command = "fence_ipmilan"
	o.Options = map[string]string{"ip": host, "ipport": port, "username": bmc.Username, "lanplus": "1", "cipher": "3"}
	o.Secrets = map[string]agents.Secret{"password": agents.NewSecret(bmc.Password)}
	var logged bytes.Buffer
	h, err := o.Open(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 60*time.Second)
	reads := func(want agents.PowerState) {
		t.Helper()
		if r, err := h.Status(ctx, ""); err != nil || r.State != want || bmc.Power() != want {
			t.Errorf("%v %q, %v; it is %v, want %v", r.State, r.Detail, err, bmc.Power(), want)
		}
	}
	reads(agents.On)
	if err := h.(agents.Checker).Check(ctx, ""); err != nil {
		t.Error(err)
	}
	if err := h.Off(ctx, ""); err != nil {
		t.Error(err)
	}
	reads(agents.Off)
	if err := h.Off(ctx, ""); err != nil {
		t.Errorf("off while off: %v", err)
	}
	if err := h.On(ctx, ""); err != nil {
		t.Error(err)
	}
	reads(agents.On)
	if calls := strings.Join(bmc.Calls(), " "); calls != "off on" {
		t.Errorf("the BMC was told %s", calls)
	}

	// A plug would be ignored, and the machine behind the BMC shot in place of another.
	if miss := errWith(h.Off(ctx, "beta"), agents.ErrPlug, "would ignore the plug"); miss != "" {
		t.Error(miss)
	}
	// A BMC that accepts and ignores.
	bmc.SetMode(ipmipeer.Stuck)
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := h.Off(short, ""); err == nil || agents.Lasting(err) {
		t.Errorf("nothing was switched, and the agent says: %v", err)
	}
	reads(agents.On)
	bmc.SetMode(ipmipeer.Right)

	bmc.Freeze()
	defer bmc.Thaw()
	for range 3 {
		short, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		start := time.Now()
		r, err := h.Status(short, "")
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || r.State != agents.Unknown || took > time.Second {
			t.Errorf("%v, %v after %v", r, err, took)
		}
		cancel()
	}
	goneFrom(t, bmc.Addr())
	if strings.Contains(logged.String(), bmc.Password) {
		t.Errorf("the log shows the password: %s", &logged)
	}
}

// A wrong password: fence_ipmilan does not tell it from other failures, and the error shows none.
func TestIPMILANRefused(t *testing.T) {
	t.Parallel()
	needAgents(t)
	bmc := ipmipeer.Start(t, ipmipeer.Config{})
	host, port, _ := net.SplitHostPort(bmc.Addr())
	o := Kind().Options().(*Options)
	o.Command = "fence_ipmilan"
	o.Options = map[string]string{"ip": host, "ipport": port, "username": bmc.Username, "lanplus": "1", "cipher": "3", "ipmitool_timeout": "1"}
	o.Secrets = map[string]agents.Secret{"password": agents.NewSecret("hunter2-hunter2")}
	h := open(t, o)
	r, err := h.Status(within(t, 8*time.Second), "")
	if err == nil || r.State != agents.Unknown || agents.Lasting(err) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v, %v", r, err)
	}
	if err := h.Off(within(t, 8*time.Second), ""); err == nil || strings.Contains(err.Error(), "hunter2") || bmc.Power() != agents.On {
		t.Errorf("%v; the machine is %v", err, bmc.Power())
	}
	goneFrom(t, bmc.Addr())
}
