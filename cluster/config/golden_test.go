package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden compares what each file in testdata is found to be with what stands
// beside it. Files in broken must have problems; those in valid have at most warnings.
func TestGolden(t *testing.T) {
	files, _ := filepath.Glob("testdata/*/*.toml")
	if len(files) < 70 {
		t.Fatalf("only %d files in testdata", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file, ".toml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := Parse(filepath.Base(file), data, testKinds())
			broken := filepath.Base(filepath.Dir(file)) == "broken"
			if broken != (err != nil) {
				t.Fatalf("broken %v, but the error is %v", broken, err)
			}
			var problems Errors
			switch {
			case err == nil:
				problems = cfg.Warnings
			case !errors.As(err, &problems) || len(problems) == 0:
				t.Fatalf("the error is a %T", err)
			}
			got := ""
			for _, p := range problems {
				got += p.String() + "\n"
				if p.File == "" || p.Msg == "" || (p.Line == 0 && len(data) < MaxSize) {
					t.Errorf("incomplete: %+v", p)
				}
				if p.Cure == "" && filepath.Base(file) != "kind-checks.toml" && !strings.HasSuffix(p.Msg, "no program is given") {
					t.Errorf("no cure: %v", p)
				}
			}
			if strings.Contains(got, "hunter2") {
				t.Errorf("a secret is shown: %s", got)
			}
			want := strings.TrimSuffix(file, ".toml") + ".want"
			golden(t, want, got)
		})
	}
}

// golden compares with a file, or with -update writes it.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
