package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hamgr/hamgr/agents"
)

const onOff = "onoff"

// setting is one option with its value.
type setting struct{ name, value string }

// settings are the configured options, each by the name that the agent has for it. The errors name
// all that the agent would not understand; none shows a value that is a secret.
func (o *Options) settings(m *metadata) ([]setting, error) {
	var (
		list  []setting
		errs  []error
		given = map[string]string{} // meaning to the name that was written
	)
	for _, name := range o.names() {
		value, secret := o.Options[name], false
		if s, ok := o.Secrets[name]; ok {
			value, secret = s.Reveal(), true
		}
		p, ok := m.parameter(name)
		if path, read := o.Secrets[name+"_file"]; !ok && read {
			// An agent that reads such a file itself.
			if p, ok = m.parameter(name + "_file"); ok {
				value, secret = path.Reveal(), false
			}
		}
		if !ok {
			errs = append(errs, fmt.Errorf("options.%s: unknown option; %s", name, m.meant(name)))
			continue
		}
		if other := given[m.meaning(p)]; other != "" {
			errs = append(errs, fmt.Errorf("options.%s: %s is given too, which is the same option", name, other))
			continue
		}
		given[m.meaning(p)] = name
		if wanted := p.refuses(value); wanted != "" {
			if secret {
				value = agents.Secret{}.String()
			}
			errs = append(errs, fmt.Errorf("options.%s: %q is not %s", name, agents.Clip(value, 60), wanted))
			continue
		}
		list = append(list, setting{p.name, value})
	}
	for _, p := range m.parameters {
		meaning := m.meaning(p)
		if p.required && !p.old && given[meaning] == "" && ours[meaning] == "" {
			errs = append(errs, fmt.Errorf("options.%s is missing: %s", p.name, p.doc))
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", agents.ErrUnfit, errors.Join(errs...))
	}
	return list, nil
}

// refuses says what a value should have been; empty if it is right.
func (p parameter) refuses(value string) string {
	switch p.kind {
	case "integer":
		if _, err := strconv.Atoi(value); err != nil {
			return "a whole number"
		}
	case "second":
		if n, err := strconv.Atoi(value); err != nil || n < 0 {
			return "a number of seconds"
		}
	case "boolean":
		if !slices.Contains([]string{"1", "yes", "on", "true", "0", "no", "off", "false"}, strings.ToLower(value)) {
			return `"true" or "false"`
		}
	case "select":
		if len(p.choices) > 0 && !slices.Contains(p.choices, value) {
			return `one of "` + strings.Join(p.choices, `", "`) + `"`
		}
	}
	return ""
}

// chosen are the options that hamgr sets unless the file does: what an agent waits for by itself is
// lost time, because off is read back anyway.
func (m *metadata) chosen(ctx context.Context) []setting {
	list := []setting{{"power_wait", "0"}}
	if p, ok := m.parameter("method"); ok && slices.Contains(p.choices, onOff) {
		list = append(list, setting{"method", onOff})
	}
	// The agent shall give up before it is killed, so that it logs out of its device: it repeats its
	// own look at the power this many times, about once a second.
	if end, ok := ctx.Deadline(); ok {
		longest := 20
		if p, ok := m.parameter("power_timeout"); ok {
			if n, err := strconv.Atoi(p.fallback); err == nil && n > 0 {
				longest = n
			}
		}
		patience := min(longest, max(1, int(time.Until(end)/(2*time.Second))))
		list = append(list, setting{"power_timeout", strconv.Itoa(patience)})
	}
	return slices.DeleteFunc(list, func(s setting) bool { return !m.has(s.name) })
}

// input is what the agent reads: key=value lines.
func input(ctx context.Context, m *metadata, settings []setting, action, plug string) ([]byte, error) {
	all := []setting{{"action", action}}
	if plug != "" {
		all = append(all, setting{m.plugName(), plug})
	}
	for _, s := range m.chosen(ctx) {
		if !slices.ContainsFunc(settings, func(own setting) bool { return own.name == s.name }) {
			all = append(all, s)
		}
	}
	var b bytes.Buffer
	for _, s := range append(all, settings...) {
		if strings.ContainsAny(s.value, "\n\r\x00") {
			return nil, fmt.Errorf("the value of %s cannot be given to it: it holds a line end", s.name)
		}
		b.WriteString(s.name + "=" + quoted(s.value) + "\n")
	}
	return b.Bytes(), nil
}

// quoted protects a value from the agents' reader, which strips blanks from the end of a line, and
// then one pair of quotes from the value (_parse_input_stdin of fencing.py). All other values go as they are,
// because agents that are not written in Python may have other readers.
func quoted(value string) string {
	last, _ := utf8.DecodeLastRuneInString(value)
	stripped := value != "" && (unicode.IsSpace(last) || last < ' ')
	inQuotes := len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"'
	if stripped || inQuotes {
		return `"` + value + `"`
	}
	return value
}

// anyPlug are agents that know several machines, although their metadata is that of agents for one.
var anyPlug = []string{"fence_powerman", "fence_redfish", "fence_vmware"}

// value is what an option has, by the file or by itself.
func (p program) value(option string) string {
	for _, s := range p.settings {
		if s.name == option {
			return s.value
		}
	}
	own, _ := p.metadata.parameter(option)
	return own.fallback
}

// checkPlug checks whether the agent can be told of the plug, and would heed it.
func (m *metadata) checkPlug(plug string, settings []setting) error {
	name := m.plugName()
	value := program{metadata: m, settings: settings}.value
	asAddress := slices.Contains([]string{"1", "yes", "on", "true"}, strings.ToLower(value("port_as_ip")))
	if plug == "" {
		if p, _ := m.parameter(name); p.required {
			return fmt.Errorf(`%w: it needs a plug; write plugs = { NODE = ["PLUG"] }`, agents.ErrPlug)
		}
		return nil
	}
	if name == "" || m.has("port_as_ip") && !asAddress && !slices.Contains(anyPlug, m.name) {
		return fmt.Errorf("%w: it serves one machine, and would ignore the plug; give each machine a device of its own, without plugs", agents.ErrPlug)
	}
	if separator := value("plug_separator"); separator != "" && strings.Contains(plug, separator) {
		return fmt.Errorf("%w: it would take the plug for several, separated by %q; write them as a list, or set plug_separator", agents.ErrPlug, separator)
	}
	return nil
}

// meant is the cure for an unknown option: the nearest known one, else where to look.
func (m *metadata) meant(name string) string {
	best, nearest := "", 1+max(1, len(name)/3)
	for _, p := range m.parameters {
		if ours[p.name] != "" || unwanted[p.name] != "" {
			continue
		}
		if d := distance(fold(strings.ToLower(name)), fold(strings.ToLower(p.name))); d < nearest {
			best, nearest = p.name, d
		}
	}
	if best == "" {
		return "all of them: hamgr agent describe exec:" + m.name
	}
	return fmt.Sprintf("did you mean %q?", best)
}

// distance counts the insertions, deletions and replacements that turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
