package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Ending says how a set of processes is to be ended.
type Ending struct {
	// Find lists who is to be ended, as of now. Every process that it ever named
	// stays wanted until it is gone.
	Find func(context.Context) ([]Process, error)
	// Known are wanted from the beginning, whether Find still names them or not.
	Known []Process
	// Signal is sent once, to those found first, followed by SIGCONT so that a stopped
	// process acts on it. What they start in order to shut down is left to work.
	Signal unix.Signal
	// Grace is how long they have before all that are left get SIGKILL. It is cut to
	// three quarters of the time that the context has left.
	Grace time.Duration
	// KillAll, if not nil, is called whenever SIGKILL is sent, and reaches those too that are born while Find looks.
	KillAll func()
	// Reap is called for a process that has ended but is still a zombie.
	Reap func(Process)
}

// pause between two looks while processes are being killed.
const pause = 5 * time.Millisecond

// End returns nil when none of the processes is left, judged by two looks in a row
// because one may miss a process that is born while it looks. When the context ends
// first, the error names who is left.
func (e Ending) End(ctx context.Context) error {
	left, err := e.remaining(ctx, e.Known)
	if err != nil || len(left) == 0 {
		return err
	}
	if err := signalAll(left, e.Signal, unix.SIGCONT); err != nil {
		return err
	}
	grace, cancel := context.WithTimeout(ctx, e.grace(ctx))
	defer cancel()
	for empty := 0; empty < 2; {
		if err := waitAll(grace, left); err != nil && ctx.Err() == nil && grace.Err() == nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s did not end: %w", List(left), ctx.Err())
		}
		known := left
		left, err = e.remaining(ctx, known)
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("%s did not end: %w", List(known), err)
		}
		if err != nil {
			return err
		}
		if len(left) == 0 {
			empty++
			continue
		}
		empty = 0
		if grace.Err() != nil {
			if e.KillAll != nil {
				e.KillAll()
			}
			if err := signalAll(left, unix.SIGKILL); err != nil {
				return err
			}
			Sleep(ctx, pause)
		}
	}
	return nil
}

// grace leaves a quarter of the context's time for SIGKILL to work.
func (e Ending) grace(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(e.Grace, time.Until(end)*3/4)
	}
	return e.Grace
}

// remaining are the processes found now, and those known before that still run.
func (e Ending) remaining(ctx context.Context, known []Process) ([]Process, error) {
	left, err := e.Find(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range known {
		now, err := Look(p.PID)
		switch {
		case errors.Is(err, ErrGone) || err == nil && !now.Same(p):
		case err != nil:
			return nil, err
		case now.Ended():
			if e.Reap != nil {
				e.Reap(now)
			}
		case !slices.ContainsFunc(left, p.Same):
			left = append(left, now)
		}
	}
	return left, nil
}

// signalAll tries every process, whatever happens with the others.
func signalAll(ps []Process, sigs ...unix.Signal) error {
	var errs []error
	for _, p := range ps {
		for _, sig := range sigs {
			if err := p.Signal(sig); err != nil && !errors.Is(err, ErrGone) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func waitAll(ctx context.Context, ps []Process) error {
	for _, p := range ps {
		if err := p.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// List names processes for operators, not more than a handful.
func List(ps []Process) string {
	const most = 5
	var names []string
	for _, p := range ps[:min(len(ps), most)] {
		if now, err := Look(p.PID); err == nil && now.Same(p) {
			p = now
		}
		names = append(names, p.String())
	}
	if len(ps) > most {
		names = append(names, fmt.Sprintf("%d more", len(ps)-most))
	}
	return strings.Join(names, ", ")
}
