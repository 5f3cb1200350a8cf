package registry

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestReadmes holds the README of each agent to the sections that all have, and its table of keys to
// the code.
func TestReadmes(t *testing.T) {
	for name, kind := range Default() {
		text, err := os.ReadFile(filepath.Join("..", name, "README.md"))
		if err != nil {
			t.Error(err)
			continue
		}
		var sections, documented []string
		for line := range strings.Lines(string(text)) {
			if s, ok := strings.CutPrefix(line, "## "); ok {
				sections = append(sections, strings.TrimSpace(s))
			}
			if s, ok := strings.CutPrefix(line, "| `"); ok && slices.Contains(sections, "Keys") && sections[len(sections)-1] == "Keys" {
				key, _, _ := strings.Cut(s, "`")
				documented = append(documented, key)
			}
		}
		rest := sections
		for _, want := range []string{"What it drives", "Keys", "How off is known", "Tested against", "Limits"} {
			at := slices.Index(rest, want)
			if at < 0 {
				t.Errorf("%s: no section %q in its place among %q", name, want, sections)
				continue
			}
			rest = rest[at+1:]
		}
		var keys []string
		for f := range reflect.TypeOf(kind.Options()).Elem().Fields() {
			if key := f.Tag.Get("toml"); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		if !slices.Equal(documented, keys) {
			t.Errorf("%s: keys %q in the table, %q in the code", name, documented, keys)
		}
	}
}
