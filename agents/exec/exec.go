// Package exec is the fence agent that runs ClusterLabs fence agents (fence_*), unchanged.
//
// Such a program gets its options on standard input, acts on one plug, and ends. hamgr lets it read the
// power state, and order off and on; it never asks for a reboot, and believes an off only
// if the program's exit status and its words agree.
//
// What the program needs is learned from its metadata. Its process group is killed whole when
// the time is over; how that is done resembles resources/internal/process, which agents may
// not import, and is simpler: the group is always our own child's.
package exec

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/hamgr/hamgr/agents"
)

// Kind is the registry's entry.
func Kind() agents.Kind {
	return agents.Kind{
		Name:     "exec",
		Doc:      "any ClusterLabs fence agent that switches power (fence_apc, fence_bladecenter and others)",
		Options:  func() agents.Options { return &Options{See: seesFeed} },
		Example:  example,
		Programs: programs,
		Describe: describe,
	}
}

var (
	_ agents.Agent    = (*agent)(nil)
	_ agents.Checker  = (*agent)(nil)
	_ agents.Options  = (*Options)(nil)
	_ agents.Observer = (*Options)(nil)
)

// agent is a handle on one device. It holds nothing open between calls.
type agent struct {
	opts   Options
	log    *slog.Logger
	censor censor
	closed bool
	listed map[string]bool // plugs that the device was seen to have
}

// Format keeps the secrets, which lie in fields that fmt would print, out of every text.
func (a *agent) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "exec %s", a.opts.Command) }

// program is a fence agent that can be run.
type program struct {
	path     string
	metadata *metadata
	settings []setting
}

// prepare finds the program and holds the options against its metadata.
func (a *agent) prepare(ctx context.Context) (program, error) {
	if a.closed {
		return program{}, errClosed
	}
	path, err := findProgram(a.opts.Command)
	if err != nil {
		return program{}, err
	}
	m, err := readMetadata(ctx, path)
	if err != nil {
		return program{}, fmt.Errorf("read its metadata: %w", err)
	}
	if err := m.unfit(path); err != nil {
		return program{}, err
	}
	settings, err := a.opts.settings(m)
	return program{path, m, settings}, err
}

// prepareFor does that for one plug.
func (a *agent) prepareFor(ctx context.Context, plug string) (program, error) {
	p, err := a.prepare(ctx)
	if err == nil {
		err = p.metadata.checkPlug(plug, p.settings)
	}
	return p, err
}

// run lets the program act once.
func (a *agent) run(ctx context.Context, p program, action, plug string) (result, error) {
	if !p.metadata.can(action) {
		return result{}, fmt.Errorf("%w: it has no action %q", agents.ErrUnfit, action)
	}
	stdin, err := input(ctx, p.metadata, p.settings, action, plug)
	if err != nil {
		return result{}, err
	}
	most := mostStdout
	if action == "list" {
		most = mostList
	}
	r, err := execute(ctx, p.path, stdin, most)
	if err != nil {
		return result{}, err
	}
	a.log.Debug("fence agent ended", "action", action, "plug", plug, "ending", r.ending, "stderr", a.censor.say(r.stderr))
	return r, nil
}

// Status lets the program read the power state.
func (a *agent) Status(ctx context.Context, plug string) (agents.Reading, error) {
	reading, err := a.status(ctx, plug)
	return reading, a.fail(ctx, "reading the power state", plug, err)
}

// status does not believe the off of a plug that the device does not have: there are agents to
// which everything that is not on is off, a plug that does not exist included (fence_apc_snmp).
func (a *agent) status(ctx context.Context, plug string) (agents.Reading, error) {
	p, err := a.prepareFor(ctx, plug)
	if err != nil {
		return agents.Reading{}, err
	}
	r, err := a.run(ctx, p, "status", plug)
	if err != nil {
		return agents.Reading{}, err
	}
	reading, err := r.reading(a.censor)
	if err == nil && reading.State == agents.Off {
		err = a.look(ctx, p, plug)
	}
	if err != nil {
		return agents.Reading{}, err
	}
	return reading, nil
}

// The exit statuses of the action status (fence_action of fencing.py). 2 is also what Python and shells end
// with when they cannot run a program, and what the library calls wrong arguments.
const (
	exitOn  = 0
	exitOff = 2
)

// reading is what the program says of the power: by its exit status, and in words, as "Status: OFF". An off
// needs both, and nothing that contradicts.
func (r result) reading(c censor) (agents.Reading, error) {
	if r.status != exitOn && r.status != exitOff {
		return agents.Reading{}, r.refusal(c)
	}
	if r.cut {
		return agents.Reading{}, fmt.Errorf("%w: it printed too much, or has left somebody behind who prints", agents.ErrProtocol)
	}
	on, off, other := 0, 0, ""
	for line := range strings.Lines(r.stdout) {
		key, word, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || !strings.EqualFold(key, "status") {
			continue
		}
		switch word = strings.TrimSpace(word); strings.ToUpper(word) {
		case "ON":
			on++
		case "OFF":
			off++
		default:
			other = word
		}
	}
	words := on + off
	switch {
	case other != "":
		return agents.Reading{Detail: agents.Clip(c.say(other), 40)}, nil
	case r.status == exitOff && off == 1 && on == 0:
		return agents.Reading{State: agents.Off, Detail: "Status: OFF"}, nil
	case r.status == exitOff && words == 0:
		return agents.Reading{}, fmt.Errorf(`without the words "Status: OFF": %w`, r.refusal(c))
	case r.status == exitOn && off == 0:
		return agents.Reading{State: agents.On, Detail: r.ending}, nil
	}
	return agents.Reading{Detail: fmt.Sprintf("%s, but its words say on %d times and off %d times", r.ending, on, off)}, nil
}

// Off lets the program order off. It looks by itself whether that helps, which is not relied upon.
func (a *agent) Off(ctx context.Context, plug string) error {
	return a.fail(ctx, "ordering off", plug, a.order(ctx, "off", plug))
}

// On lets the program order on.
func (a *agent) On(ctx context.Context, plug string) error {
	return a.fail(ctx, "ordering on", plug, a.order(ctx, "on", plug))
}

func (a *agent) order(ctx context.Context, action, plug string) error {
	p, err := a.prepareFor(ctx, plug)
	if err != nil {
		return err
	}
	_, err = a.succeed(ctx, p, action, plug)
	return err
}

// succeed is a run whose only good end is the exit status 0.
func (a *agent) succeed(ctx context.Context, p program, action, plug string) (result, error) {
	r, err := a.run(ctx, p, action, plug)
	if err == nil && r.status != 0 {
		err = r.refusal(a.censor)
	}
	return r, err
}

// Close ends the handle. Nothing is open.
func (a *agent) Close(context.Context) error {
	a.closed = true
	return nil
}
