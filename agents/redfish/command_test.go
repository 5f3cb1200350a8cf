package redfish

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// TestOffAgainstFaults: what Off returns, what became of the machine, and what a fresh read
// says are three things; only the last one counts, and it never says off of a running machine.
func TestOffAgainstFaults(t *testing.T) {
	t.Parallel()
	fault := func(f redfishsim.Fault) func(*redfishsim.BMC) {
		return func(b *redfishsim.BMC) { b.SetFault(redfishsim.AtReset, f) }
	}
	mode := func(change func(*redfishsim.Mode)) func(*redfishsim.BMC) {
		return func(b *redfishsim.BMC) { b.SetMode(change) }
	}
	type fate struct {
		err   error // of Off
		off   bool  // the machine, right after it
		state agents.PowerState
	}
	for name, c := range map[string]struct {
		set  func(*redfishsim.BMC)
		want fate
	}{
		"well behaved":              {nil, fate{nil, true, agents.Off}},
		"200 with a message":        {mode(func(m *redfishsim.Mode) { m.Answer = 200 }), fate{nil, true, agents.Off}},
		"202 with a task":           {mode(func(m *redfishsim.Mode) { m.Answer = 202 }), fate{nil, true, agents.Off}},
		"accepts and lies":          {mode(func(m *redfishsim.Mode) { m.Lie = true }), fate{nil, false, agents.On}},
		"202 and lies":              {mode(func(m *redfishsim.Mode) { m.Answer, m.Lie = 202, true }), fate{nil, false, agents.On}},
		"hesitates":                 {mode(func(m *redfishsim.Mode) { m.Hesitate = time.Hour }), fate{nil, false, agents.On}},
		"PoweringOff for long":      {mode(func(m *redfishsim.Mode) { m.PoweringOff = time.Hour }), fate{nil, false, agents.Unknown}},
		"refuses with 400":          {fault(redfishsim.Answer(400, "Base.1.8.ActionParameterNotSupported")), fate{ErrRefused, false, agents.On}},
		"refuses with 403":          {mode(func(m *redfishsim.Mode) { m.Role = redfishsim.RoleReadOnly }), fate{ErrPrivilege, false, agents.On}},
		"refuses with 409":          {fault(redfishsim.Answer(409, "Base.1.8.ResourceInUse")), fate{ErrConflict, false, agents.On}},
		"refuses with 500":          {fault(redfishsim.Answer(500, "Base.1.8.InternalError")), fate{ErrRefused, false, agents.On}},
		"500, but obeys":            {fault(redfishsim.Obeying(redfishsim.Answer(500, "Base.1.8.InternalError"))), fate{ErrRefused, true, agents.Off}},
		"HTML page with 200":        {fault(redfishsim.HTML()), fate{ErrNotRedfish, false, agents.On}},
		"HTML page, but obeys":      {fault(redfishsim.Obeying(redfishsim.HTML())), fate{ErrNotRedfish, true, agents.Off}},
		"breaks, but obeys":         {fault(redfishsim.Obeying(redfishsim.Break())), fate{ErrUnreachable, true, agents.Off}},
		"redirects the command":     {fault(redfishsim.Redirect(307, "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset")), fate{ErrNotRedfish, false, agents.On}},
		"redirects as a read":       {fault(redfishsim.Redirect(303, "/redfish/v1/")), fate{ErrNotRedfish, false, agents.On}},
		"busy for long":             {fault(redfishsim.RetryAfter("30")), fate{ErrBusy, false, agents.On}},
		"busy, by a date":           {fault(redfishsim.Times(2, redfishsim.RetryAfter("Wed, 21 Oct 2015 07:28:00 GMT"))), fate{nil, true, agents.Off}},
		"busy twice":                {fault(redfishsim.Times(2, redfishsim.RetryAfter("0"))), fate{nil, true, agents.Off}},
		"checks If-Match":           {mode(func(m *redfishsim.Mode) { m.ETag = redfishsim.ETagChecked }), fate{nil, true, agents.Off}},
		"wants If-Match, 428":       {mode(func(m *redfishsim.Mode) { m.ETag = redfishsim.ETagRequired }), fate{nil, true, agents.Off}},
		"wants If-Match, 412":       {mode(func(m *redfishsim.Mode) { m.ETag = redfishsim.ETagMissing }), fate{nil, true, agents.Off}},
		"412 whatever is sent":      {fault(redfishsim.Answer(412, "Base.1.8.PreconditionFailed")), fate{ErrRefused, false, agents.On}},
		"hangs up just then":        {fault(redfishsim.Times(1, redfishsim.HangUp())), fate{nil, true, agents.Off}},
		"hangs up always":           {fault(redfishsim.HangUp()), fate{ErrUnreachable, false, agents.On}},
		"closes each connection":    {mode(func(m *redfishsim.Mode) { m.CloseEach = true }), fate{nil, true, agents.Off}},
		"session ends just before":  {func(b *redfishsim.BMC) { b.DropSessions() }, fate{nil, true, agents.Off}},
		"BMC restarts just before":  {func(b *redfishsim.BMC) { b.Down(); b.Up() }, fate{nil, true, agents.Off}},
		"PowerState is not shown":   {mode(func(m *redfishsim.Mode) { m.NoPowerState = true }), fate{nil, true, agents.Unknown}},
		"ActionInfo cannot be read": {func(b *redfishsim.BMC) { b.SetFault(redfishsim.AtActionInfo, redfishsim.HTML()) }, fate{nil, true, agents.Off}},
	} {
		for _, auth := range []string{AuthBasic, AuthSession} {
			t.Run(name+", "+auth, func(t *testing.T) {
				t.Parallel()
				power := redfishsim.NewSwitch(true)
				bmc := startBMC(t, func(c *redfishsim.Config) { c.Power = power })
				o := options(bmc)
				o.Auth = auth
				a := open(t, o)
				ctx := within(t, 10*time.Second)
				if _, err := a.Status(ctx, ""); err != nil { // logged in, with a warm connection
					t.Fatal(err)
				}
				if c.set != nil {
					c.set(bmc)
				}
				err := a.Off(ctx, "")
				noSecret(t, err)
				off := !power.State()
				bmc.SetFault(redfishsim.AtReset, nil)
				r, readErr := a.Status(ctx, "")
				if readErr != nil {
					t.Fatalf("reading after it: %v", readErr)
				}
				if got := (fate{err, off, r.State}); !errors.Is(got.err, c.want.err) || (got.err == nil) != (c.want.err == nil) ||
					got.off != c.want.off || got.state != c.want.state {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
				if r.State == agents.Off && !off {
					t.Error("a running machine was read as off")
				}
				for _, body := range bmc.Resets() {
					if body != `{"ResetType":"ForceOff"}` {
						t.Errorf("sent %s", body)
					}
				}
			})
		}
	}
}

// TestWithoutEffect: off on a machine that is off, and on on one that is on, may be refused;
// the state read stays right.
func TestWithoutEffect(t *testing.T) {
	for _, on := range []bool{true, false} {
		bmc := startBMC(t, func(c *redfishsim.Config) {
			c.Power = redfishsim.NewSwitch(on)
			c.Mode = redfishsim.Mode{OffWhenOff: 409, OnWhenOn: 409}
		})
		a := open(t, options(bmc))
		ctx := within(t, 5*time.Second)
		command, want := a.Off, agents.Off
		if on {
			command, want = a.On, agents.On
		}
		if err := command(ctx, ""); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "409") {
			t.Errorf("error %v", err)
		}
		if r, err := a.Status(ctx, ""); err != nil || r.State != want {
			t.Errorf("read %v, %v", r, err)
		}
	}
}

