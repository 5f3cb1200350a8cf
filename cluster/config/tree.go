package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// value is a TOML value and the line on which it was written.
type value struct {
	line int
	data any // string, int64, float64, bool, time.Time, []*value or map[string]*value
}

// table is a TOML table on its way into structs.
type table struct {
	line  int
	label string // how problems name it: `node "alpha"`; empty for the file's top
	inner string // "options." for a table that is the value of the key options
	keys  map[string]*value
	// settled are keys about which nothing more needs saying: a problem with them was
	// reported already, and what follows from it would only hide the cause.
	settled map[string]bool
}

// grow joins what the library decoded with the marks.
func grow(data any, m *mark, line int) *value {
	if m == nil {
		m = &mark{line: line}
	}
	v := &value{line: m.line, data: data}
	switch data := data.(type) {
	case map[string]any:
		keys := make(map[string]*value, len(data))
		for k, d := range data {
			keys[k] = grow(d, m.keys[k], m.line)
		}
		v.data = keys
	case []map[string]any:
		v.data = growList(data, m)
	case []any:
		v.data = growList(data, m)
	}
	return v
}

func growList[T any](data []T, m *mark) []*value {
	list := make([]*value, 0, len(data))
	for i, d := range data {
		var item *mark
		if i < len(m.items) {
			item = m.items[i]
		}
		list = append(list, grow(d, item, m.line))
	}
	return list
}

// asTable makes a table of a value that is one.
func asTable(v *value, label string) (*table, bool) {
	keys, ok := v.data.(map[string]*value)
	return &table{line: v.line, label: label, keys: keys, settled: map[string]bool{}}, ok
}

// key is the full name of a key of the table.
func (t *table) key(k string) string {
	if strings.Trim(k, nameAlphabet+"ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		k = strconv.Quote(k)
	}
	k = t.inner + k
	if t.label == "" || k == "" {
		return t.label + k
	}
	return t.label + ": " + k
}

// has reports whether the key was written.
func (t *table) has(k string) bool { _, ok := t.keys[k]; return ok }

// at is the line of a key, or of a part of its value (strings are keys, ints indexes);
// as near as it is known, at worst the table's own line.
func (t *table) at(path ...any) int {
	line := t.line
	v := &value{line: line, data: t.keys}
	for _, step := range path {
		switch step := step.(type) {
		case string:
			keys, _ := v.data.(map[string]*value)
			v = keys[step]
		case int:
			list, _ := v.data.([]*value)
			if step >= len(list) {
				return line
			}
			v = list[step]
		}
		if v == nil {
			return line
		}
		line = v.line
	}
	return line
}

// written are the table's keys in the order of the file.
func (t *table) written() []string {
	return slices.SortedFunc(maps.Keys(t.keys), func(a, b string) int {
		if la, lb := t.keys[a].line, t.keys[b].line; la != lb {
			return la - lb
		}
		return strings.Compare(a, b)
	})
}

// found says in words what a value is.
func (v *value) found() string {
	switch v.data.(type) {
	case string:
		return "a string"
	case int64:
		return "a number"
	case float64:
		return "a number with a fraction"
	case bool:
		return "true or false"
	case []*value:
		return "a list"
	case map[string]*value:
		return "a table"
	default:
		return "a date or time"
	}
}
