package systemd

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/bus"
)

// Tests with a fake systemd that lies and hangs, in virtual time.

// obeyed is the time within which every call ends after its context.
const obeyed = 50 * time.Millisecond

func TestFakeLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.service(t, 3)
		wantState(t, s, resources.Inactive)
		mustStart(t, s)
		wantState(t, s, resources.Active)
		mustStart(t, s)
		mustStop(t, s)
		mustStop(t, s)
		if !slices.Equal(f.asked, []string{"StartUnit", "StopUnit"}) || f.reloads != 0 || f.resets != 1 {
			t.Errorf("systemd was asked for %v, %d reloads, %d resets", f.asked, f.reloads, f.resets)
		}
		f.wantClosed(t)
	})
}

// TestTokenMustBeKnown: a service is started with the token or not at all.
func TestTokenMustBeKnown(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(f *fakeSystemd)
		reloads int
		starts  bool
	}{
		"read by itself":      {func(f *fakeSystemd) {}, 0, true},
		"remembered":          {func(f *fakeSystemd) { f.stale = 1 }, 1, true},
		"never read":          {func(f *fakeSystemd) { f.stale = 2 }, 1, false},
		"another token":       {func(f *fakeSystemd) { f.environ = envOf(2).Environ() }, 1, false},
		"other files changed": {func(f *fakeSystemd) { f.props["NeedDaemonReload"] = true }, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			s := f.service(t, 1)
			c.change(f)
			err := s.Start(t.Context())
			if (err == nil) != c.starts || f.reloads != c.reloads || (len(f.asked) > 0) != c.starts {
				t.Errorf("%v; %d reloads, jobs %v", err, f.reloads, f.asked)
			}
			if err != nil && !errors.Is(err, resources.ErrSetup) {
				t.Errorf("%v is no wrong setup", err)
			}
			f.wantClosed(t)
		})
	}
}

// TestStartBelievesNoResult: a job that is done is no service that is active.
func TestStartBelievesNoResult(t *testing.T) {
	for _, state := range []string{"inactive", "failed", "activating", "deactivating", "maintenance", "", "new word"} {
		for _, result := range []string{"done", "failed", "canceled", "timeout", "dependency", "skipped", "collected", "new word"} {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.start = func(f *fakeSystemd) string { f.become(state, ""); return result }
				s := f.service(t, 1)
				err := s.Start(deadline(t, 10*time.Second))
				if err == nil {
					t.Errorf("%q, %q: started", state, result)
				}
				if result != "done" && result != "new word" {
					wantError(t, err, bus.ResultWords(result), "journalctl -u app.service")
				}
				f.wantClosed(t)
			})
		}
	}
}

// TestStopBelievesNoResult: only a unit that is down, without a job and without processes, is stopped.
func TestStopBelievesNoResult(t *testing.T) {
	for name, lie := range map[string]func(f *fakeSystemd){
		"still active":       func(f *fakeSystemd) {},
		"reloading":          func(f *fakeSystemd) { f.become("reloading", "") },
		"deactivating":       func(f *fakeSystemd) { f.become("deactivating", "stop-sigterm") },
		"activating":         func(f *fakeSystemd) { f.become("activating", "auto-restart") },
		"no state":           func(f *fakeSystemd) { delete(f.props, "ActiveState") },
		"a state of no type": func(f *fakeSystemd) { f.props["ActiveState"] = 3 },
		"a new state":        func(f *fakeSystemd) { f.become("resting", "") },
		"processes left":     func(f *fakeSystemd) { f.become("inactive", "dead"); f.processes = []string{"12 (app)"} },
		"failed, with some":  func(f *fakeSystemd) { f.become("failed", "failed"); f.processes = []string{"12 (app)"} },
		"a start job behind": func(f *fakeSystemd) { f.become("inactive", "dead") },
	} {
		for _, result := range []string{"done", "failed", "canceled", "timeout"} {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := f.service(t, 1)
				mustStart(t, s)
				f.set(func(f *fakeSystemd) {
					f.stop = func(f *fakeSystemd) string {
						lie(f)
						f.jobEnds(f.jobs, result)
						if name == "a start job behind" {
							f.props["Job"] = []any{uint32(999), "/job"}
						}
						return "-"
					}
				})
				begun := time.Now()
				err := s.Stop(deadline(t, 3*time.Second))
				if err == nil {
					t.Fatalf("%s, %s: stopped", name, result)
				}
				wantError(t, err, "app.service", "journalctl")
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 3*time.Second+obeyed {
					t.Errorf("%s, %s: after %s: %v", name, result, time.Since(begun), err)
				}
				if state, _, _ := s.Probe(t.Context()); !slices.Contains(mayBe, state) {
					t.Errorf("%s, %s: the probe says %s", name, result, state)
				}
				if _, err := os.Stat(s.dropInPath("app.service")); err != nil {
					t.Errorf("%s: the grant is forgotten: %v", name, err)
				}
				f.wantClosed(t)
			})
		}
	}
}

