package command

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/bus"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// fakeSystemd is a systemd that does as a test says. Without start it never carries a job out.
type fakeSystemd struct {
	refuse error // of connections
	start  func(u bus.Transient) error
	asked  bus.Transient
	active bool
	job    bool // one is queued for the unit
	pid    int
	stops  int

	asking func() // called when a job is asked for that is never carried out
	open   atomic.Int32
}

func (f *fakeSystemd) dial(context.Context) (manager, error) {
	if f.refuse != nil {
		return nil, f.refuse
	}
	f.open.Add(1)
	return f, nil
}

func (f *fakeSystemd) Close()                                    { f.open.Add(-1) }
func (f *fakeSystemd) Lost() <-chan struct{}                     { return nil }
func (f *fakeSystemd) ResetFailed(context.Context, string) error { return nil }

func (f *fakeSystemd) Unit(context.Context, string) (bus.Properties, error) {
	p := bus.Properties{"ActiveState": "inactive"}
	if f.active {
		p["ActiveState"] = "active"
	}
	if f.job {
		p["Job"] = []any{uint32(7), "/job/7"}
	}
	return p, nil
}

func (f *fakeSystemd) Service(context.Context, string) (bus.Properties, error) {
	return bus.Properties{"MainPID": uint32(f.pid)}, nil
}

func (f *fakeSystemd) Enqueue(_ context.Context, verb, _ string) (uint32, <-chan string, error) {
	if verb == "StopUnit" {
		f.stops++
		f.active, f.job = false, false
	}
	done := make(chan string, 1)
	done <- "done"
	return 7, done, nil
}

func (f *fakeSystemd) StartTransient(ctx context.Context, u bus.Transient) (uint32, <-chan string, error) {
	f.asked = u
	if f.start == nil {
		f.job = true
		f.asking()
		<-ctx.Done()
		return 0, nil, ctx.Err()
	}
	if err := f.start(u); err != nil {
		return 0, nil, err
	}
	f.active = true
	done := make(chan string, 1)
	done <- "done"
	return 7, done, nil
}

// sleeps starts a process as systemd would: with the environment of the file, and none of the session's marks.
func (f *fakeSystemd) sleeps(t *testing.T, env ...string) func(bus.Transient) error {
	return func(u bus.Transient) error {
		if _, err := os.ReadFile(u.EnvironmentFile); err != nil {
			return err
		}
		cmd := exec.Command("sleep", "60")
		cmd.Env = env
		if err := cmd.Start(); err != nil {
			return err
		}
		f.pid = cmd.Process.Pid
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return nil
	}
}

func permits(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, permitPattern))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A request that systemd reads when nobody waits for it any more has lost its permission; and until systemd has said that it
// does not carry it out just now, the resource is not inactive.
func TestLateRequest(t *testing.T) {
	dir := t.TempDir()
	c := tracked(t, dir, 1, "sleep", "60")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &fakeSystemd{asking: cancel}
	c.managed, c.dial = func() bool { return true }, f.dial
	if err := c.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("start: %v", err)
	}
	state, _, err := c.Probe(t.Context()) // waits for what is left of the start
	if state != resources.Failed || err != nil {
		t.Errorf("while a job is queued: %s %v", state, err)
	}
	if err := f.sleeps(t)(f.asked); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the permission is still there: %v", err)
	}
	f.refuse = errors.New("nobody answers")
	if state, _, err := c.Probe(t.Context()); state != resources.Unknown || err == nil {
		t.Errorf("systemd does not answer: %s %v", state, err)
	}
	if err := c.Stop(deadline(t, time.Second)); !errors.Is(err, resources.ErrNode) {
		t.Errorf("stop: %v", err)
	}
	f.refuse = nil
	mustStop(t, c)
	if f.stops != 1 || f.open.Load() != 0 {
		t.Errorf("%d stop jobs, %d connections are left", f.stops, f.open.Load())
	}
}

// A daemon that died while it started something has left the permission: the next one takes it back before it says anything.
func TestPermitOfDeadDaemon(t *testing.T) {
	for name, call := range map[string]func(*command){"probe": func(c *command) { wantState(t, c, resources.Inactive) }, "stop": func(c *command) { _ = c.Stop(t.Context()) }} {
		dir := t.TempDir()
		c := tracked(t, dir, 1, "sleep", "60")
		f := &fakeSystemd{}
		c.managed, c.dial = func() bool { return true }, f.dial
		if err := writeRecord(dir, record{Boot: "boot-1", Token: 1, Unit: c.unitName()}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.writePermit(nil); err != nil {
			t.Fatal(err)
		}
		call(c)
		if left := permits(t, dir); len(left) > 0 {
			t.Errorf("%s leaves %s", name, left)
		}
	}
}

// Each start has a permission of its own, which is gone when it is over: a request of an earlier one finds none.
func TestPermit(t *testing.T) {
	dir := t.TempDir()
	c := tracked(t, dir, 1, "sleep", "60")
	f := &fakeSystemd{}
	c.managed, c.dial = func() bool { return true }, f.dial
	seen := map[string]bool{}
	for range 2 {
		f.start = f.sleeps(t, dirVariable+dir)
		rec := mustStart(t, c)
		if rec.Unit != "hamgr-web:app.service" || rec.PID != f.pid || !rec.Done {
			t.Errorf("record %+v", rec)
		}
		if seen[f.asked.EnvironmentFile] || len(permits(t, dir)) > 0 {
			t.Errorf("permission %s", f.asked.EnvironmentFile)
		}
		seen[f.asked.EnvironmentFile] = true
		wantState(t, c, resources.Active)
		mustStop(t, c)
		if f.active {
			t.Error("the unit was not stopped")
		}
	}
}

// The kernel says that all is gone: then a systemd that hangs does not make the stop of what was started properly fail.
func TestStopWithoutSystemd(t *testing.T) {
	dir := t.TempDir()
	c := tracked(t, dir, 1, "sleep", "60")
	f := &fakeSystemd{}
	f.start = f.sleeps(t, dirVariable+dir)
	c.managed, c.dial = func() bool { return true }, f.dial
	rec := mustStart(t, c)
	f.refuse = errors.New("nobody answers")
	mustStop(t, c)
	if p, err := process.Look(rec.PID); err == nil && !p.Ended() {
		t.Error("it still runs")
	}
}

// Where systemd does not answer, the process is started all the same.
func TestStartWithoutSystemd(t *testing.T) {
	c := tracked(t, t.TempDir(), 1, "sleep", "60")
	c.managed, c.dial = func() bool { return true }, (&fakeSystemd{refuse: errors.New("nobody answers")}).dial
	if rec := mustStart(t, c); rec.Unit != "" || rec.PID == 0 {
		t.Errorf("record %+v", rec)
	}
	mustStop(t, c)
}

func TestStartRefusedBySystemd(t *testing.T) {
	c := tracked(t, t.TempDir(), 1, "sleep", "60")
	f := &fakeSystemd{start: func(bus.Transient) error { return errors.New("unit exists") }}
	c.managed, c.dial = func() bool { return true }, f.dial
	if err := c.Start(deadline(t, 10*time.Second)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start: %v", err)
	}
	mustStop(t, c)
}
