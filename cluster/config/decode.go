package config

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/resources"
)

// reader collects the problems of one file while its tables become structs.
type reader struct {
	file     string
	kinds    Kinds
	sources  *sources // nil: secrets outside the file are not fetched
	problems Errors
	warnings []Problem
	origins  map[string]origin
}

// problem reports a key of a table, at the line of the key if it was written.
func (r *reader) problem(t *table, key, msg, cure string) {
	t.settled[key] = true
	r.problemAt(t, t.at(key), key, msg, cure)
}

// problemAt reports a key at a line of its own, as of one element of a list.
func (r *reader) problemAt(t *table, line int, key, msg, cure string) {
	r.problems = append(r.problems, Problem{File: r.file, Line: line, Key: t.key(key), Msg: msg, Cure: cure})
}

func (r *reader) warn(t *table, line int, key, msg, cure string) {
	r.warnings = append(r.warnings, Problem{File: r.file, Line: line, Key: t.key(key), Msg: msg, Cure: cure})
}

// decode fills the structs from a table: each key goes to the first struct that has
// it. Keys in skip are read by the caller. What no struct has is unknown.
func (r *reader) decode(t *table, skip []string, structs ...any) {
	known := append([]string(nil), skip...)
	taken := map[string]bool{}
	for _, k := range skip {
		taken[k] = true
	}
	for _, s := range structs {
		fields := fieldsOf(s)
		for _, f := range fields {
			if f.isSecretPart() {
				r.secretPart(t, fields, f)
				continue
			}
			if taken[f.key] {
				continue
			}
			known = append(known, f.key)
			taken[f.key] = true
			if f.isSecret() {
				for _, suffix := range variants[1:] {
					known = append(known, f.key+suffix)
					taken[f.key+suffix] = true
				}
				r.secret(t, f)
			} else if v, ok := t.keys[f.key]; ok {
				r.set(t, f, v)
			}
		}
	}
	for _, key := range t.written() {
		if !taken[key] {
			r.unknown(t, key, known)
		}
	}
}

// unknown reports a key that nothing reads.
func (r *reader) unknown(t *table, key string, known []string) {
	// What the key was meant for is not missing, it is misspelled.
	if n := nearest(key, known); n != "" && !t.has(n) {
		for _, suffix := range variants {
			t.settled[strings.TrimSuffix(n, suffix)] = true
		}
	}
	r.problem(t, key, "unknown key", meant(key, known, "keys"))
}

// set converts a value to its field's type.
func (r *reader) set(t *table, f field, v *value) {
	mismatch := r.mismatch(t, f, "")
	switch f.val.Interface().(type) {
	case time.Duration:
		r.setDuration(t, f, v)
		return
	case []string:
		if list, ok := stringList(v, mismatch); ok {
			f.val.Set(reflect.ValueOf(list))
		}
		return
	case [][]string:
		if levels, ok := levelList(v, mismatch); ok {
			f.val.Set(reflect.ValueOf(levels))
		}
		return
	case map[string]string:
		r.setMap(t, f, v, func(v *value, mismatch mismatchFunc) (any, bool) {
			s, ok := v.data.(string)
			if !ok {
				mismatch(v, "a string", "put it in quotes")
			}
			return s, ok
		})
		return
	case map[string][]string:
		r.setMap(t, f, v, func(v *value, mismatch mismatchFunc) (any, bool) { return stringList(v, mismatch) })
		return
	}
	switch f.val.Kind() {
	case reflect.String:
		s, ok := v.data.(string)
		if !ok {
			mismatch(v, "a string", cureString(v))
			return
		}
		r.setString(t, f, s)
	case reflect.Bool:
		b, ok := v.data.(bool)
		if !ok {
			mismatch(v, "true or false", "write true or false, without quotes")
			return
		}
		f.val.SetBool(b)
	default:
		n, ok := v.data.(int64)
		if !ok {
			mismatch(v, "a whole number", cureNumber(v))
			return
		}
		r.setNumber(t, f, n)
	}
}

