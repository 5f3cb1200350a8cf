package address

import (
	"context"
	"fmt"
)

// bounded runs a request that may hang in the kernel, for as long as the context allows.
func bounded[T any](ctx context.Context, call func() (T, error)) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, err
	}
	return beside(ctx, call, nil)
}

// beside runs a call beside the caller, who waits no longer than the context allows. In the end it is told to a
// function whether the caller took the result; if not, whatever it holds is that function's to undo.
func beside[T any](ctx context.Context, call func() (T, error), finish func(v T, err error, taken bool)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result) // unbuffered: what was sent was taken
	go func() {
		var r result
		var taken bool
		r.value, r.err = call()
		select {
		case done <- r:
			taken = true
		case <-ctx.Done():
		}
		if finish != nil {
			finish(r.value, r.err, taken)
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("the kernel does not answer: %w", ctx.Err())
	}
}
