package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hamgr/hamgr/resources"
)

// callGrace is how long after its end of time a call of a resource may still take to return. What it says then
// counts: it knows more than that its time is over.
const callGrace = 2 * time.Second

// errNotCalled: the call was not made at all.
var errNotCalled = errors.New("an earlier call still hangs")

// call makes one call of the resource. A kind that hangs, against its contract, does not take its caller along, and no
// second call is made before the first one has returned: a stop that succeeds is one that nothing still works against.
func (p *part) call(ctx context.Context, f func(context.Context) error) error {
	select {
	case p.busy <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotCalled, ctx.Err())
	}
	done := make(chan error, 1)
	go func() {
		err := f(ctx)
		<-p.busy
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(callGrace)
	defer grace.Stop()
	select {
	case err := <-done:
		return err
	case <-grace.C:
		return fmt.Errorf("does not return, %s after its time was over: %w", callGrace, ctx.Err())
	}
}

// look probes the resource.
func (p *part) look(ctx context.Context, limit time.Duration) (resources.State, string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var seen struct {
		state  resources.State
		detail string
	}
	err := p.call(ctx, func(ctx context.Context) (err error) {
		seen.state, seen.detail, err = p.Probe(ctx)
		return err
	})
	if err != nil { // and seen may still be written to
		return resources.Unknown, "", err
	}
	return seen.state, seen.detail, nil
}

// check asks the resource, if it can tell, whether it would start here.
func (p *part) check(ctx context.Context, limit time.Duration) error {
	c, ok := p.Resource.(resources.Checker)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return p.call(ctx, c.Check)
}
