package snmp

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestReadme holds the README to the sections that each agent has, and its tables to the keys
// and the families.
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
	if want := []string{"What it drives", "Keys", "Outlets", "How off is known", "To add a family", "Tested against", "Limits"}; !slices.Equal(sections, want) {
		t.Errorf("sections %q, want %q", sections, want)
	}
	var want []string
	for _, p := range profiles {
		want = append(want, p.name)
	}
	for f := range reflect.TypeFor[Options]().Fields() {
		want = append(want, f.Tag.Get("toml"))
	}
	slices.Sort(want)
	slices.Sort(documented)
	if !slices.Equal(documented, want) {
		t.Errorf("tables have %q, the code has %q", documented, want)
	}
}
