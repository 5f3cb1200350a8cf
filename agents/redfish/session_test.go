package redfish

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// TestBasicTakesNoSlot: the default leaves a BMC's sessions alone.
func TestBasicTakesNoSlot(t *testing.T) {
	bmc := startBMC(t, func(c *redfishsim.Config) { c.Mode.SessionLimit = 1 })
	bmc.FillSessions(1)
	a := open(t, options(bmc))
	if err := a.Off(within(t, 5*time.Second), ""); err != nil {
		t.Error(err)
	}
	if n := bmc.SessionsOpened(); n != 1 {
		t.Errorf("%d sessions opened", n-1)
	}
}

// TestLogout: the session ends with the handle, however the BMC named it.
// (gofish trap 3: Logout swallows errors; without a Location the session leaks.)
func TestLogout(t *testing.T) {
	for name, c := range map[string]struct {
		location redfishsim.Location
		left     int
	}{
		"relative":            {redfishsim.Relative, 0},
		"with another host":   {redfishsim.Absolute, 0},
		"only in the body":    {redfishsim.BodyOnly, 0},
		"not named: reported": {redfishsim.NoneAtAll, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := startBMC(t, func(conf *redfishsim.Config) { conf.Mode = redfishsim.Mode{Location: c.location, NoBasic: true} })
			o := options(bmc)
			o.Auth = AuthSession
			h, err := o.Open(slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.Status(within(t, 5*time.Second), ""); err != nil {
				t.Error(err)
			}
			if n := bmc.OpenSessions(); n != 1 {
				t.Errorf("%d sessions open", n)
			}
			err = h.Close(within(t, 5*time.Second))
			if (err != nil) != (c.left > 0) {
				t.Errorf("closing: %v", err)
			}
			if n := bmc.OpenSessions(); n != c.left {
				t.Errorf("%d sessions left", n)
			}
			if _, err := h.Status(within(t, time.Second), ""); !errors.Is(err, ErrClosed) {
				t.Errorf("a closed handle says %v", err)
			}
		})
	}
}

