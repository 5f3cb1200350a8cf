package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/notes"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// Probe implements resources.Resource. A healthy process costs one look at it; all
// processes of the host are read only when the recorded one is not there. To read of a process that hangs may hang, too.
func (c *command) Probe(ctx context.Context) (state resources.State, detail string, err error) {
	held, err := notes.Lock(ctx, c.dir)
	if err != nil {
		return resources.Unknown, "", err
	}
	type look struct {
		state  resources.State
		detail string
	}
	seen := make(chan look, 1)
	err = process.Beside(ctx, func() error {
		defer held.Close()
		state, detail, err := c.probe(ctx)
		seen <- look{state, detail}
		return err
	})
	if err != nil {
		return resources.Unknown, "", err
	}
	l := <-seen
	return l.state, l.detail, nil
}

// probe is called with the lock held.
func (c *command) probe(ctx context.Context) (resources.State, string, error) {
	rec, err := readRecord(c.dir)
	switch {
	case errors.Is(err, errNoRecord):
		return c.probeUnstarted(ctx)
	case err != nil:
		return resources.Unknown, "", err
	case c.runs():
		return c.probeRun(ctx, rec)
	}
	return c.probeService(ctx, rec)
}

// probeUnstarted looks at what hamgr has not started in this boot: at what somebody else has, if there is a monitor.
func (c *command) probeUnstarted(ctx context.Context) (resources.State, string, error) {
	const unstarted = "not started in this boot"
	if left, err := c.unrecorded(ctx); err != nil {
		return resources.Unknown, "", err
	} else if len(left) > 0 {
		return resources.Failed, "runs, though there is no record of its start: " + process.List(left), nil
	}
	if len(c.opts.Monitor) == 0 {
		return resources.Inactive, unstarted, nil
	}
	state, detail, err := c.monitor(ctx)
	switch {
	case errors.Is(err, errAbsent):
		// As it is where the program lies on the group's own file system, which is not mounted here. OCF says the same of
		// an agent that is not installed.
		return resources.Inactive, unstarted + ", and " + err.Error(), nil
	case state == resources.Active:
		return resources.Failed, "active, started by somebody else, without a grant: " + detail, nil
	}
	return state, detail, err
}

// unrecorded are processes of the resource of which there is no record: somebody has cleared the directory of the daemon that
// started them. This daemon keeps its records, so it has to look once.
func (c *command) unrecorded(ctx context.Context) ([]process.Process, error) {
	if c.clear.Load() {
		return nil, nil
	}
	left, err := c.members(ctx, record{})
	if err == nil && len(left) == 0 {
		c.clear.Store(true)
	}
	return left, err
}

func (c *command) probeRun(ctx context.Context, rec record) (resources.State, string, error) {
	leader, err := c.leader(rec)
	if err != nil {
		return resources.Unknown, "", err
	}
	switch {
	case leader.PID != 0 && leader.Leaving():
		return resources.Failed, fmt.Sprintf("%s is ending", leader), nil
	case leader.PID != 0 && rec.halfway() != "":
		return resources.Failed, fmt.Sprintf("%s still runs, and %s", leader, rec.halfway()), nil
	case leader.PID != 0 && rec.Token == c.env.Token:
		return resources.Active, leader.String(), nil
	case leader.PID != 0:
		return resources.Failed, fmt.Sprintf("%s still runs under token %d", leader, rec.Token), nil
	}
	state, detail, err := c.leftOver(ctx, rec)
	if state == resources.Inactive {
		detail = c.reason(ctx, rec)
	}
	return state, detail, err
}

// probeService looks at what start has started, or at least tried to.
func (c *command) probeService(ctx context.Context, rec record) (resources.State, string, error) {
	switch {
	case rec.Boot != c.env.Boot && rec.Boot != "":
		if state, detail, err := c.leftOver(ctx, rec); err != nil || state != resources.Inactive {
			return state, detail, err
		}
		return c.probeUnstarted(ctx)
	case len(c.opts.Monitor) > 0:
		return c.probeMonitored(ctx, rec)
	case rec.halfway() != "":
		return resources.Failed, rec.halfway(), nil
	case rec.Token != c.env.Token:
		return resources.Failed, fmt.Sprintf("started under token %d", rec.Token), nil
	case rec.Left == 0:
		return resources.Active, "started; it has left no process, and there is no monitor to see more", nil
	}
	watched, err := c.watched(ctx, rec)
	if err != nil {
		return resources.Unknown, "", err
	}
	if watched.PID == 0 {
		return resources.Failed, "all of its processes have ended, and stop has not run", nil
	}
	if !watched.Same(rec.left()) {
		rec.Left, rec.LeftStart = watched.PID, watched.Start
		if err := writeRecord(c.dir, rec); err != nil {
			return resources.Unknown, "", err
		}
	}
	return resources.Active, watched.String(), nil
}

