package exec

import (
	"os"
	"strings"
	"testing"
)

// TestReadme: what is refused is documented, and the example is the one that is shown elsewhere.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
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
