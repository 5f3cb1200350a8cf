package systemd

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync"
	"testing"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/bus"
	"github.com/hamgr/hamgr/resources/resourcetest"
)

// fog is what hides the truth of a fake systemd from those who ask.
type fog struct {
	*fakeSystemd
	mu   sync.Mutex
	hide func(bus.Properties)
}

func (f *fog) set(hide func(bus.Properties)) func() {
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.hide = hide
	}
}

// in hides what is there while the fault lasts.
func (f *fog) in(hide func(bus.Properties)) resourcetest.Fault {
	return resourcetest.Fault{Begin: f.set(hide), End: f.set(nil)}
}

// dial heeds the context, as that of a real connection does.
func (f *fog) dial(ctx context.Context) (manager, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := f.fakeSystemd.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &fogged{m, f}, nil
}

type fogged struct {
	manager
	fog *fog
}

func (c *fogged) Unit(ctx context.Context, name string) (bus.Properties, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := c.manager.Unit(ctx, name)
	c.fog.mu.Lock()
	defer c.fog.mu.Unlock()
	if err == nil && c.fog.hide != nil {
		c.fog.hide(p)
	}
	return p, err
}

// TestConformance: a fake systemd, which knows how its unit is. That a real one is like it, the tests on a host tell.
func TestConformance(t *testing.T) {
	resourcetest.Run(t, resourcetest.Subject{Kind: Kind(), Host: func(t testing.TB) *resourcetest.Host {
		fake := newFake()
		f := &fog{fakeSystemd: fake}
		shared, starts, dropIns := &link{dial: f.dial}, &requests{open: map[string]chan struct{}{}}, t.TempDir()
		t.Cleanup(func() { fake.wantClosed(t) })
		// during changes the fake, and puts it back.
		during := func(begin, end func(*fakeSystemd)) resourcetest.Fault {
			return resourcetest.Fault{Begin: func() { fake.set(begin) }, End: func() { fake.set(end) }}
		}
		property := func(name string, value any) resourcetest.Trouble {
			before := maps.Clone(fake.props)
			return resourcetest.Trouble{Is: resources.ErrSetup, Fault: during(
				func(f *fakeSystemd) { f.props[name] = value },
				func(f *fakeSystemd) {
					if delete(f.props, name); before[name] != nil {
						f.props[name] = before[name]
					}
				},
			)}
		}
		starting := func(act func(*fakeSystemd) string) resourcetest.Fault {
			good := fake.start
			return during(func(f *fakeSystemd) { f.start = act }, func(f *fakeSystemd) { f.start = good })
		}
		stopping := func(act func(*fakeSystemd) string) resourcetest.Fault {
			good := fake.stop
			return during(func(f *fakeSystemd) { f.stop = act }, func(f *fakeSystemd) { f.stop, f.processes = good, nil })
		}
		return &resourcetest.Host{
			New: func(env resources.Env) (resources.Resource, error) {
				o := Kind().Options().(*Options)
				o.Unit = "app.service"
				r, err := o.New(env)
				if err != nil {
					return nil, err
				}
				s := r.(*service)
				s.dial, s.link, s.starts, s.dropIns = f.dial, shared, starts, dropIns
				fake.set(func(f *fakeSystemd) { f.environ = env.Environ() })
				return s, nil
			},
			Active: func() (names []string) {
				fake.set(func(f *fakeSystemd) {
					if !f.props.IsDown() || len(f.processes) > 0 {
						names = append(names, fmt.Sprintf("run %d", f.invocation))
					}
				})
				return names
			},
			Picture: func() (text string) {
				files, err := os.ReadDir(dropIns)
				fake.set(func(f *fakeSystemd) {
					text = fmt.Sprint(files, err, f.props, f.asked, f.cancelled, f.reloads, f.resets)
				})
				return text
			},
			Kill: func() { fake.set(func(f *fakeSystemd) { f.become("failed", "failed") }) },
			Troubles: map[string]resourcetest.Trouble{
				"enabled":            property("UnitFileState", "enabled"),
				"masked":             property("LoadState", "masked"),
				"not installed":      property("LoadState", "not-found"),
				"another name":       property("Id", "other.service"),
				"starts by itself":   property("StopWhenUnneeded", true),
				"its job fails":      {Fault: starting(func(f *fakeSystemd) string { f.become("failed", "failed"); return "failed" }), Late: true},
				"its job only says":  {Fault: starting(func(*fakeSystemd) string { return "done" }), Late: true},
				"it ends at once":    {Fault: starting(func(f *fakeSystemd) string { f.become("failed", "failed"); return "done" }), Late: true},
				"token is not given": {Fault: during(func(f *fakeSystemd) { f.stale = 1 << 30 }, func(f *fakeSystemd) { f.stale = 0 }), Is: resources.ErrSetup, Late: true},
			},
			Hangs: map[string]resourcetest.Hang{
				"systemd": {Fault: during(func(f *fakeSystemd) { f.stalled = make(chan struct{}) }, func(f *fakeSystemd) { close(f.stalled); f.stalled = nil })},
				"start": {
					Fault: starting(func(f *fakeSystemd) string { f.become("activating", "start"); return "-" }), Calls: []string{"start"},
				},
				"stop": {
					Fault: stopping(func(f *fakeSystemd) string { f.become("deactivating", "stop-sigterm"); return "-" }), Calls: []string{"stop"},
				},
			},
			Blind: map[string]resourcetest.Fault{
				"no state":           f.in(func(p bus.Properties) { delete(p, "ActiveState") }),
				"a state of no type": f.in(func(p bus.Properties) { p["ActiveState"] = 3 }),
				"a new state":        f.in(func(p bus.Properties) { p["ActiveState"] = "resting" }),
				"nothing at all":     f.in(func(p bus.Properties) { clear(p) }),
				"nobody is at home":  during(func(f *fakeSystemd) { f.refuse = errNobody }, func(f *fakeSystemd) { f.refuse = nil }),
			},
			Stuck: map[string]resourcetest.Fault{
				"its job only says": stopping(func(*fakeSystemd) string { return "done" }),
				"its job fails":     stopping(func(*fakeSystemd) string { return "failed" }),
				"deactivating":      stopping(func(f *fakeSystemd) string { f.become("deactivating", "stop-sigterm"); return "timeout" }),
				"processes left": stopping(func(f *fakeSystemd) string {
					f.become("inactive", "dead")
					f.processes = []string{"12 (app)"}
					return "done"
				}),
			},
		}
	}})
}
