package filesystem

import (
	"context"
	"fmt"
	"sync"
)

// gate lets one call at a time into the kernel. A call that hangs keeps the gate shut until
// the kernel lets go of it, so that a broken disk holds one goroutine (and thread) and no
// more, however often it is asked; and what comes after a mount or a check that still
// hangs waits for it.
type gate struct {
	inside chan struct{} // full while a call runs
}

// gates has one for each mount point, not for each resource: those are made anew with each grant.
var gates sync.Map

func gateOf(name string) *gate {
	g, _ := gates.LoadOrStore(name, &gate{inside: make(chan struct{}, 1)})
	return g.(*gate)
}

// pass runs a call that may hang, for as long as the context allows.
func pass[T any](ctx context.Context, g *gate, what string, run func() (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	select {
	case g.inside <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("%s: an earlier call still hangs in the kernel: %w", what, ctx.Err())
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, err := run()
		<-g.inside
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, fmt.Errorf("%s: the kernel does not answer: %w", what, ctx.Err())
	}
}

// enter is pass for a call without a result.
func (g *gate) enter(ctx context.Context, what string, run func() error) error {
	_, err := pass(ctx, g, what, func() (struct{}, error) { return struct{}{}, run() })
	return err
}
