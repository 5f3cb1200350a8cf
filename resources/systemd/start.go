package systemd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/bus"
)

// Start implements resources.Resource. It returns when the start job is done and the unit is active, or ReadyAfter later.
func (s *service) Start(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return fmt.Errorf("start %s: %w", s.opts.Unit, err)
	}
	return nil
}

func (s *service) start(ctx context.Context) error {
	if err := s.starts.settled(ctx, s.opts.Unit); err != nil {
		return err
	}
	m, err := s.dial(ctx)
	if err != nil {
		return err
	}
	s.run.set("") // the run that is found next is the one
	active, err := s.prepare(ctx, m)
	if err != nil || active {
		m.Close()
		return err
	}
	if err := s.startUnit(ctx, m); err != nil {
		return err
	}
	return s.ready(ctx)
}

// prepare does what comes before the start job, unless the unit is active already.
func (s *service) prepare(ctx context.Context, m manager) (active bool, err error) {
	state, detail, err := s.look(ctx, m)
	switch {
	case err != nil:
		return false, err
	case state == resources.Active:
		return true, nil
	case state != resources.Inactive:
		return false, fmt.Errorf("it is %s; it must be stopped first", detail)
	}
	if err := s.checkNow(ctx, m); err != nil {
		return false, err
	}
	if err := s.writeDropIn(); err != nil {
		return false, err
	}
	if err := s.handToken(ctx, m); err != nil {
		return false, err
	}
	if err := s.checkNow(ctx, m); err != nil { // with the files as they are now
		return false, err
	}
	// How often a unit starts is for the group's policy to limit, not for the unit's StartLimitBurst=.
	return false, m.ResetFailed(ctx, s.opts.Unit)
}

// handToken makes sure that systemd knows the drop-in. It reads one by itself when it loads the unit, which it does anew as a
// rule; only if it remembers an older state, it must read all units again.
func (s *service) handToken(ctx context.Context, m manager) error {
	known, err := s.tokenKnown(ctx, m)
	if err != nil || known {
		return err
	}
	if err := m.Reload(ctx); err != nil {
		return fmt.Errorf("make systemd read its units again: %w", err)
	}
	if known, err = s.tokenKnown(ctx, m); err != nil || known {
		return err
	}
	return s.refuse("is not given the token: systemd does not heed %s; another file may take its place: see systemctl cat %s", s.dropInPath(s.opts.Unit), s.opts.Unit)
}

// tokenKnown looks at what systemd would start, which is all that counts: neither the file nor its time.
func (s *service) tokenKnown(ctx context.Context, m manager) (bool, error) {
	u, err := m.Unit(ctx, s.opts.Unit)
	if err != nil {
		return false, err
	}
	p, err := m.Service(ctx, s.opts.Unit)
	if err != nil {
		return false, err
	}
	known := !u.Flag("NeedDaemonReload") && p.Text("Restart") == "no"
	for _, variable := range s.env.Environ() {
		known = known && slices.Contains(p.Texts("Environment"), variable)
	}
	return known, nil
}

func (s *service) checkNow(ctx context.Context, m manager) error {
	u, err := m.Unit(ctx, s.opts.Unit)
	if err != nil {
		return err
	}
	return s.check(ctx, m, u)
}

// startUnit has the unit started, and takes the connection over. When the context ends first it returns at
// once; the job is cancelled behind it, as soon as systemd has told its number.
func (s *service) startUnit(ctx context.Context, m manager) error {
	if err := ctx.Err(); err != nil {
		m.Close()
		return err
	}
	end := s.starts.begin(s.opts.Unit)
	done := make(chan error, 1)
	go func() {
		err := s.runStart(ctx, m)
		m.Close()
		end()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("it was not done in time, and is called off: %w", ctx.Err())
	}
}

func (s *service) runStart(ctx context.Context, m manager) error {
	lasting := context.WithoutCancel(ctx) // ends with the connection
	job, result, err := m.Enqueue(lasting, "StartUnit", s.opts.Unit)
	if err != nil {
		return err
	}
	word, err := bus.Await(ctx, m, s.opts.Unit, job, result)
	if err != nil {
		return errors.Join(err, m.Cancel(lasting, job))
	}
	if word == "done" {
		return nil
	}
	u, err := m.Unit(ctx, s.opts.Unit)
	if err != nil {
		return fmt.Errorf("the start job %s: %w", bus.ResultWords(word), err)
	}
	if word == "" && u.IsActive() {
		return nil
	}
	return fmt.Errorf("the start job %s; the unit is %s; %s", bus.ResultWords(word), s.describe(ctx, m, u), s.journal())
}

// ready makes sure that the unit is active: a start job is also done where a condition of the unit does not hold.
func (s *service) ready(ctx context.Context) error {
	state, detail, err := s.Probe(ctx)
	if err != nil {
		return err
	}
	if state != resources.Active {
		return fmt.Errorf("its start job is done, but it is %s: it has ended at once, or a condition of the unit (Condition...=) does not hold; %s", detail, s.journal())
	}
	if s.opts.ReadyAfter == 0 {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, s.opts.ReadyAfter)
	defer cancel()
	if err := s.Died(wait); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return ctx.Err()
}