func (r *reader) setString(t *table, f field, s string) {
	if f.oneof == nil {
		f.val.SetString(s)
		return
	}
	for _, word := range f.oneof {
		if s == word {
			f.val.SetString(s)
			return
		}
	}
	r.problem(t, f.key, fmt.Sprintf("%q is not one of its values", s), "write "+`"`+strings.Join(f.oneof, `" or "`)+`"`)
}

func (r *reader) setNumber(t *table, f field, n int64) {
	outside := false
	if low, high, ok := strings.Cut(f.limits, ".."); ok {
		lowest, _ := strconv.ParseInt(low, 10, 64)
		highest, _ := strconv.ParseInt(high, 10, 64)
		outside = n < lowest || n > highest
	}
	switch {
	case outside:
		r.problem(t, f.key, fmt.Sprintf("%d is out of range", n), "write a number in "+f.limits)
	case f.val.CanInt() && f.val.OverflowInt(n), f.val.CanUint() && (n < 0 || f.val.OverflowUint(uint64(n))):
		r.problem(t, f.key, fmt.Sprintf("%d is out of range", n), "write a number that fits")
	case f.val.CanInt():
		f.val.SetInt(n)
	default:
		f.val.SetUint(uint64(n))
	}
}

func (r *reader) setDuration(t *table, f field, v *value) {
	s, ok := v.data.(string)
	if !ok {
		cure := `write it like "3s"`
		if n, ok := v.data.(int64); ok {
			cure = fmt.Sprintf("write it with a unit, in quotes: %q for seconds", strconv.FormatInt(n, 10)+"s")
		}
		r.problem(t, f.key, "is "+v.found()+", but a duration is wanted", cure)
		return
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		msg, cure := fmt.Sprintf("%q is not a duration", s), `write it like "1.5s", "500ms" or "2m"`
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			msg, cure = fmt.Sprintf("the duration %q has no unit", s), fmt.Sprintf("write %q for seconds", s+"s")
		}
		r.problem(t, f.key, msg, cure)
		return
	}
	lowest, highest := time.Duration(0), time.Duration(1<<63-1)
	cure := "write a positive one"
	if low, high, ok := strings.Cut(f.limits, ".."); ok {
		lowest, _ = time.ParseDuration(low)
		highest, _ = time.ParseDuration(high)
		cure = fmt.Sprintf("write one from %q to %q", low, high)
	}
	if d < lowest || d > highest {
		r.problem(t, f.key, fmt.Sprintf("the duration %q is out of range", s), cure)
		return
	}
	f.val.SetInt(int64(d))
}

// mismatchFunc reports a value of the wrong type.
type mismatchFunc func(v *value, wanted, cure string)

// mismatch makes the function that reports a field, or a key below it.
func (r *reader) mismatch(t *table, f field, below string) mismatchFunc {
	key := f.key
	if below != "" {
		key += "." + below
	}
	return func(v *value, wanted, cure string) {
		t.settled[f.key] = true
		r.problemAt(t, v.line, key, fmt.Sprintf("is %s, but %s is wanted", v.found(), wanted), cure)
	}
}

func (r *reader) setMap(t *table, f field, v *value, element func(*value, mismatchFunc) (any, bool)) {
	keys, ok := v.data.(map[string]*value)
	if !ok {
		cure := `write { name = "value" }`
		if f.val.Type().Elem().Kind() == reflect.Slice {
			cure = `write { name = ["value"] }`
		}
		r.mismatch(t, f, "")(v, "a "+f.words(), cure)
		return
	}
	m := reflect.MakeMapWithSize(f.val.Type(), len(keys))
	whole := true
	for k, v := range keys {
		e, ok := element(v, r.mismatch(t, f, k))
		if whole = whole && ok; ok {
			m.SetMapIndex(reflect.ValueOf(k), reflect.ValueOf(e))
		}
	}
	if whole {
		f.val.Set(m)
	}
}

