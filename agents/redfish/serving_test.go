package redfish

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// TestServing: however a BMC serves, the same off is done and read back.
func TestServing(t *testing.T) {
	for name, mode := range map[string]redfishsim.Mode{
		"HTTP/1.0":             {HTTP10: true},
		"closes each":          {CloseEach: true},
		"clock 25 years slow":  {Clock: -25 * 365 * 24 * time.Hour},
		"clock 25 years fast":  {Clock: 25 * 365 * 24 * time.Hour},
		"task by its name":     {Answer: 202, Location: redfishsim.Relative},
		"task at another host": {Answer: 202, Location: redfishsim.Absolute},
		"task in the body":     {Answer: 202, Location: redfishsim.BodyOnly},
		"task without a name":  {Answer: 202, Location: redfishsim.NoneAtAll},
		"pages, in any order":  {PageSize: 1, Shuffle: true},
		"all of it": {HTTP10: true, Clock: time.Hour, Answer: 202, Location: redfishsim.BodyOnly, ETag: redfishsim.ETagRequired,
			OffWhenOff: 409, OnWhenOn: 409, PageSize: 1},
	} {
		for _, auth := range []string{AuthBasic, AuthSession} {
			t.Run(name+", "+auth, func(t *testing.T) {
				power := redfishsim.NewSwitch(true)
				bmc := startBMC(t, func(c *redfishsim.Config) {
					c.Mode = mode
					c.Systems = []redfishsim.System{{ID: "1", Power: power}, {ID: "Tray", NotHost: true}}
				})
				o := options(bmc)
				o.Auth = auth
				h, err := o.Open(nil)
				if err != nil {
					t.Fatal(err)
				}
				ctx := within(t, 10*time.Second)
				if err := h.Off(ctx, ""); err != nil {
					t.Error(err)
				}
				if r, err := h.Status(ctx, ""); err != nil || r.State != agents.Off || power.State() {
					t.Errorf("read %v, %v", r, err)
				}
				err = h.Close(ctx)
				if mode.Location != redfishsim.NoneAtAll && (err != nil || bmc.OpenSessions() != 0) {
					t.Errorf("closing: %v, %d sessions left", err, bmc.OpenSessions())
				}
			})
		}
	}
}

// TestTrouble: what is wrong with a BMC is told in the words that all agents share.
func TestTrouble(t *testing.T) {
	status := func(a *agent, c context.Context) error { _, err := a.Status(c, ""); return err }
	off := func(a *agent, c context.Context) error { return a.Off(c, "") }
	fault := func(where redfishsim.Where, f redfishsim.Fault) func(*redfishsim.BMC, *Options) {
		return func(b *redfishsim.BMC, _ *Options) { b.SetFault(where, f) }
	}
	mode := func(change func(*redfishsim.Mode)) func(*redfishsim.BMC, *Options) {
		return func(b *redfishsim.BMC, _ *Options) { b.SetMode(change) }
	}
	for name, c := range map[string]struct {
		set  func(*redfishsim.BMC, *Options)
		call func(*agent, context.Context) error
		is   error
		want agents.Trouble
	}{
		"without power":       {func(b *redfishsim.BMC, _ *Options) { b.Down() }, status, ErrUnreachable, agents.Unreachable},
		"another certificate": {func(b *redfishsim.BMC, _ *Options) { b.SetCertificate(redfishsim.SelfSigned) }, status, ErrCertificate, agents.Untrusted},
		"wrong password":      {func(_ *redfishsim.BMC, o *Options) { o.Password = agents.NewSecret("x") }, status, ErrCredentials, agents.Credentials},
		"login, 403":          {fault(redfishsim.AtSessions, redfishsim.Answer(403, "Base.1.8.InsufficientPrivilege")), status, ErrCredentials, agents.Credentials},
		"login, 400":          {fault(redfishsim.AtSessions, redfishsim.Answer(400, "")), status, ErrCredentials, agents.Credentials},
		"login wants basic":   {mode(func(m *redfishsim.Mode) { m.LoginByBasic = true }), status, ErrCredentials, agents.Credentials},
		"password too old":    {mode(func(m *redfishsim.Mode) { m.MustChangePassword = true }), status, ErrPasswordChange, agents.Credentials},
		"may not reset":       {mode(func(m *redfishsim.Mode) { m.Role = redfishsim.RoleReadOnly }), off, ErrPrivilege, agents.Privilege},
		"slots taken":         {func(b *redfishsim.BMC, _ *Options) { b.FillSessions(8) }, status, ErrSessionLimit, agents.Busy},
		"busy":                {fault(redfishsim.AtSystem, redfishsim.RetryAfter("30")), status, ErrBusy, agents.Busy},
		"busy, at the root":   {fault(redfishsim.AtRoot, redfishsim.RetryAfter("30")), status, ErrBusy, agents.Busy},
		"being updated":       {fault(redfishsim.AtReset, redfishsim.Answer(409, "Base.1.8.ResourceInUse")), off, ErrConflict, agents.Busy},
		"a web page":          {fault(redfishsim.Anywhere, redfishsim.HTML()), status, ErrNotRedfish, agents.Protocol},
		"no Redfish":          {fault(redfishsim.Anywhere, redfishsim.Answer(404, "")), status, ErrNotRedfish, agents.Protocol},
		"no such system":      {func(_ *redfishsim.BMC, o *Options) { o.System = "7" }, status, ErrSystem, agents.WrongPlug},
		"unknown error":       {fault(redfishsim.AtSystem, redfishsim.Answer(500, "")), status, ErrRefused, agents.Other},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := startBMC(t, nil)
			o := options(bmc)
			o.Auth = AuthSession
			c.set(bmc, o)
			err := c.call(open(t, o), within(t, 500*time.Millisecond))
			if got := agents.TroubleOf(err); got != c.want || !errors.Is(err, c.is) {
				t.Errorf("%q, want %q: %v", got, c.want, err)
			}
			noSecret(t, err)
		})
	}
}

