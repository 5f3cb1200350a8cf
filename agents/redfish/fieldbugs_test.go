package redfish

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// The tests of this file are named after cases from the field, as far as a Redfish BMC takes part
// in them. Times are scaled down.

// TestB03NeverAnswers: a BMC that takes the connection and stalls, at whatever point, costs the
// time that it was given, and says nothing about the power.
func TestB03NeverAnswers(t *testing.T) {
	t.Parallel()
	for name, stall := range map[string]func(*redfishsim.BMC){
		"after accept":         func(b *redfishsim.BMC) { b.SetMode(func(m *redfishsim.Mode) { m.Mute = true }) },
		"after TLS":            func(b *redfishsim.BMC) { b.SetFault(redfishsim.Anywhere, redfishsim.StallHeader()) },
		"in the system's body": func(b *redfishsim.BMC) { b.SetFault(redfishsim.AtSystem, redfishsim.StallBody(time.Millisecond)) },
		"each answer in 20 s":  func(b *redfishsim.BMC) { b.SetFault(redfishsim.Anywhere, redfishsim.Delay(20*time.Second)) },
		"SYN dropped": func(b *redfishsim.BMC) {
			if err := b.Silence(); err != nil {
				t.Error(err)
			}
		},
	} {
		for _, auth := range []string{AuthBasic, AuthSession} {
			t.Run(name+", "+auth, func(t *testing.T) {
				t.Parallel()
				power := redfishsim.NewSwitch(true)
				bmc := startBMC(t, func(c *redfishsim.Config) { c.Power = power })
				stall(bmc)
				o := options(bmc)
				o.Auth = auth
				h, err := o.Open(slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				const limit = 100 * time.Millisecond
				for verb, call := range map[string]func(context.Context) error{
					"off": func(ctx context.Context) error { return h.Off(ctx, "") },
					"status": func(ctx context.Context) error {
						r, err := h.Status(ctx, "")
						if r.State != agents.Unknown {
							t.Errorf("read %v of a BMC that said nothing", r)
						}
						return err
					},
				} {
					start := time.Now()
					err := call(within(t, limit))
					if took := time.Since(start); took > limit+slack {
						t.Errorf("%s took %v", verb, took)
					}
					if agents.TroubleOf(err) != agents.Unreachable || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: told as %q: %v", verb, agents.TroubleOf(err), err)
					}
				}
				h.Close(within(t, limit))
				if !power.State() {
					t.Error("it was switched off nevertheless")
				}
			})
		}
	}
}

// TestB03AnswerIsAHint: 500 on the reset with the power going off, and 200 with it staying on: the
// status of the command is told, and the state read decides.
func TestB03AnswerIsAHint(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*redfishsim.BMC)
		err  error
		want agents.PowerState
	}{
		"500, and goes off": {func(b *redfishsim.BMC) {
			b.SetFault(redfishsim.AtReset, redfishsim.Obeying(redfishsim.Answer(500, "Base.1.8.InternalError")))
		}, ErrRefused, agents.Off},
		"200, and stays on": {func(b *redfishsim.BMC) {
			b.SetMode(func(m *redfishsim.Mode) { m.Answer, m.Lie = 200, true })
		}, nil, agents.On},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := startBMC(t, nil)
			c.set(bmc)
			a := open(t, options(bmc))
			ctx := within(t, 5*time.Second)
			if err := a.Off(ctx, ""); !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("off: %v", err)
			}
			if r, err := a.Status(ctx, ""); err != nil || r.State != c.want {
				t.Errorf("read %v, %v", r, err)
			}
			if n := len(bmc.Resets()); n != 1 {
				t.Errorf("%d commands", n)
			}
		})
	}
}

