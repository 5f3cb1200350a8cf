package resourcetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// honest is a resource that keeps the contract, on a host in memory. The broken ones are made of it.
type honest struct {
	resources.Resource
	m   *machine
	env resources.Env
}

// machine is the host, and what is wrong with it.
type machine struct {
	world   *fake.World
	mu      sync.Mutex
	trouble error
}

func (m *machine) set(trouble error) Fault {
	set := func(err error) func() {
		return func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.trouble = err
		}
	}
	return Fault{set(trouble), set(nil)}
}

// mode sets how an operation goes, until the fault is over.
func (m *machine) mode(op string, mode fake.Mode) Fault {
	set := func(mode fake.Mode) func() { return func() { m.world.Set("alpha", "db", "app", op, mode) } }
	return Fault{set(mode), set(fake.Works)}
}

// active gives each copy a name by its token and the time of its start.
func (m *machine) active() (names []string) {
	for _, h := range m.world.Active() {
		names = append(names, fmt.Sprintf("%s since %d", h, h.Since.UnixNano()))
	}
	return names
}

// resource makes another resource on the same host.
func (m *machine) resource(env resources.Env) resources.Resource {
	o := fake.Kind(m.world, "alpha").Options().(*fake.Options)
	o.StartDelay, o.StopDelay = 3*time.Millisecond, 3*time.Millisecond // timers are no finer than a millisecond
	r, err := o.New(env)
	if err != nil {
		panic(err)
	}
	return r
}

func (h *honest) Start(ctx context.Context) error {
	if err := h.Check(ctx); err != nil {
		return err
	}
	return h.Resource.Start(ctx)
}

func (h *honest) Check(ctx context.Context) error {
	if _, _, err := h.Resource.Probe(ctx); ctx.Err() != nil { // it waits while the host hangs
		return err
	}
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	return h.m.trouble
}

func (h *honest) Died(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return h.Resource.(resources.Watcher).Died(ctx)
}

// all is what a resource can be.
type all interface {
	resources.Resource
	resources.Checker
	resources.Watcher
}

// subjectOf is a host in memory, with what bend makes of an honest resource.
func subjectOf(patience time.Duration, bend func(*honest) all) Subject {
	return Subject{Kind: goodKind(), Host: func(testing.TB) *Host {
		w := fake.NewWorld()
		m := &machine{world: w}
		return &Host{
			New: func(env resources.Env) (resources.Resource, error) {
				return bend(&honest{m.resource(env), m, env}), nil
			},
			Active:  m.active,
			Picture: func() string { return fmt.Sprint(w.Events()) },
			Kill: func() {
				for _, h := range w.Active() {
					w.Kill(h.Host, h.Group, h.Resource)
				}
			},
			Troubles: map[string]Trouble{
				"node":      {Fault: m.set(fmt.Errorf("no disk: %w", resources.ErrNode)), Is: resources.ErrNode},
				"setup":     {Fault: m.set(fmt.Errorf("bad: %w", resources.ErrSetup)), Is: resources.ErrSetup},
				"elsewhere": {Fault: m.set(fmt.Errorf("taken: %w", resources.ErrElsewhere)), Is: resources.ErrElsewhere},
				"any":       {Fault: m.mode("start", fake.Fails), Late: true},
			},
			Hangs: map[string]Hang{
				"host":  {Fault: Fault{func() { w.Freeze("alpha") }, func() { w.Thaw("alpha") }}},
				"start": {m.mode("start", fake.Hangs), []string{"start"}},
				"stop":  {m.mode("stop", fake.Hangs), []string{"stop"}},
			},
			Blind:    map[string]Fault{"probe": m.mode("probe", fake.Fails)},
			Stuck:    map[string]Fault{"stop": m.mode("stop", fake.Fails)},
			Patience: patience,
		}
	}}
}

type options struct {
	Path  string            `toml:"path" doc:"a path"`
	Wait  time.Duration     `toml:"wait" doc:"a time; default 1s"`
	Names map[string]string `toml:"names" doc:"names"`
}

func (o *options) Validate() error {
	if o.Path == "" {
		return &resources.KeyError{Key: "path", Msg: "no path"}
	}
	return nil
}

func (o *options) Exclusive() (key, what string) { return "path", o.Path }

func (o *options) New(resources.Env) (resources.Resource, error) {
	return nil, errors.New("not in this test")
}

func goodKind() resources.Kind {
	return resources.Kind{
		Name: "good", Doc: "a kind for tests", Options: func() resources.Options { return &options{Wait: time.Second} },
		Example: `[[group.resource]]
name = "one"
kind = "good"
path = "/srv"
wait = "3s"
names = { a = "b" }
`,
	}
}

// verdict tries one check, and returns its first complaint.
func verdict(t *testing.T, name string, sub Subject) string {
	for _, c := range slices.Concat(kindChecks, hostChecks) {
		if c.name == name {
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() { defer close(done); defer r.cleanUp(); c.try(r, sub) }()
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

func (r *recorder) Helper()    {}
func (r *recorder) Log(...any) {}
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

// TestHonest: a resource that keeps the contract passes.
func TestHonest(t *testing.T) {
	Run(t, subjectOf(10*time.Second, func(h *honest) all { return h }))
}

// TestComplete: what a host lacks needs a reason.
func TestComplete(t *testing.T) {
	for name, spoil := range map[string]func(*Host){
		"no reason":       func(h *Host) { h.Kill = nil },
		"empty reason":    func(h *Host) { h.Kill, h.Cannot = nil, map[string]string{"Kill": ""} },
		"empty map":       func(h *Host) { h.Stuck = map[string]Fault{} },
		"unknown word":    func(h *Host) { h.Cannot = map[string]string{"Kil": "a reason"} },
		"both":            func(h *Host) { h.Cannot = map[string]string{"Kill": "a reason"} },
		"nothing missing": func(*Host) {},
		"no judge":        func(h *Host) { h.Active, h.Cannot = nil, map[string]string{"Active": "a reason"} },
		"active at once":  func(h *Host) { h.Active = func() []string { return []string{"it"} } },
	} {
		h := subjectOf(0, func(h *honest) all { return h }).Host(t)
		spoil(h)
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() { defer close(done); h.complete(r) }()
		<-done
		if complains, want := r.first != "", name != "nothing missing"; complains != want {
			t.Errorf("%s: %q", name, r.first)
		}
	}
}
