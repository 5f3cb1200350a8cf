package process

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrHangs says that something of a call is left although its time is over.
var ErrHangs = errors.New("something hangs in the kernel")

// patience is how long a call waits for its end after its context has ended.
const patience = 35 * time.Millisecond

// Beside runs f, which obeys ctx unless the kernel holds it, because of a disk that does not answer. Then the
// caller is let go with ErrHangs; f keeps what it holds, such as a lock, until it comes back.
func Beside(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return fmt.Errorf("%w: %w", ErrHangs, ctx.Err())
	}
}

// Sleep ends early, with the context's error, when the context does.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