// TestLogoutTells: a logout that fails is an error, and takes no longer than it may.
func TestLogoutTells(t *testing.T) {
	for name, fault := range map[string]redfishsim.Fault{
		"refused": redfishsim.Answer(500, "Base.1.8.InternalError"),
		"stalls":  redfishsim.StallHeader(),
	} {
		t.Run(name, func(t *testing.T) {
			bmc := startBMC(t, nil)
			o := options(bmc)
			o.Auth = AuthSession
			h, err := o.Open(slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.Status(within(t, 5*time.Second), ""); err != nil {
				t.Fatal(err)
			}
			bmc.SetFault(redfishsim.AtSessions, fault)
			start := time.Now()
			if err := h.Close(within(t, 100*time.Millisecond)); err == nil {
				t.Error("the failed logout was swallowed")
			}
			if took := time.Since(start); took > 100*time.Millisecond+slack {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestSessionLimit: full slots are told apart from a wrong password, waited for a while, and
// taken when one comes free (B08).
func TestSessionLimit(t *testing.T) {
	t.Parallel()
	bmc := startBMC(t, func(c *redfishsim.Config) { c.Mode.SessionLimit = 4 })
	bmc.FillSessions(4)
	o := options(bmc)
	o.Auth = AuthSession
	a := open(t, o)
	if _, err := a.Status(within(t, time.Second), ""); !errors.Is(err, ErrSessionLimit) {
		t.Errorf("error %v", err)
	}
	bmc.SetFault(redfishsim.AtSessions, redfishsim.Times(3, redfishsim.Answer(400, "Base.1.8.SessionLimitExceeded")))
	bmc.DropSessions()
	if r, err := a.Status(within(t, 10*time.Second), ""); err != nil || r.State != agents.On {
		t.Errorf("read %v, %v", r, err)
	}
}

// TestSessionRenewed: a session that died (timeout, restart of the BMC) is replaced, once.
func TestSessionRenewed(t *testing.T) {
	bmc := startBMC(t, nil)
	o := options(bmc)
	o.Auth = AuthSession
	a := open(t, o)
	ctx := within(t, 5*time.Second)
	for range 3 {
		if _, err := a.Status(ctx, ""); err != nil {
			t.Fatal(err)
		}
		bmc.DropSessions()
	}
	bmc.SetFault(redfishsim.AtSystem, redfishsim.Answer(401, "Base.1.8.NoValidSession"))
	before := bmc.SessionsOpened()
	if _, err := a.Status(ctx, ""); !errors.Is(err, ErrCredentials) {
		t.Errorf("error %v", err)
	}
	if n := bmc.SessionsOpened() - before; n > 2 {
		t.Errorf("%d logins for one request", n)
	}
}

// TestReboot: while the BMC restarts it is unreachable, busy, or talks nonsense; nothing of it
// is off, and the same handle finds the machine again afterwards.
func TestReboot(t *testing.T) {
	for _, auth := range []string{AuthBasic, AuthSession} {
		bmc := startBMC(t, nil)
		o := options(bmc)
		o.Auth = auth
		a := open(t, o)
		ctx := within(t, 10*time.Second)
		if _, err := a.Status(ctx, ""); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- bmc.Reboot(ctx, 60*time.Millisecond) }()
		failed := 0
		for running := true; running; {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				running = false
			default:
				short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				r, err := a.Status(short, "")
				cancel()
				if err != nil {
					failed++
				}
				if r.State == agents.Off || err != nil && r.State != agents.Unknown {
					t.Errorf("read %v, %v", r, err)
				}
			}
		}
		if failed == 0 {
			t.Error("the restart went unnoticed")
		}
		if r, err := a.Status(ctx, ""); err != nil || r.State != agents.On {
			t.Errorf("after it: %v, %v", r, err)
		}
	}
}

// TestWrongPassword: the first call says so. (gofish trap 5: with basic authentication it
// shows at the first read only.) BMCs answer a login with 400, 401 or 403.
func TestWrongPassword(t *testing.T) {
	for _, auth := range []string{AuthBasic, AuthSession} {
		bmc := startBMC(t, nil)
		o := options(bmc)
		o.Auth, o.Password = auth, agents.NewSecret("wrong-but-secret")
		for _, fault := range []redfishsim.Fault{nil, redfishsim.Answer(400, "Base.1.8.GeneralError"), redfishsim.Answer(403, "")} {
			bmc.SetFault(redfishsim.AtSessions, fault)
			_, err := open(t, o).Status(within(t, 5*time.Second), "")
			if !errors.Is(err, ErrCredentials) {
				t.Errorf("%s: error %v", auth, err)
			}
			noSecret(t, err)
		}
	}
}

// TestEchoedPassword: a BMC that quotes the request in its refusal puts no secret into our error (B07).
func TestEchoedPassword(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain; "+testPassword)
		w.WriteHeader(map[bool]int{true: http.StatusOK, false: http.StatusBadRequest}[r.Method == http.MethodGet])
		w.Write(append(body, testPassword+" "+r.Header.Get("Authorization")...))
	}
	for _, auth := range []string{AuthBasic, AuthSession} {
		for _, where := range []redfishsim.Where{redfishsim.AtRoot, redfishsim.AtSessions, redfishsim.AtSystem, redfishsim.AtReset} {
			bmc := startBMC(t, nil)
			bmc.SetFault(where, echo)
			o := options(bmc)
			o.Auth = auth
			err := open(t, o).Off(within(t, 5*time.Second), "")
			if err == nil && !(auth == AuthBasic && where == redfishsim.AtSessions) {
				t.Error("no error")
			}
			noSecret(t, err)
		}
	}
}

// slack is what a call may take beyond the end of its context, when many tests run side by side. That
// the agent keeps 50 ms, TestContract shows.
const slack = time.Second

// TestObeysContext: wherever a BMC stalls, every call ends with its context.
// (gofish trap 2: no timeout by default, and the context belongs to the client.)
func TestObeysContext(t *testing.T) {
	t.Parallel()
	places := map[string]func(*redfishsim.BMC){
		"before TLS": func(b *redfishsim.BMC) { b.SetMode(func(m *redfishsim.Mode) { m.Mute = true }) },
	}
	for name, where := range map[string]redfishsim.Where{
		"root": redfishsim.AtRoot, "login": redfishsim.AtSessions, "members": redfishsim.AtSystems,
		"system": redfishsim.AtSystem, "reset": redfishsim.AtReset,
	} {
		places[name+", no header"] = func(b *redfishsim.BMC) { b.SetFault(where, redfishsim.StallHeader()) }
		places[name+", no end"] = func(b *redfishsim.BMC) { b.SetFault(where, redfishsim.StallBody(5*time.Millisecond)) }
		places[name+", busy"] = func(b *redfishsim.BMC) { b.SetFault(where, redfishsim.RetryAfter("0")) }
	}
	for name, set := range places {
		for _, auth := range []string{AuthBasic, AuthSession} {
			t.Run(name+", "+auth, func(t *testing.T) {
				t.Parallel()
				bmc := startBMC(t, nil)
				set(bmc)
				o := options(bmc)
				o.Auth = auth
				h, err := o.Open(slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				const limit = 60 * time.Millisecond
				for what, call := range map[string]func(context.Context) error{
					"status":   func(ctx context.Context) error { _, err := h.Status(ctx, ""); return err },
					"off":      func(ctx context.Context) error { return h.Off(ctx, "") },
					"on":       func(ctx context.Context) error { return h.On(ctx, "") },
					"identity": func(ctx context.Context) error { _, err := h.(agents.Identifier).Identity(ctx, ""); return err },
				} {
					start := time.Now()
					err := call(within(t, limit))
					if took := time.Since(start); took > limit+slack {
						t.Errorf("%s took %v, and said %v", what, took, err)
					}
					noSecret(t, err)
				}
				start := time.Now()
				h.Close(within(t, limit)) // a stalled BMC may keep its session; that is reported, not waited for
				if took := time.Since(start); took > limit+slack {
					t.Errorf("close took %v", took)
				}
			})
		}
	}
}

// TestEndedContext: with a context that has ended, nothing is sent.
func TestEndedContext(t *testing.T) {
	bmc := startBMC(t, nil)
	a := open(t, options(bmc))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := a.Off(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if len(bmc.Resets()) > 0 {
		t.Error("the command was sent")
	}
}

func connections(h agents.Agent) int {
	n := h.(*agent).network
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
