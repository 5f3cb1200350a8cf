package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// In every file that is TOML at all, each key and each short string of a list is on the
// line that it was located at.
func TestLocate(t *testing.T) {
	files, _ := filepath.Glob("testdata/*/*.toml")
	samples, _ := filepath.Glob("../../etc/*.toml")
	checked := 0
	for _, file := range append(files, samples...) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if _, err := toml.Decode(string(data), &doc); err != nil {
			continue
		}
		lines := strings.Split(string(data), "\n")
		var walk func(v *value)
		on := func(text string, line int) {
			checked++
			if line < 1 || line > len(lines) || !strings.Contains(strings.ReplaceAll(lines[line-1], `\u0061`, "a"), text) {
				t.Errorf("%s: %q is not on line %d", file, text, line)
			}
		}
		walk = func(v *value) {
			switch data := v.data.(type) {
			case map[string]*value:
				for k, v := range data {
					on(k, v.line)
					walk(v)
				}
			case []*value:
				for _, v := range data {
					if s, ok := v.data.(string); ok {
						on(s, v.line)
					}
					walk(v)
				}
			}
		}
		walk(grow(doc, locate(string(data)), 1))
	}
	if checked < 3000 {
		t.Errorf("only %d places were checked", checked)
	}
}
