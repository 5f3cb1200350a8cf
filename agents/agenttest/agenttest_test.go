package agenttest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = `p"a$s w/o rd`

var identities = agents.Identity{UUID: "6ad39b6a-1b52-4f28-86fc-e66df7d737e3", Serial: "SN1"}

// honest is an agent that keeps the contract, on a device in memory. The broken ones below are
// made of it.
type honest struct {
	agents.Agent
	device *fake.Device
	log    *slog.Logger
}

func (h *honest) Identity(ctx context.Context, plug string) (agents.Identity, error) {
	_, err := h.Status(ctx, plug)
	return identities, err
}

func (h *honest) Check(ctx context.Context, plug string) error {
	_, err := h.Status(ctx, plug)
	return err
}

// gone is what an honest agent says of an address where nothing is, or where nothing answers.
type gone struct{ silent bool }

func (g gone) call(ctx context.Context) error {
	if g.silent {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return agents.ErrUnreachable
}

func (g gone) Status(ctx context.Context, _ string) (agents.Reading, error) {
	return agents.Reading{}, g.call(ctx)
}
func (g gone) Off(ctx context.Context, _ string) error { return g.call(ctx) }
func (g gone) On(ctx context.Context, _ string) error  { return g.call(ctx) }
func (gone) Close(context.Context) error               { return nil }

// agent is all that an agent can be.
type agent interface {
	agents.Agent
	agents.Identifier
	agents.Checker
}

// peerOf makes a device in memory, driven by what bend makes of an honest agent.
func peerOf(bend func(*honest) agent) *Peer {
	d := fake.New("1")
	d.Behave(fake.Behavior{Answer: 4 * time.Millisecond}) // timers are no finer than a millisecond
	open := func(change func(*fake.Behavior)) func(*slog.Logger) (agents.Agent, error) {
		return func(log *slog.Logger) (agents.Agent, error) {
			b := d.Behavior()
			change(&b)
			d.Behave(b)
			a, err := d.Open()
			if err != nil {
				return nil, err
			}
			return bend(&honest{a, d, log}), nil
		}
	}
	behave := func(change func(*fake.Behavior)) func() {
		return func() { b := d.Behavior(); change(&b); d.Behave(b) }
	}
	all := []string{"status", "off", "on", "close"}
	nobody := func(g gone) *Device {
		return &Device{Plug: "1", Open: func(log *slog.Logger) (agents.Agent, error) { return bend(&honest{g, d, log}), nil }}
	}
	right := open(func(b *fake.Behavior) { b.Login = false })
	return &Peer{
		Device: Device{Plug: "1", Open: right}, Secrets: []string{secret}, Identity: &identities,
		Power:    func() agents.PowerState { return d.Power("1") },
		SetPower: func(s agents.PowerState) { d.SetPower("1", s) },
		Commands: func() (n int) {
			for _, c := range d.Calls() {
				if (c.Verb == "off" || c.Verb == "on") && (c.Err == nil || errors.Is(c.Err, fake.ErrDevice)) {
					n++
				}
			}
			return n
		},
		Sessions:      func() int { return d.Handles() },
		WrongPassword: &Device{Plug: "1", Open: open(func(b *fake.Behavior) { b.Login = true })},
		Unreachable:   nobody(gone{}),
		Stalled:       nobody(gone{silent: true}),
		WrongPlug:     &Device{Plug: "2", Open: right},
		Stuck:         behave(func(b *fake.Behavior) { b.Command = "ignore" }),
		Fails:         behave(func(b *fake.Behavior) { b.Command = "error" }),
		Lag:           behave(func(b *fake.Behavior) { b.Lag = 50 * time.Millisecond }),
		Odd: map[string]func(){
			"unknown": behave(func(b *fake.Behavior) { b.Status = "unknown" }),
			"missing": behave(func(b *fake.Behavior) { b.Status = "missing" }),
		},
		Freeze: behave(func(b *fake.Behavior) { b.Stall = all }),
		Thaw:   func() { behave(func(b *fake.Behavior) { b.Stall = nil })(); d.Release() },
		Cannot: map[string]string{
			"Restart": "memory does not restart",
		},
		Patience: 300 * time.Millisecond, Operations: 80,
	}
}

// verdict tries one check on a peer, and returns its first complaint.
func verdict(t *testing.T, name string, p *Peer) string {
	for _, c := range checks {
		if c.name == name {
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() { defer close(done); defer r.cleanUp(); c.try(r, p) }()
			<-done
			return r.first
		}
	}
	t.Fatalf("there is no check %q", name)
	return ""
}

// recorder is a test that may fail without failing the test around it.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	first    string
	cleanups []func()
}

func (r *recorder) Helper() {}
func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}
func (r *recorder) cleanUp() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}
func (r *recorder) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == "" {
		r.first = text
	}
}
func (r *recorder) Error(args ...any)                 { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.fail(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// TestHonest: an agent that keeps the contract passes.
func TestHonest(t *testing.T) {
	Run(t, func(testing.TB) *Peer { return peerOf(func(h *honest) agent { return h }) })
}

// TestComplete: what a peer lacks needs a reason.
func TestComplete(t *testing.T) {
	for name, spoil := range map[string]func(*Peer){
		"no reason":       func(p *Peer) { p.Stuck = nil },
		"empty reason":    func(p *Peer) { p.Cannot["Restart"] = "" },
		"unknown word":    func(p *Peer) { p.Cannot["Restrat"] = "a reason" },
		"both":            func(p *Peer) { p.Cannot["Stuck"] = "a reason" },
		"nothing missing": func(*Peer) {},
		"no power":        func(p *Peer) { p.Power = nil },
		"no count":        func(p *Peer) { p.Commands, p.Cannot["Commands"] = nil, "a reason" },
		"is off at once":  func(p *Peer) { p.SetPower(agents.Off) },
	} {
		p := peerOf(func(h *honest) agent { return h })
		spoil(p)
		r := &recorder{TB: t}
		p.complete(r)
		if complains, want := r.first != "", name != "nothing missing"; complains != want {
			t.Errorf("%s: %q", name, r.first)
		}
	}
}
