package resourcetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
)

// odd are options that are not as they should be, each in one way.
type (
	noDoc struct {
		options
		Other string `toml:"other"`
	}
	noKey struct {
		options
		Other string `doc:"another"`
	}
	keyTwice struct {
		options
		Other string `toml:"path" doc:"another"`
	}
	keyOfAll struct {
		options
		Other string `toml:"name" doc:"another"`
	}
	fraction struct {
		options
		Other float64 `toml:"other" doc:"another"`
	}
	wrongKey  struct{ options }
	noKeyOf   struct{ options }
	panicking struct {
		options
		at *time.Duration
	}
	noThing   struct{ options }
	newThings struct{ options }
)

func (*wrongKey) Validate() error {
	return errors.Join(&resources.KeyError{Key: "path", Msg: "no path"}, &resources.KeyError{Key: "pfad", Msg: "no path"})
}
func (*noKeyOf) Validate() error { return errors.New("no path") }
func (o *panicking) Validate() error {
	if *o.at < 0 {
		return &resources.KeyError{Key: "wait", Msg: "negative"}
	}
	return nil
}

func (o *noThing) Exclusive() (key, what string)   { return "pfad", o.Path }
func (o *newThings) Exclusive() (key, what string) { return "path", time.Now().String() }

// TestKindMutants: each badly made kind is found out by the check that is there for it.
func TestKindMutants(t *testing.T) {
	with := func(o func() resources.Options) func(*resources.Kind) {
		return func(k *resources.Kind) { k.Options = o }
	}
	saying := func(old, new string) func(*resources.Kind) {
		return func(k *resources.Kind) { k.Example = strings.ReplaceAll(k.Example, old, new) }
	}
	shared := &options{}
	for name, m := range map[string]struct {
		bend    func(*resources.Kind)
		noticed string
	}{
		"no name":                 {func(k *resources.Kind) { k.Name = "" }, "name and doc"},
		"no doc":                  {func(k *resources.Kind) { k.Doc = "" }, "name and doc"},
		"options are shared":      {with(func() resources.Options { return shared }), "name and doc"},
		"a key without doc":       {with(func() resources.Options { return &noDoc{} }), "keys are described"},
		"a field without key":     {with(func() resources.Options { return &noKey{} }), "keys are described"},
		"a key twice":             {with(func() resources.Options { return &keyTwice{} }), "keys are described"},
		"a key that all have":     {with(func() resources.Options { return &keyOfAll{} }), "keys are described"},
		"a value of another type": {with(func() resources.Options { return &fraction{} }), "keys are described"},
		"an error of no key":      {with(func() resources.Options { return &wrongKey{} }), "options without a value"},
		"an error without key":    {with(func() resources.Options { return &noKeyOf{} }), "options without a value"},
		"panics without a value":  {with(func() resources.Options { return &panicking{at: new(time.Duration)} }), "options without a value"},
		"exclusive by no key":     {with(func() resources.Options { return &noThing{} }), "example"},
		"exclusive at random":     {with(func() resources.Options { return &newThings{} }), "example"},
		"no example":              {func(k *resources.Kind) { k.Example = "" }, "example"},
		"example is no TOML":      {saying(`"one"`, "one"), "example"},
		"example with a typo":     {saying("wait", "wiat"), "example"},
		"example of another kind": {saying(`"good"`, `"bad"`), "example"},
		"example without name":    {saying(`name = "one"`, ""), "example"},
		"example that is wrong":   {saying(`"/srv"`, `""`), "example"},
		"example of a wrong type": {saying(`"3s"`, `true`), "example"},
		"example of no duration":  {saying(`"3s"`, `"soon"`), "example"},
		"example beside the key":  {saying("[[group.resource]]", "[[resource]]"), "example"},
		"two examples":            {func(k *resources.Kind) { k.Example += k.Example }, "example"},
	} {
		t.Run(name, func(t *testing.T) {
			k := goodKind()
			m.bend(&k)
			complaint := verdict(t, m.noticed, Subject{Kind: k})
			if complaint == "" {
				t.Errorf("not noticed by %q", m.noticed)
			}
			t.Log(complaint)
		})
	}
}
