package lvm

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

func TestOptions(t *testing.T) {
	for name, ok := range map[string]bool{
		"db": true, "vg-x": true, "_a.b+c": true, ".x": true, strings.Repeat("a", 127): true,
		"": false, "-a": false, ".": false, "..": false, "a/b": false, "a b": false, "a\n": false, "@tag": false, "ü": false, strings.Repeat("a", 128): false,
	} {
		o := Kind().Options().(*Options)
		o.VolumeGroup = name
		if err := o.Validate(); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := (&Options{VolumeGroup: "db", Mode: "tagging"}).Validate(); err == nil || !strings.Contains(err.Error(), `"tagging" is no mode`) {
		t.Error(err)
	}
}

// The README names every key, and its example is that of the kind.
func TestReadme(t *testing.T) {
	b, err := os.ReadFile("README.md")
	must(t, err)
	keys := reflect.TypeFor[Options]()
	for i := range keys.NumField() {
		f := keys.Field(i)
		if f.Tag.Get("doc") == "" || !strings.Contains(string(b), "| `"+f.Tag.Get("toml")+"` |") {
			t.Errorf("key %s is not documented", f.Name)
		}
	}
	if !strings.Contains(string(b), Kind().Example) {
		t.Error("the example of the README is not that of the kind")
	}
	var doc struct {
		Resource struct {
			Name, Kind string
			Options
		}
	}
	text := strings.Replace(Kind().Example, "[[group.resource]]", "[resource]", 1)
	if m, err := toml.Decode(text, &doc); err != nil || doc.Resource.VolumeGroup != "db" || len(m.Undecoded()) > 0 {
		t.Errorf("%v in\n%s", err, text)
	}
}
