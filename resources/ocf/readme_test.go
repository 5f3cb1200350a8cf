package ocf

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// The README names every key, and both examples are good TOML with good options.
func TestReadme(t *testing.T) {
	b, err := os.ReadFile("README.md")
	must(t, err)
	readme := string(b)
	keys := reflect.TypeFor[Options]()
	for i := range keys.NumField() {
		f := keys.Field(i)
		if f.Tag.Get("doc") == "" || !strings.Contains(readme, "| `"+f.Tag.Get("toml")+"` |") {
			t.Errorf("key %s is not documented", f.Name)
		}
	}
	if !strings.Contains(readme, example) {
		t.Error("the example of the README is not that of the kind")
	}
	m, err := parseMetadata([]byte(strings.Replace(testMetadata, "<actions>", `<actions><action name="promote"/>`, 1)))
	must(t, err)
	m.parameters[5].required = true // the password
	for _, text := range []string{example, m.example(name{"test", "test"})} {
		var doc struct {
			Group []struct{ Resource []map[string]any }
		}
		file := "[[group]]\nname = \"g\"\n" + text
		if _, err := toml.Decode(file, &doc); err != nil {
			t.Errorf("%v in\n%s", err, file)
			continue
		}
		o := Kind().Options().(*Options)
		fields := strings.SplitN(text, "\n", 2)[1]
		if _, err := toml.Decode(fields, o); err != nil {
			t.Error(err)
		}
		if err := o.Validate(); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
	}
}