// What is left of a stopped unit may end by itself; nothing but looking is done about it.
func TestStopWaitsForProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.service(t, 1)
		mustStart(t, s)
		f.set(func(f *fakeSystemd) { f.processes = []string{"12 (app)"} })
		time.AfterFunc(2*time.Second, func() { f.set(func(f *fakeSystemd) { f.processes = nil }) })
		mustStop(t, s)
		if n := len(f.asked); n != 2 {
			t.Errorf("jobs: %v", f.asked)
		}
	})
}

// TestNobodyTells: where no signal comes, jobs are looked after, and a death is found by the monitor.
func TestNobodyTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.deaf = true
		s := f.service(t, 1)
		mustStart(t, s)
		f.set(func(f *fakeSystemd) { f.become("failed", "failed") })
		wantState(t, s, resources.Inactive)
		mustStop(t, s)
		mustStart(t, s)
		f.set(func(f *fakeSystemd) { f.become("failed", "failed"); f.become("active", "running") })
		wantError(t, errors.New(wantState(t, s, resources.Failed)), "restarted")
		mustStop(t, s)
		f.wantClosed(t)
	})
}

// TestStalled: a systemd that does not answer holds nobody, and says nothing about the unit.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.service(t, 1)
		mustStart(t, s)
		f.set(func(f *fakeSystemd) { f.stalled = make(chan struct{}) })
		for name, call := range map[string]func(context.Context) error{
			"start": s.Start, "stop": s.Stop, "check": s.Check, "died": s.Died,
			"probe": func(ctx context.Context) error {
				state, _, err := s.Probe(ctx)
				if state != resources.Unknown {
					t.Errorf("the probe says %s", state)
				}
				return err
			},
		} {
			for _, d := range []time.Duration{0, time.Second, time.Minute} {
				begun := time.Now()
				err := call(deadline(t, d))
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", name, err)
				}
				if took := time.Since(begun); took > d+obeyed {
					t.Errorf("%s with %s took %s", name, d, took)
				}
			}
		}
		close(f.stalled)
		wantState(t, s, resources.Active)
		mustStop(t, s)
		f.wantClosed(t)
	})
}

// TestStallsWhileStopping: the caller of a stop is let go as soon as that of any other call.
func TestStallsWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.service(t, 1)
		mustStart(t, s)
		f.set(func(f *fakeSystemd) {
			f.stop = func(f *fakeSystemd) string { f.stalled = make(chan struct{}); return "-" }
		})
		begun := time.Now()
		if err := s.Stop(deadline(t, 5*time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stop: %v", err)
		}
		if took := time.Since(begun); took > 5*time.Second+obeyed {
			t.Errorf("took %s", took)
		}
		f.wantClosed(t)
	})
}

