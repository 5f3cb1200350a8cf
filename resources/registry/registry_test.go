package registry

import (
	"reflect"
	"slices"
	"testing"
)

func TestDefault(t *testing.T) {
	r := Default()
	if got := r.Names(); !slices.Equal(got, []string{"address", "command", "filesystem", "lvm", "ocf", "systemd"}) {
		t.Errorf("kinds: %v", got)
	}
	for name, kind := range r {
		if kind.Name != name || kind.Doc == "" {
			t.Errorf("%s: %+v", name, kind)
		}
		options := reflect.TypeOf(kind.Options())
		if options.Kind() != reflect.Pointer || options.Elem().Kind() != reflect.Struct {
			t.Fatalf("%s: options are a %s", name, options)
		}
		for i := range options.Elem().NumField() {
			f := options.Elem().Field(i)
			if f.IsExported() && (f.Tag.Get("toml") == "" || f.Tag.Get("doc") == "") {
				t.Errorf("%s: field %s lacks a tag", name, f.Name)
			}
		}
		if kind.Options().Validate() == nil {
			t.Errorf("%s: empty options are taken for valid", name)
		}
	}
}
