package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzLoadBytes holds LoadBytes to its promises on whatever the log may hold: it returns; what it takes is text, of a
// bounded size, and holds no secret; every problem names the configuration; and who looks without
// secrets finds nothing wrong that who has them does not.
func FuzzLoadBytes(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/*.toml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("[cluster]\nname = \"\xff\""))
	f.Add([]byte(minimal))
	secret := filepath.Join(f.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(strings.ReplaceAll(minimal, `password = "secret"`, `password_file = "`+secret+`"`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := LoadBytes(CommittedName(41), data, testKinds())
		if err != nil {
			problems, ok := err.(Errors)
			if !ok || len(problems) == 0 {
				t.Fatalf("%T: %v", err, err)
			}
			for _, p := range problems {
				if !strings.HasPrefix(p.String(), "cluster configuration 41: ") && !strings.HasPrefix(p.String(), "cluster configuration 41, line ") {
					t.Errorf("%v", p)
				}
			}
			return
		}
		if len(data) > MaxSize || !utf8.Valid(data) || len(cfg.inline()) > 0 {
			t.Errorf("taken: %d bytes, inline: %v", len(data), cfg.inline())
		}
		mustBeUsable(t, cfg)
		looked, err := CheckText(CommittedName(41), data, testKinds())
		if err != nil {
			t.Fatalf("taken, but not to be committed: %v", err)
		}
		if d := Diff(cfg, looked); len(d) > 0 {
			t.Errorf("looked at, it is another one: %v", d)
		}
		if v := Judge(cfg, looked, nil); len(v.Refused) > 0 {
			t.Errorf("no change is refused: %v", v)
		}
	})
}
