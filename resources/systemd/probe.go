package systemd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/bus"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// run remembers which run of the unit is the resource's: its invocation ID. A service that was restarted
// has another one.
type run struct {
	mu         sync.Mutex
	invocation string
}

func (r *run) set(invocation string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.invocation = invocation
}

// is reports whether that is the run. The first one that is asked for is taken for it: a
// daemon that was restarted did not see the start.
func (r *run) is(invocation string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.invocation == "" {
		r.invocation = invocation
	}
	return r.invocation == invocation
}

// Probe implements resources.Resource. A service that is well costs one question.
func (s *service) Probe(ctx context.Context) (resources.State, string, error) {
	m, release, err := s.link.acquire(ctx)
	if err != nil {
		return resources.Unknown, "", err
	}
	state, detail, err := s.look(ctx, m)
	release(err == nil || errors.Is(err, context.Canceled))
	return state, detail, err
}

func (s *service) look(ctx context.Context, m manager) (resources.State, string, error) {
	u, err := m.Unit(ctx, s.opts.Unit)
	if err != nil {
		return resources.Unknown, "", err
	}
	return s.judge(ctx, m, u)
}

// judge tells the unit's state.
func (s *service) judge(ctx context.Context, m manager, u bus.Properties) (resources.State, string, error) {
	switch {
	case u.IsActive():
		return s.judgeActive(ctx, m, u)
	case !u.IsDown():
		switch u.Text("ActiveState") {
		case "activating", "deactivating", "maintenance":
			return resources.Failed, s.describe(ctx, m, u), nil
		}
		return resources.Unknown, u.State(), nil
	case s.starts.find(s.opts.Unit) != nil:
		return resources.Unknown, "systemd has not answered a request to start it", nil
	case u.Job() != 0:
		return resources.Failed, fmt.Sprintf("%s, and job %d of systemd is queued for it", u.State(), u.Job()), nil
	}
	left, err := m.Processes(ctx, s.opts.Unit)
	if err != nil {
		return resources.Unknown, "", err
	}
	if len(left) > 0 {
		return resources.Failed, fmt.Sprintf("%s, and left over: %s", u.State(), list(left)), nil
	}
	return resources.Inactive, s.describe(ctx, m, u), nil
}

func (s *service) judgeActive(ctx context.Context, m manager, u bus.Properties) (resources.State, string, error) {
	g, ok, err := s.granted()
	switch {
	case err != nil:
		return resources.Unknown, "", err
	case !ok:
		return resources.Failed, fmt.Sprintf("%s, started by somebody else, without a grant", u.State()), nil
	case g != grantOf(s.env):
		return resources.Failed, fmt.Sprintf("%s, still under %s", u.State(), g), nil
	case !s.run.is(u.Invocation()):
		return resources.Failed, "restarted, and not by hamgr: " + s.describe(ctx, m, u), nil
	}
	return resources.Active, u.State(), nil
}

// describe says how the unit is and how it came to that, as far as systemd tells.
func (s *service) describe(ctx context.Context, m manager, u bus.Properties) string {
	switch u.Text("LoadState") {
	case "not-found":
		return "this host has no such unit"
	case "masked":
		return u.State() + ", masked"
	}
	words := u.State()
	service, err := m.Service(ctx, s.opts.Unit)
	if err != nil {
		return words
	}
	if ending := service.Ending(); ending != "" {
		words += ": " + ending
	}
	return words
}

// journal says where more is written.
func (s *service) journal() string { return "see journalctl -u " + s.opts.Unit }

// list names the first few of many.
func list(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// reconnectPause is how long Died waits before it asks for a connection again.
const reconnectPause = 200 * time.Millisecond

// Died implements resources.Watcher. systemd tells that something has changed, and is then asked for what. A connection that is
// lost is made anew: that systemd does not answer is no death, but the next monitor will not find the service well.
func (s *service) Died(ctx context.Context) error {
	for {
		reason := s.follow(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if reason != nil {
			return reason
		}
		if err := process.Sleep(ctx, reconnectPause); err != nil {
			return err
		}
	}
}

// follow gives the reason why the service is not well any more, or nil where systemd does not tell.
func (s *service) follow(ctx context.Context) (reason error) {
	m, release, err := s.link.acquire(ctx)
	if err != nil {
		return nil
	}
	healthy := false
	defer func() { release(healthy || ctx.Err() != nil) }()
	wake, end := m.Watch(s.opts.Unit)
	defer end()
	for {
		state, detail, err := s.look(ctx, m)
		if err != nil {
			return nil
		}
		if state == resources.Inactive || state == resources.Failed {
			healthy = true
			return fmt.Errorf("%s is %s; %s", s.opts.Unit, detail, s.journal())
		}
		select {
		case <-wake:
		case <-m.Lost():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}
