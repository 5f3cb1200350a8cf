package fake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hamgr/hamgr/resources"
)

// Kind is the kind "fake" as one host sees it. Host names the machine in the World; it
// is usually the node's name.
func Kind(w *World, host string) resources.Kind {
	return resources.Kind{
		Name:    "fake",
		Doc:     "nothing real, for tests",
		Options: func() resources.Options { return &Options{world: w, host: host} },
	}
}

// Options are the keys of a fake resource. Lists name the hosts where a fault happens.
type Options struct {
	Disk       string        `toml:"disk" doc:"what it writes to; empty: something of its own"`
	StartDelay time.Duration `toml:"start_delay" doc:"how long a start takes"`
	StopDelay  time.Duration `toml:"stop_delay" doc:"how long a stop takes"`
	DieAfter   time.Duration `toml:"die_after" doc:"it dies this long after each start; 0 is never"`
	FailStart  []string      `toml:"fail_start" doc:"hosts on which a start fails"`
	HangStart  []string      `toml:"hang_start" doc:"hosts on which a start hangs"`
	FailStop   []string      `toml:"fail_stop" doc:"hosts on which a stop fails"`
	HangStop   []string      `toml:"hang_stop" doc:"hosts on which a stop hangs"`

	world *World
	host  string
}

// Validate implements resources.Options.
func (o *Options) Validate() error {
	var errs []error
	for _, k := range []struct {
		key string
		d   time.Duration
	}{{"start_delay", o.StartDelay}, {"stop_delay", o.StopDelay}, {"die_after", o.DieAfter}} {
		if k.d < 0 {
			errs = append(errs, &resources.KeyError{Key: k.key, Msg: fmt.Sprintf("%s is negative", k.d)})
		}
	}
	return errors.Join(errs...)
}

// Exclusive implements resources.Options.
func (o *Options) Exclusive() (key, what string) { return "disk", o.Disk }

// New implements resources.Options. The resource belongs to the present life of the host.
func (o *Options) New(env resources.Env) (resources.Resource, error) {
	o.world.mu.Lock()
	defer o.world.mu.Unlock()
	return &resource{opts: *o, env: env, life: o.world.host(o.host).life}, nil
}

var _ interface {
	resources.Resource
	resources.Watcher
} = (*resource)(nil)

type resource struct {
	opts Options
	env  resources.Env
	life int
}

// Probe implements resources.Resource.
func (r *resource) Probe(ctx context.Context) (resources.State, string, error) {
	if err := r.act(ctx, "probe", 0); err != nil {
		return resources.Unknown, "", err
	}
	w := r.opts.world
	w.mu.Lock()
	defer w.mu.Unlock()
	held := w.find(r.opts.host, r.env.Group, r.env.Resource)
	switch {
	case held == nil:
		return resources.Inactive, "", nil
	case held.Token != r.env.Token:
		return resources.Failed, fmt.Sprintf("active under token %d", held.Token), nil
	case !held.Started:
		return resources.Failed, "not started completely", nil
	default:
		return resources.Active, "", nil
	}
}

// Start implements resources.Resource.
func (r *resource) Start(ctx context.Context) error {
	if err := r.act(ctx, "", 0); err != nil {
		return err
	}
	held, err := r.begin()
	if err != nil {
		return err
	}
	if held.Started {
		return nil
	}
	err = r.act(ctx, "start", r.opts.StartDelay)
	w := r.opts.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.note("start failed", held.Holding)
		return err
	}
	if !slices.Contains(w.holdings, held) {
		return held.reason
	}
	held.Started = true
	w.note("started", held.Holding)
	if r.opts.DieAfter > 0 {
		held.timer = time.AfterFunc(r.opts.DieAfter, func() { r.die(held) })
	}
	return nil
}

