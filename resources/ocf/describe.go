package ocf

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

const example = `[[group.resource]]
name = "ip"
kind = "ocf"
agent = "ocf:heartbeat:IPaddr2"
params = { ip = "10.0.0.100", cidr_netmask = "24" }
start_timeout = "20s"
stop_timeout = "20s"
monitor_interval = "10s"
monitor_timeout = "20s"
`

// describe tells what an agent says about itself, in hamgr's words.
func describe(ctx context.Context, root, program string) (resources.Description, error) {
	n, err := parseName(program)
	if err != nil {
		return resources.Description{}, err
	}
	var m *metadata
	err = process.Beside(ctx, func() (err error) {
		m, err = readMetadata(ctx, root, n)
		return err
	})
	if err != nil {
		return resources.Description{}, fmt.Errorf("%s: %w", n, err)
	}
	d := resources.Description{Program: n.String(), Doc: m.doc, Options: []resources.DescribedOption{}, Example: m.example(n), Notes: m.notes()}
	for _, p := range m.parameters {
		if p.newer == "" {
			d.Options = append(d.Options, p.describe())
		}
	}
	return d, nil
}

// kinds are the types of the metadata in words. All values are written as strings.
var kinds = map[string]string{"integer": "whole number", "boolean": "true or false", "select": "one of"}

func (p parameter) describe() resources.DescribedOption {
	d := resources.DescribedOption{Name: p.name, Type: kinds[p.kind], Default: p.fallback, Required: p.required && p.fallback == "", Choices: p.choices, Doc: p.doc}
	switch {
	case soundsSecret(p.name):
		d.Type, d.Default = "secret", ""
	case d.Type == "" || p.fallback != "" && !p.fits(p.fallback):
		d.Type = "string"
	}
	if p.unique {
		d.Doc = strings.TrimSpace(d.Doc + " (No two resources of this agent may have the same value.)")
	}
	return d
}

// notes are what the metadata means for hamgr.
func (m *metadata) notes() []string {
	notes := []string{}
	if m.promotable() {
		notes = append(notes, "it knows a promoted role, which hamgr does not use yet: it is refused unless unpromoted = true, and then only useful if the service works without being promoted")
	}
	for _, action := range []string{"start", "stop"} {
		if t := m.timeout(action); t > 0 {
			notes = append(notes, fmt.Sprintf("it asks for %s_timeout = %q or more", action, words(t)))
		}
	}
	for _, a := range m.actions {
		if a.name != "monitor" || a.interval == 0 && a.timeout == 0 {
			continue
		}
		note := fmt.Sprintf("it advises monitor_interval = %q and monitor_timeout = %q", words(a.interval), words(a.timeout))
		if a.depth > 0 {
			note += fmt.Sprintf(" for depth = %d", a.depth)
		}
		notes = append(notes, note)
	}
	if !m.can("validate-all") {
		notes = append(notes, "it does not check its parameters beforehand")
	}
	for _, p := range m.parameters {
		switch p.newer {
		case "":
		case "-":
			notes = append(notes, fmt.Sprintf("parameter %s is old, and not listed", p.name))
		default:
			notes = append(notes, fmt.Sprintf("parameter %s is old, and not listed: use %s", p.name, p.newer))
		}
	}
	return notes
}

// words writes a duration without the zeros of its String.
func words(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	return d.String()
}

// example is a resource with all that is required.
func (m *metadata) example(n name) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[[group.resource]]\nname = \"my-resource\"\nkind = \"ocf\"\nagent = %q\n", n)
	var params, files []string
	for _, p := range m.parameters {
		switch {
		case !p.required || p.fallback != "" || p.newer != "":
		case soundsSecret(p.name):
			files = append(files, fmt.Sprintf("%s = %q", p.name, "/etc/hamgr/secrets/my-resource"))
		default:
			params = append(params, fmt.Sprintf("%s = %q", p.name, p.sample()))
		}
	}
	if len(params) > 0 {
		fmt.Fprintf(&b, "params = { %s }\n", strings.Join(params, ", "))
	}
	if len(files) > 0 {
		fmt.Fprintf(&b, "param_files = { %s }\n", strings.Join(files, ", "))
	}
	if m.promotable() {
		b.WriteString("unpromoted = true\n")
	}
	for _, action := range []string{"start", "stop", "monitor"} {
		if t := m.timeout(action); t > 0 {
			fmt.Fprintf(&b, "%s_timeout = %q\n", action, words(t))
		}
	}
	return b.String()
}

// sample is a value of the right type.
func (p parameter) sample() string {
	switch {
	case len(p.choices) > 0:
		return p.choices[0]
	case p.kind == "integer":
		return "1"
	case p.kind == "boolean":
		return "true"
	}
	return "..."
}