// TestLoginByBasic: a BMC that wants basic authentication for its login needs none: basic is the default.
func TestLoginByBasic(t *testing.T) {
	bmc := startBMC(t, func(c *redfishsim.Config) {
		c.Mode = redfishsim.Mode{LoginByBasic: true, Location: redfishsim.NoneAtAll}
	})
	if err := open(t, options(bmc)).Off(within(t, 5*time.Second), ""); err != nil {
		t.Error(err)
	}
}

// TestSessionTimesOut: a session that the BMC ended meanwhile is replaced, and not left behind.
func TestSessionTimesOut(t *testing.T) {
	bmc := startBMC(t, func(c *redfishsim.Config) { c.Mode.SessionTimeout = 20 * time.Millisecond })
	o := options(bmc)
	o.Auth = AuthSession
	h, err := o.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if r, err := h.Status(within(t, 5*time.Second), ""); err != nil || r.State != agents.On {
			t.Errorf("read %v, %v", r, err)
		}
		eventually(t, "the session times out", func() bool { return bmc.OpenSessions() == 0 })
	}
	if err := h.Close(within(t, 5*time.Second)); err != nil || bmc.OpenSessions() != 0 {
		t.Errorf("closing: %v", err)
	}
	if n := bmc.SessionsOpened(); n != 3 {
		t.Errorf("%d sessions for three reads", n)
	}
}

// TestStaysOff: a machine that was switched off stays so while its BMC restarts (restoring power is
// for cuts of the feed), and the BMC that comes back says so.
func TestStaysOff(t *testing.T) {
	power := redfishsim.NewSwitch(true)
	bmc := startBMC(t, func(c *redfishsim.Config) { c.Power = power })
	a := open(t, options(bmc))
	ctx := within(t, 10*time.Second)
	if err := a.Off(ctx, ""); err != nil {
		t.Fatal(err)
	}
	if err := bmc.Reboot(ctx, 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if r, err := a.Status(ctx, ""); err != nil || r.State != agents.Off || power.State() {
		t.Errorf("read %v, %v", r, err)
	}
}

// TestTaskIsNotRead: of a task nothing is believed, so it is not even asked for.
func TestTaskIsNotRead(t *testing.T) {
	bmc := startBMC(t, func(c *redfishsim.Config) { c.Mode.Answer = http.StatusAccepted })
	bmc.SetFault(redfishsim.AtTask, redfishsim.StallHeader())
	if err := open(t, options(bmc)).Off(within(t, 5*time.Second), ""); err != nil {
		t.Error(err)
	}
}