// TestResetType: the value sent is one that is offered, and never one that is not an off.
// (gofish trap 6: the list may be empty, in ActionInfo only, or wrong.)
func TestResetType(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		allowable, actionInfo []string
		fault                 redfishsim.Fault // at the ActionInfo
		off, on               string           // what is sent; empty: refused
	}{
		"list":                    {allowable: []string{"On", "ForceOff", "PushPowerButton", "PowerCycle"}, off: "ForceOff", on: "On"},
		"button first":            {allowable: []string{"PushPowerButton", "On", "ForceOn", "ForceOff"}, off: "ForceOff", on: "On"},
		"ActionInfo only":         {actionInfo: []string{"GracefulShutdown", "ForceRestart", "ForceOff", "On"}, off: "ForceOff", on: "On"},
		"ForceOn only":            {allowable: []string{"ForceOn", "ForceOff"}, off: "ForceOff", on: "ForceOn"},
		"two values in one":       {allowable: []string{"On", "ForceOff", "GracefulShutdownGracefulRestart"}, off: "ForceOff", on: "On"},
		"list empty":              {allowable: []string{}, off: "ForceOff", on: "On"},
		"list lacks, info has it": {allowable: []string{"On"}, actionInfo: []string{"ForceOff"}, off: "ForceOff", on: "On"},
		"nothing said":            {off: "ForceOff", on: "On"},
		"info stalls":             {actionInfo: []string{"ForceOff", "On"}, fault: redfishsim.StallHeader(), off: "ForceOff", on: "On"},
		"info is a page":          {actionInfo: []string{"ForceOff", "On"}, fault: redfishsim.HTML(), off: "ForceOff", on: "On"},
		"no ForceOff":             {allowable: []string{"On", "PushPowerButton", "PowerCycle", "ForceRestart", "GracefulShutdown", "Off"}, on: "On"},
		"no ForceOff in info":     {actionInfo: []string{"On", "Off", "PowerCycle"}, on: "On"},
		"no ForceOff, info gone":  {allowable: []string{"On", "PowerCycle"}, actionInfo: []string{"x"}, fault: redfishsim.Answer(404, ""), on: "On"},
		"no On":                   {allowable: []string{"ForceOff", "PushPowerButton", "ForceRestart"}, off: "ForceOff"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bmc := startBMC(t, func(conf *redfishsim.Config) {
				conf.Systems = []redfishsim.System{{Allowable: c.allowable, ActionInfo: c.actionInfo}}
			})
			if c.fault != nil {
				bmc.SetFault(redfishsim.AtActionInfo, c.fault)
			}
			a := open(t, options(bmc))
			var want []string
			for _, step := range []struct {
				do   func() error
				sent string
				none error
			}{
				{func() error { return a.Off(within(t, 10*time.Second), "") }, c.off, ErrNoForceOff},
				{func() error { return a.On(within(t, 10*time.Second), "") }, c.on, ErrNoOn},
			} {
				err := step.do()
				if step.sent == "" {
					if !errors.Is(err, step.none) {
						t.Errorf("error %v, want %v", err, step.none)
					}
					continue
				}
				if err != nil {
					t.Error(err)
				}
				want = append(want, `{"ResetType":"`+step.sent+`"}`)
			}
			if got := bmc.Resets(); !slices.Equal(got, want) {
				t.Errorf("sent %v, want %v", got, want)
			}
		})
	}
}

// TestTarget: the command goes where the document says, if that is at this BMC.
func TestTarget(t *testing.T) {
	odd := "/redfish/v1/Systems/1/Actions/Oem/Odd.Reset"
	bmc := startBMC(t, func(c *redfishsim.Config) { c.Systems = []redfishsim.System{{Target: odd}} })
	if err := open(t, options(bmc)).Off(within(t, 5*time.Second), ""); err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(bmc.Requests(), func(r redfishsim.Request) bool { return r.Method == http.MethodPost && r.Path == odd }) {
		t.Errorf("requests %+v", bmc.Requests())
	}
	for _, evil := range []string{"https://127.0.0.9:1/reset", "//127.0.0.9:1/reset", "@127.0.0.9:1/reset", "reset", ":1/reset", "http:reset"} {
		bmc := startBMC(t, func(c *redfishsim.Config) { c.Systems = []redfishsim.System{{Target: evil}} })
		err := open(t, options(bmc)).Off(within(t, 5*time.Second), "")
		if err == nil {
			t.Errorf("the target %q was accepted", evil)
		}
		for _, r := range bmc.Requests() {
			if r.Method == http.MethodPost {
				t.Errorf("the target %q led to %s", evil, r.Path)
			}
		}
	}
}
