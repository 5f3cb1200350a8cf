package systemd

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/bus"
)

// fakeSystemd is a systemd with one unit, which can be told to lie and to hang. All of its connections see the same.
type fakeSystemd struct {
	mu         sync.Mutex
	props      bus.Properties
	environ    []string // of the service, as soon as it is read
	stale      int      // how many reloads it takes until then
	invocation byte
	processes  []string
	jobs       uint32
	results    map[uint32]chan string
	asked      []string // the verbs of the jobs that were asked for
	cancelled  []uint32
	reloads    int
	resets     int // of failures and of the count of starts
	watchers   map[chan struct{}]struct{}
	open       map[*fakeConn]struct{}
	dialled    int

	// start and stop do what a job does to the unit, and give its result; "-" leaves it running.
	start, stop func(f *fakeSystemd) string
	deaf        bool          // nobody is told of changes and ends of jobs
	stalled     chan struct{} // while it is not nil and open, nothing is answered
	refuse      error         // of new connections
}

func newFake() *fakeSystemd {
	return &fakeSystemd{
		props: bus.Properties{"Id": "app.service", "LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead"},
		start: func(f *fakeSystemd) string { f.become("active", "running"); return "done" },
		stop:  func(f *fakeSystemd) string { f.become("inactive", "dead"); return "done" },

		results:  map[uint32]chan string{},
		watchers: map[chan struct{}]struct{}{},
		open:     map[*fakeConn]struct{}{},
	}
}

// service is a resource for the fake's unit.
func (f *fakeSystemd) service(t testing.TB, token uint64) *service {
	t.Helper()
	s := newService(t, "app.service", token)
	s.dial = f.dial
	s.link = &link{dial: f.dial}
	s.starts = &requests{open: map[string]chan struct{}{}}
	s.dropIns = t.TempDir()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.environ = s.env.Environ()
	return s
}

// become is called with the lock held.
func (f *fakeSystemd) become(active, sub string) {
	if active == "active" && f.props["ActiveState"] != "active" {
		f.invocation++
	}
	f.props["ActiveState"], f.props["SubState"] = active, sub
	f.tell()
}

func (f *fakeSystemd) tell() {
	for c := range f.watchers {
		if f.deaf {
			return
		}
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// set changes the fake from outside.
func (f *fakeSystemd) set(change func(f *fakeSystemd)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeSystemd) jobEnds(id uint32, result string) {
	if c, ok := f.results[id]; ok && !f.deaf {
		c <- result
	}
	delete(f.results, id)
	if f.props["Job"] != nil && f.props.Job() == id {
		delete(f.props, "Job")
	}
}

func (f *fakeSystemd) dial(ctx context.Context) (manager, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	c := &fakeConn{f: f, gone: make(chan struct{})}
	f.open[c] = struct{}{}
	f.dialled++
	return c, nil
}

type fakeConn struct {
	f    *fakeSystemd
	once sync.Once
	gone chan struct{}
}

var _ manager = (*fakeConn)(nil)

// answer waits until the fake answers, and locks it.
func (c *fakeConn) answer(ctx context.Context) (unlock func(), err error) {
	for {
		c.f.mu.Lock()
		stalled := c.f.stalled
		if stalled == nil {
			return c.f.mu.Unlock, nil
		}
		c.f.mu.Unlock()
		select {
		case <-stalled:
			c.f.set(func(f *fakeSystemd) {
				if f.stalled == stalled {
					f.stalled = nil
				}
			})
		case <-c.gone:
			return nil, errors.New("closed")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *fakeConn) Unit(ctx context.Context, name string) (bus.Properties, error) {
	unlock, err := c.answer(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	p := bus.Properties{"InvocationID": []byte{c.f.invocation}}
	for k, v := range c.f.props {
		p[k] = v
	}
	return p, nil
}

func (c *fakeConn) Service(ctx context.Context, name string) (bus.Properties, error) {
	unlock, err := c.answer(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	p := bus.Properties{"Type": "simple", "Restart": "no"}
	if c.f.stale == 0 {
		p["Environment"] = c.f.environ
	}
	return p, nil
}

func (c *fakeConn) Processes(ctx context.Context, name string) ([]string, error) {
	unlock, err := c.answer(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return c.f.processes, nil
}

func (c *fakeConn) Enqueue(ctx context.Context, verb, name string) (uint32, <-chan string, error) {
	unlock, err := c.answer(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer unlock()
	f := c.f
	f.jobs++
	id := f.jobs
	f.asked = append(f.asked, verb)
	result := make(chan string, 1)
	f.results[id] = result
	f.props["Job"] = []any{id, "/job"}
	act := f.start
	if verb == "StopUnit" {
		act = f.stop
	}
	if word := act(f); word != "-" {
		f.jobEnds(id, word)
	}
	return id, result, nil
}

func (c *fakeConn) Cancel(ctx context.Context, job uint32) error {
	unlock, err := c.answer(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	c.f.cancelled = append(c.f.cancelled, job)
	c.f.jobEnds(job, "canceled")
	return nil
}

func (c *fakeConn) ResetFailed(ctx context.Context, name string) error {
	unlock, err := c.answer(ctx)
	if err == nil {
		c.f.resets++
		unlock()
	}
	return err
}

func (c *fakeConn) Reload(ctx context.Context) error {
	unlock, err := c.answer(ctx)
	if err == nil {
		c.f.reloads++
		c.f.stale = max(c.f.stale-1, 0)
		unlock()
	}
	return err
}

func (c *fakeConn) Watch(name string) (<-chan struct{}, func()) {
	wake := make(chan struct{}, 1)
	c.f.set(func(f *fakeSystemd) { f.watchers[wake] = struct{}{} })
	return wake, func() { c.f.set(func(f *fakeSystemd) { delete(f.watchers, wake) }) }
}

func (c *fakeConn) Lost() <-chan struct{} { return c.gone }

func (c *fakeConn) Close() {
	c.once.Do(func() {
		close(c.gone)
		c.f.set(func(f *fakeSystemd) { delete(f.open, c) })
	})
}

// hangUp breaks all connections, as a systemd does that executes itself again.
func (f *fakeSystemd) hangUp() {
	f.mu.Lock()
	var all []*fakeConn
	for c := range f.open {
		all = append(all, c)
	}
	f.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}

// wantClosed fails if a connection is left.
func (f *fakeSystemd) wantClosed(t testing.TB) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.open) != 0 {
		t.Errorf("%d connections are left", len(f.open))
	}
}

func (f *fakeSystemd) isActive() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.props.IsActive()
}

var errNobody = errors.New("connection refused")

// mayBe are the states that a liar may be found in, where Inactive would be a lie believed.
var mayBe = []resources.State{resources.Unknown, resources.Active, resources.Failed}
