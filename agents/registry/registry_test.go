package registry

import (
	"reflect"
	"testing"
)

// TestKinds holds every kind to the contract of its options: fresh ones each time, a doc
// for each key, and no key that is right when nothing is set.
func TestKinds(t *testing.T) {
	for name, kind := range Default() {
		if name != kind.Name || kind.Doc == "" {
			t.Errorf("%s: registered as %q with doc %q", kind.Name, name, kind.Doc)
		}
		o := kind.Options()
		if o == kind.Options() {
			t.Errorf("%s: two devices would share their options", name)
		}
		if o.Validate() == nil {
			t.Errorf("%s: a device without any key is valid", name)
		}
		typ := reflect.TypeOf(o).Elem()
		for i := range typ.NumField() {
			if f := typ.Field(i); f.Tag.Get("toml") == "" || f.Tag.Get("doc") == "" {
				t.Errorf("%s: field %s lacks toml or doc", name, f.Name)
			}
		}
	}
}