func stringList(v *value, mismatch mismatchFunc) ([]string, bool) {
	items, ok := v.data.([]*value)
	if !ok {
		mismatch(v, "a list of strings", cureList(v))
		return nil, false
	}
	list := make([]string, 0, len(items))
	whole := true
	for _, item := range items {
		s, ok := item.data.(string)
		if !ok {
			mismatch(item, "a string", cureString(item))
			whole = false
		}
		list = append(list, s)
	}
	return list, whole
}

func levelList(v *value, mismatch mismatchFunc) ([][]string, bool) {
	items, ok := v.data.([]*value)
	if !ok {
		cure := `write [["device"]]`
		if s, ok := v.data.(string); ok {
			cure = fmt.Sprintf("write [[%q]]", s)
		}
		mismatch(v, "a list of levels, each a list of device names,", cure)
		return nil, false
	}
	levels := make([][]string, 0, len(items))
	for _, item := range items {
		if _, ok := item.data.([]*value); !ok {
			mismatch(item, "a level, which is a list of device names,", cureLevels(items))
			return nil, false
		}
		level, ok := stringList(item, mismatch)
		if !ok {
			return nil, false
		}
		levels = append(levels, level)
	}
	return levels, true
}

// The cures for a wrong type show the value as it should have been written. Secrets do
// not come here.

func cureString(v *value) string {
	switch d := v.data.(type) {
	case int64, float64, bool:
		return fmt.Sprintf("put it in quotes: %q", fmt.Sprint(d))
	default:
		return "write one string in quotes"
	}
}

// cureLevels is for names that stand where levels should.
func cureLevels(items []*value) string {
	var names, levels []string
	for _, item := range items {
		if s, ok := item.data.(string); ok {
			names, levels = append(names, s), append(levels, quoteList([]string{s}))
		}
	}
	switch {
	case len(names) != len(items):
		return `put the names in double brackets: [["device"]]`
	case len(names) == 1:
		return "write [" + levels[0] + "]"
	default:
		return fmt.Sprintf("write [%s] if all must succeed, [%s] if one is enough", quoteList(names), strings.Join(levels, ", "))
	}
}

func cureList(v *value) string {
	switch d := v.data.(type) {
	case string, int64, float64, bool:
		return fmt.Sprintf("write [%q]", fmt.Sprint(d))
	default:
		return `write ["a", "b"]`
	}
}

func cureNumber(v *value) string {
	if s, ok := v.data.(string); ok {
		if _, err := strconv.ParseInt(s, 10, 64); err == nil {
			return fmt.Sprintf("write %s, without quotes", s)
		}
	}
	return "write a whole number, without quotes"
}

// validate runs a kind's own check and gives what it found the lines of its keys.
func (r *reader) validate(t *table, check func() error) {
	if r.kinds.Unarmed {
		return // it looks at this host, too
	}
	for _, err := range flatten(check()) {
		var key, msg, cure string
		var ae *agents.KeyError
		var re *resources.KeyError
		switch {
		case errors.As(err, &ae):
			key, msg, cure = ae.Key, ae.Msg, ae.Cure
		case errors.As(err, &re):
			key, msg, cure = re.Key, re.Msg, re.Cure
		default:
			msg = err.Error()
		}
		if t.settled[key] {
			continue
		}
		r.problemAt(t, t.lineOf(key), key, msg, cure)
	}
}

// lineOf is the line of a key, of the variant of a secret that was written instead of it, or of
// either in a table inside this one (TABLE.KEY).
func (t *table) lineOf(key string) int {
	if outer, inner, ok := strings.Cut(key, "."); ok && t.has(outer) {
		if sub, ok := asTable(t.keys[outer], ""); ok {
			return sub.lineOf(inner)
		}
	}
	for _, suffix := range variants {
		if t.has(key + suffix) {
			return t.at(key + suffix)
		}
	}
	return t.at(key)
}

// flatten undoes errors.Join at every depth.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, flatten(e)...)
		}
		return all
	}
	if inner := errors.Unwrap(err); inner != nil {
		if all := flatten(inner); len(all) > 1 {
			return all
		}
	}
	return []error{err}
}
