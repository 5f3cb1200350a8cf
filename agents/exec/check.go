package exec

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/agents"
)

// Check holds the options against the program's metadata, lets it monitor its device, and looks for the
// plug in its list, if it has one. Whether the account may switch the power, no fence agent can tell.
func (a *agent) Check(ctx context.Context, plug string) error {
	return a.fail(ctx, "checking", plug, a.check(ctx, plug))
}

func (a *agent) check(ctx context.Context, plug string) error {
	p, err := a.prepareFor(ctx, plug)
	if err != nil {
		return err
	}
	if p.metadata.can("monitor") {
		if _, err := a.succeed(ctx, p, "monitor", plug); err != nil {
			return fmt.Errorf("monitor: %w", err)
		}
	}
	return a.look(ctx, p, plug)
}

// look sees once whether the device has a plug. Where the agent cannot tell, nothing is wrong.
func (a *agent) look(ctx context.Context, p program, plug string) error {
	if plug == "" || a.listed[plug] || !p.metadata.can("list") {
		return nil
	}
	r, err := a.succeed(ctx, p, "list", "")
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	names := []string{plug}
	if s := p.value("switch"); s != "" {
		names = append(names, s+":"+plug) // as APC's agents list the outlets of several switches
	}
	if err := findPlug(r, names, p.separator(), a.censor); err != nil {
		return err
	}
	if a.listed == nil {
		a.listed = map[string]bool{}
	}
	a.listed[plug] = true
	return nil
}

// separator stands between the columns of the list.
func (p program) separator() string {
	if s := p.value("separator"); s != "" {
		return s
	}
	return ","
}

// isNumber: digits, as in 3, or SWITCH:OUTLET.
func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789:") == "" }

// findPlug looks for a plug, by one of its names, in what the action list printed: a line each, with its number and its name. An
// agent that cannot list says so in other words, and then nothing can be said.
func findPlug(r result, names []string, separator string, c censor) error {
	var known []string
	for line := range strings.Lines(r.stdout) {
		line = strings.TrimSpace(line)
		columns := strings.Split(line, separator)
		if len(columns) < 2 {
			continue
		}
		for i := range columns {
			columns[i] = strings.TrimSpace(columns[i])
		}
		for _, name := range names {
			columns := columns
			if isNumber(columns[0]) && isNumber(name) {
				// The agent takes a number for a number, though another plug be called like it.
				columns = columns[:1]
			}
			if slices.ContainsFunc(columns, func(c string) bool { return strings.EqualFold(c, name) }) {
				return nil
			}
		}
		known = append(known, columns[0])
	}
	if r.cut {
		return fmt.Errorf("%w: the list of plugs has no end, and does not begin with this one", agents.ErrProtocol)
	}
	if len(known) == 0 {
		return nil
	}
	const most = 12
	list := c.line(strings.Join(known[:min(len(known), most)], ", "))
	if len(known) > most {
		list += fmt.Sprintf(" and %d more", len(known)-most)
	}
	return fmt.Errorf("%w: the device has no such plug; it has %s", agents.ErrPlug, agents.Clip(list, mostRunes))
}
