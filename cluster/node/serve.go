package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/resources"
)

// serve starts the resources and watches over them. It returns with the failure that ends the
// group here, or with the error of ctx.
func (r *runner) serve(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !r.adopted {
		// Before the record: what is recorded counts as started.
		if err := r.n.dog.hold(ctx, r.group.Name, r.grant.Token); err != nil {
			return fmt.Errorf("not started: %w", err)
		}
	}
	if err := r.record(); err != nil {
		return err
	}
	if r.begun {
		if err := r.clearHalf(ctx); err != nil {
			return err
		}
	}
	if !r.adopted {
		if err := r.startFrom(ctx, 0); err != nil {
			return err
		}
		r.n.ready.forget(r.group.Name)
		r.out.send(state.Command{Started: r.report(nil)})
	}
	look := r.adopted
	for {
		f, err := r.watchOver(ctx, look)
		if err != nil {
			return err
		}
		look = true
		onFail := r.parts[f.index].onFail()
		if onFail == config.OnFailRestart && r.mayRestart() {
			// A node that stood still may not hold the grant any more: it asks before it starts anything.
			if err := r.n.trust.wait(ctx); err != nil {
				return err
			}
		} else {
			onFail = config.OnFailMove
		}
		// What was seen may be an operator's work in a maintenance that has begun since.
		if why, _ := r.maintained.now(); why != "" {
			continue
		}
		if r.unsure {
			if err := r.copyElsewhere(ctx); err != nil {
				return err
			}
			r.unsure = false
		}
		if onFail == config.OnFailMove {
			return f.err
		}
		if err := r.restart(ctx, f); err != nil {
			return err
		}
		look = false
	}
}

// clearHalf stops what an earlier daemon may have left half started when it died: that is no failure of the resource. What is
// active is left as it is.
func (r *runner) clearHalf(ctx context.Context) error {
	for _, p := range slices.Backward(r.parts) {
		if s, _, err := p.look(ctx, p.conf.MonitorTimeout); err == nil && (s == resources.Active || s == resources.Inactive) {
			continue
		}
		if err := r.stopPart(ctx, p); err != nil {
			return &resourceError{resource: p.conf.Name, err: fmt.Errorf("stop what was left half started: %w", err)}
		}
	}
	return nil
}

// onFail is what becomes of a failure while the resource runs. Those who recorded nothing knew of nothing but restarts.
func (p *part) onFail() string {
	if p.conf.OnFail == "" {
		return config.OnFailRestart
	}
	return p.conf.OnFail
}

// failure is the error of the resource, with what the configuration wants to become of it.
func (p *part) failure(err error) *resourceError {
	verdicts := map[string]state.Verdict{config.OnFailStop: state.Halt, config.OnFailFence: state.Fence}
	return &resourceError{p.conf.Name, err, verdicts[p.onFail()]}
}

// mayRestart reports whether one more restart in place is within the bounds.
func (r *runner) mayRestart() bool {
	return len(r.restarted.within(r.group.RestartWindow, r.n.uptime())) < r.group.Restarts
}

// restart stops the failed resource and all that were started after it, and starts them again.
func (r *runner) restart(ctx context.Context, f *failure) error {
	now := r.n.uptime()
	r.mu.Lock()
	r.restarted = append(r.restarted.within(r.group.RestartWindow, now), now)
	r.mu.Unlock()
	r.log.Warn("resource restarts in place", "node", r.n.Self, "restart", len(r.restarted), "of", r.group.Restarts, "err", f.err)
	if err := r.record(); err != nil {
		return err // the next daemon would not know of it
	}
	for i := len(r.parts) - 1; i >= f.index; i-- {
		if err := r.stopPart(ctx, r.parts[i]); err != nil {
			return &resourceError{resource: r.parts[i].conf.Name, err: fmt.Errorf("stop: %w", err)}
		}
	}
	if !sleep(ctx, restartPause(len(r.restarted))) {
		return ctx.Err()
	}
	return r.startFrom(ctx, f.index)
}

// restartPause comes before the n-th restart within the window: what fails as soon as it runs must not keep the host busy.
func restartPause(n int) time.Duration {
	const longest = 10 * time.Second
	pause := time.Duration(0)
	for range n - 1 {
		pause = min(longest, max(100*time.Millisecond, 2*pause))
	}
	return pause
}

// record keeps for the next daemon of this boot what it has to know of the group.
func (r *runner) record() error {
	why, _ := r.maintained.now()
	r.unsure = r.unsure || r.left && why == ""
	r.left = why != ""
	return r.n.hold(r.group.Name, r.parts, held{Token: r.grant.Token, Restarts: r.restarted, Maintained: r.left})
}

// startFrom starts the resources in their order, unless a copy of the group is known to be active elsewhere: somebody may
// have moved it by hand in a maintenance.
func (r *runner) startFrom(ctx context.Context, from int) error {
	if err := r.copyKnown(); err != nil {
		return fmt.Errorf("not started: %w", err)
	}
	for _, p := range r.parts[from:] {
		began := time.Now()
		err := r.startPart(ctx, p)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.note(p, resources.Failed, err.Error())
			return err
		}
		r.note(p, resources.Active, "")
		r.log.Info("resource started", "node", r.n.Self, "resource", p.conf.Name, "took", time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// startPart starts one resource, unless it says beforehand whose fault it is that it would not start. It is asked in
// its turn, not before: what it needs may come with those that are started before it. What was not started is stopped
// or fenced for nobody's sake: such a fault only has the group tried elsewhere.
func (r *runner) startPart(ctx context.Context, p *part) error {
	ctx, cancel := context.WithTimeout(ctx, p.conf.StartTimeout)
	defer cancel()
	switch err := p.check(ctx, p.conf.StartTimeout/4); {
	case isFault(err):
		return &resourceError{resource: p.conf.Name, err: fmt.Errorf("not started: %w", err)}
	case err != nil && ctx.Err() == nil:
		r.log.Info("resource cannot be checked before its start", "node", r.n.Self, "resource", p.conf.Name, "err", err)
	}
	p.died = false
	err := p.call(ctx, p.Start)
	if errors.Is(err, errNotCalled) {
		return &resourceError{resource: p.conf.Name, err: fmt.Errorf("not started: %w", err)}
	}
	p.used = true
	if err != nil {
		return p.failure(fmt.Errorf("start: %w", err))
	}
	return nil
}

// isFault reports whether an error says whose fault it is.
func isFault(err error) bool {
	return errors.Is(err, resources.ErrSetup) || errors.Is(err, resources.ErrNode) || errors.Is(err, resources.ErrElsewhere)
}
