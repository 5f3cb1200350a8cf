package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// KeyDoc describes one key of a table.
type KeyDoc struct {
	Key     string `json:"key"`
	Type    string `json:"type"`    // in words
	Default string `json:"default"` // as it would be written; empty if there is none
	Doc     string `json:"doc"`
	// Range and Choices are what it must lie in, where that is fixed.
	Range   string   `json:"range,omitempty"`
	Choices []string `json:"choices,omitempty"`
}

// DescribeDevice lists the keys that every fence device has, whatever its agent.
func DescribeDevice() []KeyDoc {
	d := defaultDevice
	return Describe(&d)
}

// DescribeResource lists the keys that every resource has, whatever its kind.
func DescribeResource() []KeyDoc {
	r := defaultResource
	return Describe(&r)
}

// Describe lists the keys of an options struct (a pointer to it, as Kind.Options makes
// it) in the struct's order, with the values found in it as defaults. A secret is one
// key here; it is also accepted as KEY_file, KEY_env and KEY_credential.
func Describe(options any) []KeyDoc {
	var docs []KeyDoc
	for _, f := range fieldsOf(options) {
		if f.isSecretPart() {
			continue // the key was described with its other part
		}
		docs = append(docs, KeyDoc{Key: f.key, Type: f.words(), Default: f.literal(), Doc: f.doc, Range: f.limits, Choices: f.oneof})
	}
	return docs
}

// field is one key's place in a struct.
type field struct {
	key, doc string
	limits   string // "1..65535" or "500ms..60s"; both ends belong to it
	oneof    []string
	unsorted bool   // the order in the innermost lists means nothing
	secret   string // for isSecretPart: a pattern of the names that are secrets
	val      reflect.Value
}

// fieldsOf lists the tagged fields of the struct that p points to. The kinds of fields
// are those of set; another one is a mistake in the program, and panics.
func fieldsOf(p any) []field {
	v := reflect.ValueOf(p).Elem()
	var fields []field
	for _, sf := range reflect.VisibleFields(v.Type()) {
		key := sf.Tag.Get("toml")
		if key == "" || key == "-" {
			continue
		}
		f := field{key: key, doc: sf.Tag.Get("doc"), limits: sf.Tag.Get("range"), secret: sf.Tag.Get("secret"), unsorted: sf.Tag.Get("order") == "free", val: v.FieldByIndex(sf.Index)}
		if words := sf.Tag.Get("oneof"); words != "" {
			f.oneof = strings.Split(words, "|")
		}
		if f.words() == "" {
			panic(fmt.Sprintf("config: %T.%s has the unsupported type %s", p, sf.Name, sf.Type))
		}
		fields = append(fields, f)
	}
	return fields
}

// isSecret reports whether the key may also come from elsewhere.
func (f field) isSecret() bool { return f.val.Type() == reflect.TypeFor[agents.Secret]() }

// isSecretPart reports whether the field takes the secrets out of a table of strings. The field of
// type map[string]string with the same key gets the rest.
func (f field) isSecretPart() bool {
	return f.val.Type() == reflect.TypeFor[map[string]agents.Secret]()
}

// words name the type; empty if it is not supported.
func (f field) words() string {
	switch f.val.Interface().(type) {
	case time.Duration:
		return "duration"
	case agents.Secret:
		return "secret"
	case []string:
		return "list of strings"
	case [][]string:
		return "list of lists of strings"
	case map[string]string, map[string]agents.Secret:
		return "table of strings"
	case map[string][]string:
		return "table of lists of strings"
	}
	switch {
	case f.val.Kind() == reflect.String:
		return "string"
	case f.val.Kind() == reflect.Bool:
		return "true or false"
	case f.val.CanInt(), f.val.CanUint():
		return "number"
	}
	return ""
}

// literal writes the value as TOML; empty for a zero value and for secrets.
func (f field) literal() string {
	if f.val.IsZero() || f.isSecret() {
		return ""
	}
	switch v := f.val.Interface().(type) {
	case time.Duration:
		return strconv.Quote(short(v))
	case []string:
		return quoteList(v)
	}
	if f.val.Kind() == reflect.String {
		return strconv.Quote(f.val.String())
	}
	return fmt.Sprint(f.val.Interface())
}

// short writes a duration without the zero units that Duration.String adds.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func quoteList(list []string) string {
	quoted := make([]string, 0, len(list))
	for _, s := range list {
		quoted = append(quoted, strconv.Quote(s))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
