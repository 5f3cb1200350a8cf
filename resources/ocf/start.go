package ocf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// Start implements resources.Resource. What is active already, and was not started under this grant, is an
// error: it would have another token. So is a start after which the agent's own monitor does not say that it runs.
func (o *ocf) Start(ctx context.Context) error {
	err := process.Beside(ctx, func() error { return o.start(ctx) })
	if err != nil {
		return fmt.Errorf("start by %s: %w", o.name, err)
	}
	return nil
}

func (o *ocf) start(ctx context.Context) error {
	held, err := lock(ctx, o.env.Dir)
	if err != nil {
		return err
	}
	defer held.Close()
	if err := o.endEarlier(ctx); err != nil {
		return err
	}
	m, err := o.fit(ctx)
	if err != nil {
		return err
	}
	begun, err := o.begun()
	if err != nil {
		return err
	}
	state, detail, err := o.monitor(ctx, m, begun != nil)
	switch {
	case err != nil:
		return fmt.Errorf("look beforehand: %w", err)
	case state == resources.Active && begun != nil && begun.Token == o.env.Token:
		return nil
	case state == resources.Active && begun != nil:
		return fmt.Errorf("still runs under token %d; it must be stopped first", begun.Token)
	case state != resources.Inactive && begun != nil:
		return fmt.Errorf("what was started is %s: %s; it must be stopped first", state, detail)
	case state != resources.Inactive:
		return fmt.Errorf("is %s already, and hamgr did not start it: %s; it must be stopped first", state, detail)
	}
	if err := o.note(startedFile, ""); err != nil {
		return err
	}
	o.warnIfShort(ctx, m, "start")
	r, err := o.run(ctx, call{action: "start"})
	if err != nil {
		return err
	}
	if r.status != success {
		return errors.Join(r.err(), o.undo(ctx, m, r))
	}
	state, detail, err = o.monitor(ctx, m, true)
	if err == nil && state != resources.Active {
		err = fmt.Errorf("the agent says that it did, but its monitor: %s: %s", state, detail)
	}
	return err
}

// undo takes the record back where the agent refused to begin, and its monitor says that nothing is here: what
// cannot even be tried on this host must not be a stop that fails.
func (o *ocf) undo(ctx context.Context, m *metadata, r result) error {
	if !r.refused() {
		return nil
	}
	if state, _, err := o.monitor(ctx, m, false); err != nil || state != resources.Inactive {
		return nil
	}
	return o.forget(startedFile)
}

// warnIfShort tells of a deadline shorter than the agent asks for.
func (o *ocf) warnIfShort(ctx context.Context, m *metadata, action string) {
	end, ok := ctx.Deadline()
	if advised := m.timeout(action); ok && time.Until(end) < advised*9/10 {
		o.env.Log.Warn("less time than the agent asks for", "op", action, "agent", o.name.String(), "has", time.Until(end).Round(time.Millisecond), "asks", advised)
	}
}

// Stop implements resources.Resource. The agent's stop must succeed, and then its monitor must say that nothing
// runs. The metadata are not read: what has happened to the agent's file must not keep a stop from being tried.
func (o *ocf) Stop(ctx context.Context) error {
	err := process.Beside(ctx, func() error { return o.stop(ctx) })
	if err != nil {
		return fmt.Errorf("stop by %s: %w", o.name, err)
	}
	return nil
}

func (o *ocf) stop(ctx context.Context) error {
	held, err := lock(ctx, o.env.Dir)
	if err != nil {
		return err
	}
	defer held.Close()
	if err := o.endEarlier(ctx); err != nil {
		return err
	}
	begun, err := o.begun()
	if err != nil {
		return err
	}
	if begun == nil && o.untouched(ctx) {
		return nil
	}
	// Those that are there now are waited for by their numbers: while they end they bear no mark.
	known, err := o.offspring(ctx)
	if err != nil {
		return err
	}
	if err := o.orderStop(ctx); err != nil {
		return err
	}
	if err := o.verifyStopped(ctx); err != nil {
		return err
	}
	if err := o.awaitOffspring(ctx, known); err != nil {
		return err
	}
	return o.forget(startedFile)
}

// untouched reports whether there is nothing to stop, where hamgr has not begun to start anything in this boot.
// An agent that refuses to work here, or that is not even installed, was not what started anything: a setup
// that is wrong on every node must not fence every node.
func (o *ocf) untouched(ctx context.Context) bool {
	ctx, cancel := share(ctx, 0.3)
	defer cancel()
	err := o.runnable()
	if err == nil {
		var r result
		if r, err = o.run(ctx, call{action: "monitor"}); err != nil {
			return false
		}
		if r.status == notRunning {
			return true
		}
		if !r.refused() {
			return false
		}
		err = r.err()
	}
	o.env.Log.Warn("nothing was started in this boot, and the agent cannot look", "op", "stop", "agent", o.name.String(), "err", err)
	return true
}

// runnable reports whether there is an agent, with parameters.
func (o *ocf) runnable() error {
	if _, err := o.name.look(o.opts.Root); err != nil {
		return err
	}
	_, _, err := o.params()
	return err
}

func (o *ocf) orderStop(ctx context.Context) error {
	ctx, cancel := share(ctx, 0.8) // the monitor needs some of it
	defer cancel()
	r, err := o.run(ctx, call{action: "stop"})
	if err == nil && r.status != success {
		err = r.err()
	}
	return err
}

func (o *ocf) verifyStopped(ctx context.Context) error {
	state, detail, err := o.monitor(ctx, nil, false)
	if err != nil {
		return fmt.Errorf("look whether it has stopped: %w", err)
	}
	if state != resources.Inactive {
		return fmt.Errorf("the agent's stop is over, but its monitor: %s: %s", state, detail)
	}
	return nil
}

// offspringTime is how long a stop waits for processes that the agent takes for gone.
const offspringTime = 2 * time.Second

// awaitOffspring waits for the end of the processes that the service consisted of: several agents only send them a
// signal. That some stay is no failure, because agents leave daemons behind on purpose that others share, such as
// rpcbind; but it is told.
func (o *ocf) awaitOffspring(ctx context.Context, known []process.Process) error {
	wait, cancel := context.WithTimeout(ctx, offspringTime)
	defer cancel()
	for left := known; ; {
		for _, p := range left {
			if err := p.Wait(wait); err != nil && wait.Err() == nil {
				return err
			}
		}
		now, err := o.offspring(ctx)
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(p process.Process) bool {
			return p.Gone() || slices.ContainsFunc(now, p.Same)
		})
		if left = append(left, now...); len(left) == 0 {
			return nil
		}
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("wait for what the agent has started: %s: %w", process.List(left), ctx.Err())
		case wait.Err() != nil:
			o.env.Log.Warn("the agent says that all has stopped, and processes that it started are left", "op", "stop", "agent", o.name.String(), "processes", process.List(left))
			return nil
		}
	}
}

// share gives a part of the time that is left.
func share(ctx context.Context, part float64) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok {
		return context.WithTimeout(ctx, time.Duration(part*float64(time.Until(end))))
	}
	return context.WithCancel(ctx)
}
