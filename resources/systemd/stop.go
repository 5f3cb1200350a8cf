package systemd

import (
	"context"
	"fmt"
	"time"

	"github.com/hamgr/hamgr/resources/internal/bus"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// Stop implements resources.Resource. How the service is ended is up to the unit (KillMode=, TimeoutStopSec=,
// SendSIGKILL=); whatever is left of it then is a stop that has failed, and never killed here.
func (s *service) Stop(ctx context.Context) error {
	if err := s.stop(ctx); err != nil {
		return fmt.Errorf("stop %s: %w", s.opts.Unit, err)
	}
	return nil
}

func (s *service) stop(ctx context.Context) error {
	if err := s.starts.settled(ctx, s.opts.Unit); err != nil {
		return err
	}
	m, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	u, err := m.Unit(ctx, s.opts.Unit)
	if err != nil {
		return err
	}
	// A socket or a timer that is active would start the service again. Check has refused such a service; this one came later.
	for _, trigger := range u.Texts("TriggeredBy") {
		if err := s.end(ctx, m, trigger); err != nil {
			return fmt.Errorf("it could be started again by %s: %w", trigger, err)
		}
	}
	if err := s.end(ctx, m, s.opts.Unit); err != nil {
		return err
	}
	return s.removeDropIn()
}

// lastLook is the time that a stop which has failed may take to say how it left the unit.
const lastLook = 25 * time.Millisecond

// end has a unit stopped until nothing is left of it.
func (s *service) end(ctx context.Context, m manager, name string) error {
	seen, job := "systemd did not tell how it is", ""
	failed := func(err error) error {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
		defer cancel()
		if left, _, err := remains(last, m, name); err == nil && left != "" {
			seen = left
		}
		return fmt.Errorf("%s%s: %w; see journalctl -u %s", seen, job, err, name)
	}
	for pause := time.Duration(0); ; pause = min(2*pause+10*time.Millisecond, bus.LookInterval) {
		left, busy, err := remains(ctx, m, name)
		if err != nil {
			return failed(err)
		}
		if left == "" {
			return nil
		}
		seen = left
		if busy {
			id, result, err := m.Enqueue(ctx, "StopUnit", name)
			if err != nil {
				return failed(err)
			}
			word, err := bus.Await(ctx, m, name, id, result)
			if err != nil {
				return failed(err) // the stop job stays: that the unit ends is still wanted
			}
			job = ", and its stop job " + bus.ResultWords(word)
		}
		if err := process.Sleep(ctx, pause); err != nil {
			return failed(err)
		}
	}
}

// remains says what is left of a unit, and whether a stop job is needed for it. What only processes are left
// of has been stopped; those the unit lets end by themselves.
func remains(ctx context.Context, m manager, name string) (left string, busy bool, err error) {
	u, err := m.Unit(ctx, name)
	switch {
	case err != nil:
		return "", false, err
	case !u.IsDown():
		return "it is " + u.State(), true, nil
	case u.Job() != 0:
		return fmt.Sprintf("it is %s, and job %d is queued for it", u.State(), u.Job()), true, nil
	}
	processes, err := m.Processes(ctx, name)
	if err != nil || len(processes) == 0 {
		return "", false, err
	}
	return fmt.Sprintf("it is %s, and has left %s", u.State(), list(processes)), false, nil
}