// TestLateStart: a request to start that systemd reads only after its caller has gone is the worst that can happen: the
// service would start after the group was given to another node. No stop succeeds before that is settled.
func TestLateStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.service(t, 1)
		release := make(chan struct{})
		inner := f.dial
		s.dial = func(ctx context.Context) (manager, error) { // what asks for a job is read late, and nothing else is
			m, err := inner(ctx)
			return &lateConn{m.(*fakeConn), release}, err
		}
		err := s.Start(deadline(t, time.Second))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		next := f.service(t, 1) // another resource for the same unit
		next.starts, next.dropIns = s.starts, s.dropIns
		for _, s := range []*service{s, next} {
			if state, detail, err := s.Probe(t.Context()); state != resources.Unknown || err != nil {
				t.Errorf("probe: %s, %q, %v", state, detail, err)
			}
			begun := time.Now()
			wantError(t, s.Stop(deadline(t, time.Second)), "has not answered an earlier request to start")
			wantError(t, s.Start(deadline(t, time.Second)), "has not answered an earlier request to start")
			if took := time.Since(begun); took > 2*(time.Second+obeyed) {
				t.Errorf("took %s", took)
			}
		}
		f.start = func(f *fakeSystemd) string { f.become("activating", "start"); return "-" }
		time.AfterFunc(500*time.Millisecond, func() { close(release) })
		mustStop(t, next)
		if f.isActive() || !slices.Equal(f.cancelled, []uint32{1}) || !slices.Equal(f.asked, []string{"StartUnit", "StopUnit"}) {
			t.Errorf("active %t, cancelled %v, asked %v", f.isActive(), f.cancelled, f.asked)
		}
		f.wantClosed(t)
	})
}

type lateConn struct {
	*fakeConn
	release chan struct{}
}

func (c *lateConn) Enqueue(ctx context.Context, verb, name string) (uint32, <-chan string, error) {
	select {
	case <-c.release:
	case <-c.gone:
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	return c.fakeConn.Enqueue(ctx, verb, name)
}

// TestCancelledStart: the job goes with the one who waits for it.
func TestCancelledStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.start = func(f *fakeSystemd) string { f.become("activating", "start"); return "-" }
		s := f.service(t, 1)
		begun := time.Now()
		if err := s.Start(deadline(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > time.Second+obeyed {
			t.Errorf("took %s", took)
		}
		synctest.Wait()
		if !slices.Equal(f.cancelled, []uint32{1}) {
			t.Errorf("cancelled %v", f.cancelled)
		}
		wantState(t, s, resources.Failed)
		mustStop(t, s)
		f.wantClosed(t)
	})
}

// TestStartLosesConnection: it fails; what has come of it is for the stop to find.
func TestStartLosesConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.start = func(f *fakeSystemd) string { return "-" }
		s := f.service(t, 1)
		time.AfterFunc(time.Second, f.hangUp)
		if err := s.Start(deadline(t, 10*time.Second)); !errors.Is(err, bus.ErrLost) {
			t.Errorf("start: %v", err)
		}
		f.set(func(f *fakeSystemd) { f.become("active", "running"); delete(f.props, "Job") })
		mustStop(t, s)
		f.wantClosed(t)
	})
}

// TestDiedReconnects: neither a lost connection nor a systemd that refuses one is a death.
func TestDiedReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.service(t, 1)
		mustStart(t, s)
		reason := died(t, s)
		f.set(func(f *fakeSystemd) { f.refuse = errNobody })
		f.hangUp()
		time.Sleep(time.Minute)
		if state, _, err := s.Probe(t.Context()); state != resources.Unknown || !errors.Is(err, errNobody) {
			t.Errorf("the probe says %s, %v", state, err)
		}
		f.set(func(f *fakeSystemd) { f.refuse = nil })
		time.Sleep(time.Minute)
		select {
		case err := <-reason:
			t.Fatalf("taken for dead: %v", err)
		default:
		}
		f.set(func(f *fakeSystemd) { f.become("failed", "failed") })
		wantDeath(t, reason, obeyed, "failed")
		f.wantClosed(t)
	})
}

// TestOneConnection: whoever looks shares it with the one who follows; an unhealthy one is given up.
func TestOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.service(t, 1)
		mustStart(t, s)
		_ = died(t, s)
		before := f.dialled
		for range 10 {
			wantState(t, s, resources.Active)
		}
		if f.dialled != before {
			t.Errorf("%d more connections", f.dialled-before)
		}
		f.set(func(f *fakeSystemd) { f.stalled = make(chan struct{}) })
		for range 3 {
			if _, _, err := s.Probe(deadline(t, time.Second)); err == nil {
				t.Error("no error")
			}
		}
		close(f.stalled)
		if f.dialled != before+2 {
			t.Errorf("%d new connections for three looks without an answer", f.dialled-before)
		}
		wantState(t, s, resources.Active)
		mustStop(t, s)
	})
}
