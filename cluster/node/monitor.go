package node

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/resources"
)

// failure is a resource that failed while it ran, and whose failure is not to be ignored.
type failure struct {
	index int
	err   *resourceError
}

// watchOver watches the resources, whenever the group is not in maintenance, until one fails; look says that they are
// to be looked at first, all of them. The error is that of ctx.
func (r *runner) watchOver(ctx context.Context, look bool) (*failure, error) {
	for ; ; look = true {
		why, turns := r.maintained.now()
		if r.left != (why != "") {
			if err := r.record(); err != nil {
				r.log.Error("maintenance is not recorded for the next daemon", "node", r.n.Self, "err", err)
			}
		}
		if why == "" {
			round, cancel := context.WithCancel(ctx)
			go func() {
				select {
				case <-turns:
					cancel()
				case <-round.Done():
				}
			}()
			f := r.watch(round, look)
			cancel()
			if f != nil || ctx.Err() != nil {
				return f, ctx.Err()
			}
			continue
		}
		r.log.Info("group is left alone", "node", r.n.Self, "reason", why)
		r.leaveAlone(why)
		select {
		case <-turns:
			r.log.Info("group is watched again: its maintenance is over", "node", r.n.Self)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// leaveAlone shows that what is known of the resources gets old.
func (r *runner) leaveAlone(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.parts {
		p.detail = "not looked at: " + why
	}
}

// watch monitors all resources until one fails; nil if ctx ends first.
func (r *runner) watch(ctx context.Context, look bool) *failure {
	ctx, cancel := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer cancel()
	if look {
		if f := r.lookAtAll(ctx); f != nil || ctx.Err() != nil {
			return f
		}
		r.unsure = false
	}
	failures := make(chan *failure, 2*len(r.parts))
	for i, p := range r.parts {
		tell := func(err *resourceError) {
			if err != nil {
				failures <- &failure{i, err}
			}
		}
		watchers.Go(func() { tell(r.monitor(ctx, p)) })
		if w, ok := p.Resource.(resources.Watcher); ok && !p.died {
			watchers.Go(func() { tell(r.awaitDeath(ctx, p, w, look)) })
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case f := <-failures:
		return f
	}
}

// lookAtAll looks at every resource, and gives the failure that comes first in the group's order: with it, all after
// it are restarted.
func (r *runner) lookAtAll(ctx context.Context) *failure {
	found := make([]*resourceError, len(r.parts))
	var looks sync.WaitGroup
	for i, p := range r.parts {
		looks.Go(func() { found[i] = r.monitorPresent(ctx, p) })
	}
	looks.Wait()
	for i, err := range found {
		if err != nil {
			return &failure{i, err}
		}
	}
	return nil
}

// monitor looks at one resource at its interval until it fails; nil if ctx ends first.
func (r *runner) monitor(ctx context.Context, p *part) *resourceError {
	every := p.conf.MonitorInterval
	timer := time.NewTimer(spread(r.group.Name+"/"+p.conf.Name, every))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(every)
		if err := r.monitorPresent(ctx, p); err != nil {
			return err
		}
	}
}

// monitorPresent looks at one resource as the holder of the present. What a node saw before it stood still, and what it
// sees before it has asked whether it holds the group still, is nothing to act upon.
func (r *runner) monitorPresent(ctx context.Context, p *part) *resourceError {
	for {
		if r.n.trust.wait(ctx) != nil {
			return nil
		}
		if err := r.monitorOnce(ctx, p); err == nil || r.n.trust.now() {
			return err
		}
	}
}

// spread gives each resource its own part of the interval for its first monitor: what started together is not
// looked at together for ever.
func spread(resource string, interval time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(resource))
	const steps = 1 << 10
	return interval / steps * time.Duration(1+h.Sum32()%steps)
}

// monitorOnce looks at one resource. One that is not certainly active, or cannot be looked at in time, has failed.
func (r *runner) monitorOnce(ctx context.Context, p *part) *resourceError {
	s, detail, err := p.look(ctx, p.conf.MonitorTimeout)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return r.failed(p, fmt.Errorf("monitor: %w", err))
	case s != resources.Active:
		return r.failed(p, fmt.Errorf("monitor: %s: %s", s, detail))
	}
	if was := r.note(p, s, detail); was == resources.Failed {
		r.log.Info("resource is well again", "node", r.n.Self, "resource", p.conf.Name)
	}
	return nil
}

// awaitDeath waits for the end of a resource that can tell it; nil if ctx ends first. It would tell the same again
// until the next start, so that it is asked once. Of one that was not started since it was last left alone, an operator
// may have replaced what hamgr started: its own word on how it is counts for more.
func (r *runner) awaitDeath(ctx context.Context, p *part, w resources.Watcher, adopted bool) *resourceError {
	err := w.Died(ctx)
	if ctx.Err() != nil {
		return nil
	}
	p.died = true
	if r.n.trust.wait(ctx) != nil {
		return nil
	}
	if adopted {
		return r.monitorOnce(ctx, p)
	}
	return r.failed(p, fmt.Errorf("died: %w", err))
}

// failed notes a failure; nil if it is to be ignored, beyond that it is shown.
func (r *runner) failed(p *part, err error) *resourceError {
	was := r.note(p, resources.Failed, err.Error())
	if p.onFail() != config.OnFailIgnore {
		return p.failure(err)
	}
	if was != resources.Failed {
		r.log.Warn("resource failed, which is ignored", "node", r.n.Self, "resource", p.conf.Name, "err", err)
	}
	return nil
}