// TestB04OffBeforeItIs: a BMC that answers 202, whose task is done at once and whose machine takes
// its time, is read as on, then unknown, then off; off never before the power is cut.
func TestB04OffBeforeItIs(t *testing.T) {
	power := redfishsim.NewSwitch(true)
	bmc := startBMC(t, func(c *redfishsim.Config) {
		c.Power = power
		c.Mode = redfishsim.Mode{Answer: 202, Hesitate: 60 * time.Millisecond, PoweringOff: 60 * time.Millisecond}
	})
	a := open(t, options(bmc))
	ctx := within(t, 10*time.Second)
	if err := a.Off(ctx, ""); err != nil {
		t.Fatal(err)
	}
	var seen []agents.PowerState
	for {
		r, err := a.Status(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		if len(seen) == 0 || seen[len(seen)-1] != r.State {
			seen = append(seen, r.State)
		}
		if r.State == agents.Off {
			break
		}
	}
	if power.State() {
		t.Error("read off while the power was on")
	}
	for i, s := range seen[:len(seen)-1] { // a slow machine may miss a state, never swap two
		if s == agents.On && i > 0 {
			t.Errorf("read %v", seen)
		}
	}
}

// TestB05PowerState: absent, null, transitional and unlisted values are unknown, whatever the machine
// does; a stale state is read afresh each time, so that the truth is seen as soon as the BMC shows it.
func TestB05PowerState(t *testing.T) {
	for _, on := range []bool{true, false} {
		bmc := startBMC(t, func(c *redfishsim.Config) { c.Power = redfishsim.NewSwitch(on) })
		a := open(t, options(bmc))
		ctx := within(t, 10*time.Second)
		for _, shown := range []string{"", "null", `"Unknown"`, `"Paused"`, `"PoweringOff"`, `"PoweringOn"`, `"off"`, `"OFF"`, `" Off"`,
			`"Off "`, `""`, "0", "false", "{}", `["Off"]`, `{"Off":"Off"}`} {
			bmc.SetMode(func(m *redfishsim.Mode) { m.PowerState, m.NoPowerState = shown, shown == "" })
			if r, err := a.Status(ctx, ""); r.State != agents.Unknown {
				t.Errorf("on %v, shown %s: read %v, %v", on, shown, r, err)
			}
		}
	}
	for _, command := range []agents.PowerState{agents.Off, agents.On} {
		bmc := startBMC(t, func(c *redfishsim.Config) {
			c.Power, c.Mode.Stale = redfishsim.NewSwitch(command == agents.Off), 80*time.Millisecond
		})
		a := open(t, options(bmc))
		ctx := within(t, 10*time.Second)
		do := map[agents.PowerState]func(context.Context, string) error{agents.Off: a.Off, agents.On: a.On}[command]
		if err := do(ctx, ""); err != nil {
			t.Fatal(err)
		}
		if r, err := a.Status(ctx, ""); err != nil || r.State == command {
			t.Errorf("%v, stale: read %v, %v; it is not passed on", command, r, err)
		}
		eventually(t, "the state is fresh", func() bool { r, err := a.Status(ctx, ""); return err == nil && r.State == command })
	}
}

// oddPasswords hold what shells, URLs, headers, JSON, YAML, TOML and printf trip over.
var oddPasswords = []string{
	"$HOME", "`id`", `"double"`, `'single'`, "#hash", "!bang", "semi;colon", `back\\slash\`, "100%s%n%00", " leading", "trailing ",
	"with blank", "caf\u00e9-\u6f22-\U0001f512", "col:on", "at@slash/?&=+", "<xml>&amp;", "{json: [1]}", "*", "~", "-rf", strings.Repeat("long-", 30),
}

// TestB07Passwords: each password is used byte by byte, with each way to log in, and is found in no
// error, no log, and neither on the command line nor in the environment of this process.
func TestB07Passwords(t *testing.T) {
	for _, password := range oddPasswords {
		for _, auth := range []string{AuthBasic, AuthSession} {
			t.Run(fmt.Sprintf("%.12q, %s", password, auth), func(t *testing.T) {
				bmc := startBMC(t, func(c *redfishsim.Config) { c.Password = password })
				var said bytes.Buffer
				log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
				try := func(p string) error {
					o := options(bmc)
					o.Auth, o.Password = auth, agents.NewSecret(p)
					h, err := o.Open(log)
					if err != nil {
						return err
					}
					defer h.Close(within(t, time.Second))
					fmt.Fprintf(&said, "%v %+v %#v %s %#v", o, o, o.Password, h, h)
					_, err = h.Status(within(t, 5*time.Second), "")
					return errors.Join(err, h.Off(within(t, 5*time.Second), ""))
				}
				if err := try(password); err != nil {
					t.Errorf("refused: %v", err)
				}
				for _, close := range []string{password + " ", strings.TrimSpace(password) + "x", "x" + password[1:]} {
					err := try(close)
					if !errors.Is(err, ErrCredentials) {
						t.Errorf("a password that is merely close: %v", err)
					}
					fmt.Fprintln(&said, err)
				}
				bmc.SetFault(redfishsim.AtSystem, redfishsim.Answer(500, "Base.1.8.InternalError"))
				fmt.Fprintln(&said, try(password))
				argv, _ := os.ReadFile("/proc/self/cmdline")
				env, _ := os.ReadFile("/proc/self/environ")
				said.Write(append(argv, env...))
				for _, form := range []string{password, base64.StdEncoding.EncodeToString([]byte(testUser + ":" + password))} {
					if len(form) > 4 && strings.Contains(said.String(), form) {
						t.Errorf("it was said: %q", form)
					}
				}
			})
		}
	}
}

// TestB08Slots: 500 rounds of a monitor that are cancelled at random moments leave a BMC of eight
// slots and half an hour of memory without a session, and the shot after them goes through.
func TestB08Slots(t *testing.T) {
	bmc := startBMC(t, func(c *redfishsim.Config) {
		c.Mode = redfishsim.Mode{SessionLimit: 8, SessionTimeout: 30 * time.Minute, NoBasic: true}
	})
	bmc.SetFault(redfishsim.Anywhere, redfishsim.Delay(300*time.Microsecond))
	o := options(bmc)
	o.Auth = AuthSession
	rng := rand.New(rand.NewPCG(1, 2))
	before, most := openFiles(t), 0
	for range 500 {
		h, err := o.Open(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(5000))*time.Microsecond)
		h.Status(ctx, "") // any outcome
		h.(agents.Checker).Check(ctx, "")
		cancel()
		most = max(most, bmc.OpenSessions())
		if err := h.Close(within(t, 5*time.Second)); err != nil {
			t.Errorf("closing: %v", err)
		}
		if n := connections(h); n != 0 {
			t.Fatalf("%d connections open after Close", n)
		}
	}
	if n := bmc.OpenSessions(); n != 0 || most > 1 || bmc.SessionsOpened() < 100 {
		t.Errorf("%d of %d sessions left, %d at once", n, bmc.SessionsOpened(), most)
	}
	eventually(t, "all sockets closed", func() bool { return openFiles(t) <= before })
	bmc.SetFault(redfishsim.Anywhere, nil)
	if err := open(t, o).Off(within(t, 5*time.Second), ""); err != nil {
		t.Error(err)
	}
}

// TestB08NoSlot: a login that finds no slot three times is repeated while there is time, and told as
// busy when there is none: by 503 or by 400, as BMCs do.
func TestB08NoSlot(t *testing.T) {
	t.Parallel()
	for _, status := range []int{503, 400} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			bmc := startBMC(t, func(c *redfishsim.Config) {
				c.Mode = redfishsim.Mode{SessionLimit: 1, LimitAnswer: status, NoBasic: true}
			})
			o := options(bmc)
			o.Auth = AuthSession
			bmc.SetFault(redfishsim.AtSessions, redfishsim.Times(3, redfishsim.Answer(status, "Base.1.8.SessionLimitExceeded")))
			a := open(t, o)
			if err := a.Off(within(t, 5*time.Second), ""); err != nil {
				t.Error(err)
			}
			_, err := open(t, o).Status(within(t, time.Second), "")
			if !errors.Is(err, ErrSessionLimit) || agents.TroubleOf(err) != agents.Busy {
				t.Errorf("told as %q: %v", agents.TroubleOf(err), err)
			}
		})
	}
}
