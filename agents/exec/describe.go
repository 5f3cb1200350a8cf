package exec

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hamgr/hamgr/agents"
)

const example = `[[fence_device]]
name = "old-blade"
agent = "exec"
command = "fence_bladecenter"
plugs = { alpha = ["7"], beta = ["8"] }

[fence_device.options]
ip = "10.9.0.60"
username = "fencer"
password_file = "/etc/hamgr/secrets/blade"
`

// describe tells what a fence agent says about itself, in hamgr's words.
func describe(ctx context.Context, command string) (agents.Description, error) {
	fail := func(err error) (agents.Description, error) {
		return agents.Description{}, fmt.Errorf("%s: %w", agents.Clip(command, mostName), err)
	}
	// What cannot fence is described all the same, with the reason.
	if msg, cure := checkCommand(command); msg != "" && powerless[filepath.Base(command)] == "" {
		return fail(fmt.Errorf("%w: command %s; %s", agents.ErrUnfit, msg, cure))
	}
	path, err := findProgram(command)
	if err != nil {
		return fail(err)
	}
	m, err := readMetadata(ctx, path)
	if err != nil {
		return fail(fmt.Errorf("read its metadata: %w", err))
	}
	d := agents.Description{Program: command, Doc: m.long, Options: []agents.DescribedOption{}, Example: m.example(command), Notes: m.notes(path)}
	if d.Doc == "" {
		d.Doc = m.short
	}
	for _, p := range m.parameters {
		if p.old || unwanted[fold(p.name)] != "" {
			continue
		}
		d.Options = append(d.Options, p.describe())
	}
	return d, nil
}

// kinds are the types of the metadata in words. All values are written as strings.
var kinds = map[string]string{"integer": "number", "second": "number of seconds", "boolean": "true or false", "select": "one of"}

func (p parameter) describe() agents.DescribedOption {
	o := agents.DescribedOption{Name: p.name, Type: kinds[p.kind], Default: p.fallback, Required: p.required, Choices: p.choices, Doc: p.doc}
	switch {
	case isSecret(p.name):
		o.Type = "secret"
	case o.Type == "":
		o.Type = "string"
	}
	switch {
	case ours[p.name] != "":
		// What the agent does if it is not told, as it would be by hand, does not happen here.
		o.Set, o.Default, o.Required = true, "", false
	case p.name == "method" && slices.Contains(p.choices, onOff):
		o.Set, o.Default = true, onOff
	case p.name == "power_wait":
		o.Default = "0"
	}
	return o
}

// native are the protocols for which hamgr has an agent of its own, by a program that an agent calls
// for them, or by the agent's name.
func (m *metadata) native() string {
	switch {
	case m.has("ipmitool_path"):
		return "ipmi"
	case m.has("snmpget_path"):
		return "snmp"
	case m.name == "fence_redfish":
		return "redfish"
	}
	return ""
}

// notes are what the metadata means for hamgr.
func (m *metadata) notes(path string) []string {
	notes := []string{}
	if err := m.unfit(path); err != nil {
		notes = append(notes, "hamgr refuses it: "+strings.TrimPrefix(err.Error(), agents.ErrUnfit.Error()+": "))
	}
	if native := m.native(); native != "" {
		notes = append(notes, fmt.Sprintf("hamgr's own agent %s drives such devices faster and more strictly; keep this one for those that it does not know", native))
	}
	switch name := m.plugName(); {
	case name == "" || m.has("port_as_ip") && !slices.Contains(anyPlug, m.name):
		notes = append(notes, "it serves one machine: give each its own device, without plugs")
	default:
		notes = append(notes, fmt.Sprintf(`%s is filled in from plugs = { NODE = ["PLUG"] }`, name))
	}
	if !m.can("on") {
		notes = append(notes, "it cannot switch on: a fenced node stays off until somebody does")
	}
	if !m.can("list") {
		notes = append(notes, "it cannot list its plugs: a wrong one is found out only if the agent says so itself")
	}
	if m.has("power_wait") {
		notes = append(notes, "hamgr sets power_wait to 0, unless the file does: off is read back anyway")
	}
	if m.has("power_timeout") {
		notes = append(notes, "hamgr sets power_timeout to half of the time that a call has, unless the file does, so that the agent ends before it is killed")
	}
	var left []string
	for _, p := range m.parameters {
		if !p.old && unwanted[fold(p.name)] != "" {
			left = append(left, p.name)
		}
	}
	if len(left) > 0 {
		notes = append(notes, "refused, because they would give away secrets or make it unreliable: "+strings.Join(left, ", "))
	}
	var old []string
	for _, p := range m.parameters {
		if p.old && m.meaning(p) != fold(p.name) && ours[p.name] == "" && unwanted[fold(p.name)] == "" {
			old = append(old, p.name+" ("+m.meaning(p)+")")
		}
	}
	if len(old) > 0 {
		notes = append(notes, "old names that it accepts, too: "+strings.Join(old, ", "))
	}
	return notes
}

// example is a device with what the agent demands, and a user where it knows one.
func (m *metadata) example(command string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[[fence_device]]\nname = \"my-device\"\nagent = \"exec\"\ncommand = %s\n", strconv.Quote(command))
	if m.plugName() != "" && (!m.has("port_as_ip") || slices.Contains(anyPlug, m.name)) {
		b.WriteString("plugs = { alpha = [\"1\"], beta = [\"2\"] }\n")
	}
	b.WriteString("\n[fence_device.options]\n")
	for _, p := range m.parameters {
		usual := slices.Contains([]string{"ip", "username", "password"}, p.name)
		if m.has("community") { // users are for SNMP's version 3
			usual = slices.Contains([]string{"ip", "community"}, p.name)
		}
		if p.old || !p.required && !usual || ours[p.name] != "" || unwanted[fold(p.name)] != "" {
			continue
		}
		switch {
		case isSecret(p.name):
			fmt.Fprintf(&b, "%s_file = \"/etc/hamgr/secrets/my-device\"\n", key(p.name))
		default:
			fmt.Fprintf(&b, "%s = %s\n", key(p.name), strconv.Quote(p.sample()))
		}
	}
	return b.String()
}

// key writes a name as TOML does: bare, unless there is a dot in it.
func key(name string) string {
	if strings.Contains(name, ".") {
		return strconv.Quote(name)
	}
	return name
}

// sample is a value of the right type.
func (p parameter) sample() string {
	switch {
	case p.fallback != "":
		return p.fallback
	case len(p.choices) > 0:
		return p.choices[0]
	case p.name == "ip":
		return "10.9.0.60"
	case p.name == "username":
		return "fencer"
	case p.kind == "integer", p.kind == "second":
		return "1"
	case p.kind == "boolean":
		return "true"
	}
	return "..."
}
