package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hamgr/hamgr/resources"
)

// watch monitors all resources of the group until one fails, and gives its index.
func (r *runner) watch(ctx context.Context) (failed int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type failure struct {
		index int
		err   error
	}
	failures := make(chan failure, 2*len(r.parts))
	var wg sync.WaitGroup
	for i, p := range r.parts {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := r.monitor(ctx, p); err != nil && ctx.Err() == nil {
				failures <- failure{i, err}
			}
		}()
		if w, ok := p.Resource.(resources.Watcher); ok {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if err := w.Died(ctx); ctx.Err() == nil {
					failures <- failure{i, fmt.Errorf("died: %w", err)}
				}
			}()
		}
	}
	select {
	case <-ctx.Done():
	case f := <-failures:
		p := r.parts[f.index]
		r.note(p, resources.Failed, f.err.Error())
		failed, err = f.index, &resourceError{p.conf.Name, f.err}
	}
	cancel()
	wg.Wait()
	return failed, err
}

// monitor probes one resource at its interval until it is not active.
func (r *runner) monitor(ctx context.Context, p *part) error {
	ticker := time.NewTicker(p.conf.MonitorInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		s, detail, err := probe(ctx, p.Resource, p.conf.MonitorTimeout)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case err != nil:
			return fmt.Errorf("monitor: %w", err)
		case s != resources.Active:
			return fmt.Errorf("monitor: %s: %s", s, detail)
		}
		r.note(p, s, detail)
	}
}

func probe(ctx context.Context, res resources.Resource, limit time.Duration) (resources.State, string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return res.Probe(ctx)
}
