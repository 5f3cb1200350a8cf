package ocf

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hamgr/hamgr/resources"
)

// check holds the options against what the agent says about itself.
func (o *ocf) check(m *metadata) error {
	params, _, err := o.params()
	if err != nil {
		return err
	}
	var errs []error
	wrong := func(key, cure, format string, args ...any) {
		errs = append(errs, &resources.KeyError{Key: key, Msg: fmt.Sprintf(format, args...), Cure: cure})
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		p, known := m.parameter(name)
		if !known {
			wrong("params", m.meant(o.name, name), "%s knows no parameter %q", o.name, name)
			continue
		}
		if msg := p.refuses(params[name]); msg != "" {
			if o.opts.ParamFiles[name] != "" {
				msg = "its value is of the wrong type"
			}
			wrong("params", "", "%s: %s", name, msg)
		}
	}
	for _, p := range m.parameters {
		if _, given := params[p.name]; p.required && !given && p.fallback == "" && !m.replaced(p, params) {
			wrong("params", fmt.Sprintf("set %s: %s", p.name, clip(p.doc, 80)), "%s needs the parameter %q", o.name, p.name)
		}
	}
	for _, action := range []string{"start", "stop", "monitor"} {
		if !m.can(action) {
			wrong("agent", "", "%s has no action %q", o.name, action)
		}
	}
	if m.promotable() && !o.opts.Unpromoted {
		wrong("agent", "if it is useful without (see its description), set unpromoted = true", "%s knows a promoted role, and hamgr does not promote yet", o.name)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", resources.ErrSetup, err)
	}
	return nil
}

// replaced reports whether another name of the parameter is given, an older or a newer one.
func (m *metadata) replaced(p parameter, params map[string]string) bool {
	for name := range params {
		if q, ok := m.parameter(name); ok && (q.newer == p.name || p.newer == q.name) {
			return true
		}
	}
	return false
}

// refuses says what is wrong with a value. An agent whose own default is not of its type does not mean the type.
func (p parameter) refuses(value string) string {
	if p.fallback != "" && !p.fits(p.fallback) || p.fits(value) {
		return ""
	}
	value = clip(value, 60)
	switch p.kind {
	case "integer":
		return fmt.Sprintf("%q is no whole number", value)
	case "boolean":
		return fmt.Sprintf("%q is neither true nor false", value)
	}
	return fmt.Sprintf("%q is none of %s", value, strings.Join(p.choices, ", "))
}

// fits reports whether a value is of the parameter's type. Agents take an empty one for none.
func (p parameter) fits(value string) bool {
	switch {
	case value == "":
		return true
	case p.kind == "integer":
		_, err := strconv.ParseInt(value, 10, 64)
		return err == nil
	case p.kind == "boolean": // the words of ocf_is_true, and their opposites
		return slices.Contains([]string{"yes", "no", "true", "false", "1", "0", "on", "off", "ja"}, strings.ToLower(value))
	case p.kind == "select" && len(p.choices) > 0:
		return slices.Contains(p.choices, value)
	}
	return true
}

// meant is the cure for an unknown parameter: the nearest known one, else where to look.
func (m *metadata) meant(n name, param string) string {
	best, nearest := "", 1+max(1, len(param)/3)
	for _, p := range m.parameters {
		if d := distance(strings.ToLower(param), strings.ToLower(p.name)); d < nearest {
			best, nearest = p.name, d
		}
	}
	if best == "" {
		return "all of them: hamgr resource describe " + n.String()
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
