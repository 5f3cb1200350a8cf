//go:build !systemdhost

package command

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// The README names every key.
func TestReadme(t *testing.T) {
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Options]()) {
		if key := f.Tag.Get("toml"); !strings.Contains(string(b), "`"+key+"`") {
			t.Errorf("the key %s is not described", key)
		}
	}
}
