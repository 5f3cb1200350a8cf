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
	p, err := a.prepare(ctx)
	if err != nil {
		return err
	}
	if err := p.metadata.checkPlug(plug, p.settings); err != nil {
		return err
	}
	if p.metadata.can("monitor") {
		r, err := a.run(ctx, p, "monitor", plug)
		if err == nil && r.status != 0 {
			err = r.refusal(a.censor)
		}
		if err != nil {
			return fmt.Errorf("monitor: %w", err)
		}
	}
	if plug == "" || !p.metadata.can("list") {
		return nil
	}
	r, err := a.run(ctx, p, "list", "")
	if err == nil && r.status != 0 {
		err = r.refusal(a.censor)
	}
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	return findPlug(r, plug, p.separator(), a.censor)
}

// separator stands between the columns of the list.
func (p program) separator() string {
	for _, s := range p.settings {
		if s.name == "separator" && s.value != "" {
			return s.value
		}
	}
	if own, ok := p.metadata.parameter("separator"); ok && own.fallback != "" {
		return own.fallback
	}
	return ","
}

// findPlug looks for a plug in what the action list printed: a line each, with its number and its name. An
// agent that cannot list says so in other words, and then nothing can be said.
func findPlug(r result, plug, separator string, c censor) error {
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
		if slices.Contains(columns, plug) {
			return nil
		}
		known = append(known, columns[0])
	}
	if len(known) == 0 || r.cut {
		return nil
	}
	const most = 12
	list := c.line(strings.Join(known[:min(len(known), most)], ", "))
	if len(known) > most {
		list += fmt.Sprintf(" and %d more", len(known)-most)
	}
	return fmt.Errorf("%w: the device has no such plug; it has %s", agents.ErrPlug, clip(list, mostRunes))
}