// begin finds what is started already under this token, or holds anew.
func (r *resource) begin() (*holding, error) {
	w := r.opts.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.host(r.opts.host); h.off || h.life != r.life {
		return nil, ErrPoweredOff
	}
	if held := w.find(r.opts.host, r.env.Group, r.env.Resource); held != nil {
		if held.Token != r.env.Token || !held.Started { // what another start left half done
			return nil, fmt.Errorf("fake: %s must be stopped first", held.Holding)
		}
		return held, nil
	}
	return w.hold(Holding{
		Group: r.env.Group, Resource: r.env.Resource, Host: r.opts.host,
		Node: r.env.Node, Boot: r.env.Boot, Token: r.env.Token, Since: time.Now(), Disk: r.opts.Disk,
	})
}

func (r *resource) die(held *holding) {
	w := r.opts.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.holdings, held) {
		w.note("died", held.Holding)
		w.release(held, fmt.Errorf("fake: died %s after its start", r.opts.DieAfter))
	}
}

// Stop implements resources.Resource. What a failed stop leaves holds on.
func (r *resource) Stop(ctx context.Context) error {
	w := r.opts.world
	w.mu.Lock()
	held := w.find(r.opts.host, r.env.Group, r.env.Resource)
	if held != nil && r.life == w.host(r.opts.host).life {
		w.note("stopping", held.Holding)
	}
	w.mu.Unlock()
	if err := r.act(ctx, "stop", r.opts.StopDelay); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if held != nil && slices.Contains(w.holdings, held) {
		w.note("stopped", held.Holding)
		w.release(held, errors.New("fake: stopped"))
	}
	return nil
}

// Died implements resources.Watcher.
func (r *resource) Died(ctx context.Context) error {
	w := r.opts.world
	w.mu.Lock()
	held := w.find(r.opts.host, r.env.Group, r.env.Resource)
	dead := r.life != w.host(r.opts.host).life
	w.mu.Unlock()
	if dead {
		return ErrPoweredOff
	}
	if held == nil {
		return errors.New("fake: not active")
	}
	select {
	case <-held.died:
	case <-ctx.Done():
		return ctx.Err()
	}
	// Nobody on a frozen host notices anything.
	if err := r.act(ctx, "", 0); err != nil {
		return err
	}
	return held.reason
}

// act lets one operation take its time on its host, or go wrong. It returns nil if, at
// the end, the host has power, is not frozen, and the operation worked.
func (r *resource) act(ctx context.Context, op string, delay time.Duration) error {
	w := r.opts.world
	w.mu.Lock()
	h := w.host(r.opts.host)
	dead, off := h.dead, h.off || h.life != r.life
	mode := r.mode(h, op)
	w.mu.Unlock()
	if off {
		return ErrPoweredOff
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var end <-chan time.Time // a hanging operation has none
	if mode != Hangs {
		t := time.NewTimer(delay)
		defer t.Stop()
		end = t.C
	}
	select {
	case <-end:
	case <-dead:
		return ErrPoweredOff
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := r.awaitThaw(ctx, dead); err != nil {
		return err
	}
	if mode == Fails {
		return fmt.Errorf("%s of %s/%s: %w", op, r.env.Group, r.env.Resource, ErrTold)
	}
	return nil
}

func (r *resource) awaitThaw(ctx context.Context, dead <-chan struct{}) error {
	w := r.opts.world
	for {
		w.mu.Lock()
		frozen := w.host(r.opts.host).frozen
		w.mu.Unlock()
		select {
		case <-dead: // a power-off ends a freeze too
			return ErrPoweredOff
		default:
		}
		if frozen == nil {
			return nil
		}
		select {
		case <-frozen:
		case <-dead:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// mode is what the World says, else what the options say.
func (r *resource) mode(h *host, op string) Mode {
	if m, ok := h.faults[fault{r.env.Group, r.env.Resource, op}]; ok {
		return m
	}
	var fail, hang []string
	switch op {
	case "start":
		fail, hang = r.opts.FailStart, r.opts.HangStart
	case "stop":
		fail, hang = r.opts.FailStop, r.opts.HangStop
	}
	switch {
	case slices.Contains(hang, r.opts.host):
		return Hangs
	case slices.Contains(fail, r.opts.host):
		return Fails
	default:
		return Works
	}
}
