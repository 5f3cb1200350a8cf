package exec

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestReadme holds the README to the sections that each agent has, and its tables to the code.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var sections, documented []string
	for line := range strings.Lines(string(text)) {
		if s, ok := strings.CutPrefix(line, "## "); ok {
			sections = append(sections, strings.TrimSpace(s))
		}
		if s, ok := strings.CutPrefix(line, "| `"); ok {
			key, _, _ := strings.Cut(s, "`")
			documented = append(documented, key)
		}
	}
	if want := []string{"What it drives", "Keys", "How off is known", "Tested against", "Limits"}; !slices.Equal(sections, want) {
		t.Errorf("sections %q, want %q", sections, want)
	}
	var keys []string
	for f := range reflect.TypeFor[Options]().Fields() {
		if key := f.Tag.Get("toml"); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	if !slices.Equal(documented, keys) {
		t.Errorf("keys %q in the table, %q in the code", documented, keys)
	}
	for name := range unwanted {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("that %s is refused is not documented", name)
		}
	}
	for name := range powerless {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("that %s is refused is not documented", name)
		}
	}
	if !strings.Contains(string(text), strings.TrimSpace(example)) {
		t.Error("the example is not the one that hamgr agent describe shows")
	}
}
