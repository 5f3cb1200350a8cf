package resourcetest

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/hamgr/hamgr/resources"
)

var (
	word = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	// common are the keys of every resource, whatever its kind: a kind that had one of them would never be given it.
	common = []string{"name", "kind", "start_timeout", "stop_timeout", "monitor_interval", "monitor_timeout", "on_fail"}
	// valueTypes are what keys may be, beside numbers.
	valueTypes = []reflect.Type{
		reflect.TypeFor[string](), reflect.TypeFor[bool](), reflect.TypeFor[time.Duration](), reflect.TypeFor[[]string](),
		reflect.TypeFor[[][]string](), reflect.TypeFor[map[string]string](), reflect.TypeFor[map[string][]string](),
	}
)

func nameAndDoc(s *suite) {
	k := s.kind
	if !word.MatchString(k.Name) {
		s.Errorf("%q is no name of a kind", k.Name)
	}
	if k.Doc == "" || strings.ContainsAny(k.Doc, "\r\n") {
		s.Errorf("doc is no line: %q", k.Doc)
	}
	if k.Options == nil {
		s.Fatal("it has no Options")
	}
	if k.Options() == k.Options() {
		s.Error("two resources would share their options")
	}
}

// fields are those of the kind's options that take keys.
func (s *suite) fields() []reflect.StructField {
	s.Helper()
	t := reflect.TypeOf(s.kind.Options())
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		s.Fatalf("the options are a %s, not a pointer to a struct", t)
	}
	return slices.DeleteFunc(reflect.VisibleFields(t.Elem()), func(f reflect.StructField) bool { return !f.IsExported() || f.Anonymous })
}

func (s *suite) keys() (keys []string) {
	s.Helper()
	for _, f := range s.fields() {
		keys = append(keys, f.Tag.Get("toml"))
	}
	return keys
}

func describedKeys(s *suite) {
	seen := slices.Clone(common)
	for _, f := range s.fields() {
		key := f.Tag.Get("toml")
		if !word.MatchString(key) || slices.Contains(seen, key) {
			s.Errorf("%s: the key %q is no word, or is taken", f.Name, key)
		}
		seen = append(seen, key)
		if doc := f.Tag.Get("doc"); strings.TrimSpace(doc) == "" || strings.ContainsAny(doc, "\r\n") {
			s.Errorf("%s: doc is no line: %q", f.Name, doc)
		}
		number := f.Type.Kind() >= reflect.Int && f.Type.Kind() <= reflect.Uint64
		if !number && !slices.Contains(valueTypes, f.Type) {
			s.Errorf("%s: no value in hamgr.toml becomes a %s", f.Name, f.Type)
		}
	}
}

// zeroOptions: whatever is missing is told by key, and what is exclusive is a key's.
func zeroOptions(s *suite) {
	defaults := s.kind.Options()
	zero := reflect.New(reflect.TypeOf(defaults).Elem()).Interface().(resources.Options)
	for what, o := range map[string]resources.Options{"defaults": defaults, "zero": zero} {
		func() {
			defer func() {
				if r := recover(); r != nil {
					s.Errorf("%s: panicked: %v", what, r)
				}
			}()
			if key, thing := o.Exclusive(); thing != "" && !slices.Contains(s.keys(), key) {
				s.Errorf("%s: only one group may have %q, by the key %q, which is not there", what, thing, key)
			}
			for _, err := range leaves(o.Validate()) {
				var k *resources.KeyError
				if !errors.As(err, &k) {
					s.Errorf("%s: no KeyError: %v", what, err)
					continue
				}
				key, _, _ := strings.Cut(k.Key, ".")
				if !slices.Contains(s.keys(), key) || k.Msg == "" {
					s.Errorf("%s: there is no key %q, or nothing is said of it: %v", what, k.Key, err)
				}
			}
		}()
	}
}

// leaves undoes errors.Join.
func leaves(err error) (all []error) {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, leaves(e)...)
		}
		return all
	}
	if inner := errors.Unwrap(err); inner != nil {
		if all := leaves(inner); len(all) > 1 {
			return all
		}
	}
	return []error{err}
}

// example: what is shown to be edited is valid as it stands.
func example(s *suite) {
	var file struct {
		Group struct{ Resource []toml.Primitive }
	}
	meta, err := toml.Decode(s.kind.Example, &file)
	if err != nil {
		s.Fatalf("example: %v", err)
	}
	if len(file.Group.Resource) != 1 {
		s.Fatalf("the example has %d [[group.resource]]", len(file.Group.Resource))
	}
	var written map[string]any
	options := s.kind.Options()
	for _, into := range []any{&written, options} {
		if err := meta.PrimitiveDecode(file.Group.Resource[0], into); err != nil {
			s.Fatalf("example: %v", err)
		}
	}
	for _, key := range meta.Keys() {
		if key[0] != "group" || len(key) > 1 && key[1] != "resource" {
			s.Errorf("example: %s is no key of a resource", key)
		}
	}
	for _, key := range names(written) {
		if !slices.Contains(slices.Concat(common, s.keys()), key) {
			s.Errorf("example: unknown key %q", key)
		}
	}
	if written["kind"] != s.kind.Name || written["name"] == "" || written["name"] == nil {
		s.Errorf("example: name = %v, kind = %v", written["name"], written["kind"])
	}
	if err := options.Validate(); err != nil {
		s.Errorf("the example is not valid: %v", err)
	}
	key, thing := options.Exclusive()
	if again, same := options.Exclusive(); again != key || same != thing || thing != "" && !slices.Contains(s.keys(), key) {
		s.Errorf("only one group may have %q (%q), or %q (%q)", thing, key, same, again)
	}
}