// probeMonitored believes the monitor, but for what it cannot know: under which token the service runs, and what else is left.
func (c *command) probeMonitored(ctx context.Context, rec record) (resources.State, string, error) {
	state, detail, err := c.monitor(ctx)
	switch {
	case err != nil:
		return resources.Unknown, "", err
	case state == resources.Inactive:
		if left, what, err := c.leftOver(ctx, rec); err != nil || left != resources.Inactive {
			return left, what, err
		}
	case state == resources.Active && rec.halfway() != "":
		return resources.Failed, rec.halfway() + ": " + detail, nil
	case state == resources.Active && rec.Token != c.env.Token:
		return resources.Failed, fmt.Sprintf("still runs under token %d: %s", rec.Token, detail), nil
	}
	return state, detail, nil
}

// inactive is what monitor says of what is not there: OCF_NOT_RUNNING of the Resource Agent API, "Exit status codes".
const inactive = 7

// monitor asks the command. What it does not say is unknown.
func (c *command) monitor(ctx context.Context) (resources.State, string, error) {
	end, err := c.act(ctx, c.opts.Monitor)
	if err != nil {
		return resources.Unknown, "", fmt.Errorf("monitor: %w", err)
	}
	switch end.status {
	case 0:
		return resources.Active, end.words, nil
	case inactive:
		return resources.Inactive, end.words, nil
	case -1:
		return resources.Unknown, end.words, nil
	}
	return resources.Failed, end.words, nil
}

// leftOver looks for all that the marks lead to. A start that nobody has seen the end of is called off first, or systemd might carry it
// out later.
func (c *command) leftOver(ctx context.Context, rec record) (resources.State, string, error) {
	if rec.Unit != "" && !rec.Done && rec.Boot == c.env.Boot {
		if err := c.callOff(); err != nil {
			return resources.Unknown, "", err
		}
		down, words, err := c.unitState(ctx, rec.Unit)
		if err != nil {
			return resources.Unknown, "", err
		}
		if !down {
			return resources.Failed, fmt.Sprintf("its start was not finished: %s is %s", rec.Unit, words), nil
		}
	}
	left, err := c.members(ctx, rec)
	if err != nil {
		return resources.Unknown, "", err
	}
	if len(left) > 0 {
		return resources.Failed, "left over: " + process.List(left), nil
	}
	return resources.Inactive, "", nil
}

// leader is the recorded process; zero if it does not run.
func (c *command) leader(rec record) (process.Process, error) {
	if rec.PID == 0 || rec.Boot != c.env.Boot {
		return process.Process{}, nil
	}
	return c.running(rec.process())
}

func (c *command) running(p process.Process) (process.Process, error) {
	now, err := process.Look(p.PID)
	switch {
	case errors.Is(err, process.ErrGone):
		return process.Process{}, nil
	case err != nil:
		return process.Process{}, fmt.Errorf("look at PID %d: %w", p.PID, err)
	case !now.Same(p):
		return process.Process{}, nil
	case now.Ended():
		c.exits.reap(now)
		return process.Process{}, nil
	}
	return now, nil
}

// watched is a process of the service, the recorded one if it still runs, else the oldest; zero if there is none.
func (c *command) watched(ctx context.Context, rec record) (process.Process, error) {
	p, err := c.running(rec.left())
	if err != nil || p.PID != 0 {
		return p, err
	}
	left, err := c.members(ctx, rec)
	return oldest(left), err
}

func oldest(list []process.Process) (first process.Process) {
	for _, p := range list {
		if first.PID == 0 || p.Start < first.Start {
			first = p
		}
	}
	return first
}

// reason says how the recorded process ended.
func (c *command) reason(ctx context.Context, rec record) string {
	words := c.exits.reason(rec.process())
	if rec.Unit != "" {
		words += c.unitReason(ctx, rec.Unit)
	}
	return words
}
