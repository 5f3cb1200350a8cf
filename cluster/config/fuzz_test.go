package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzParse holds Parse to its promises on any bytes: it returns; it names at least one
// problem, with lines that exist and in their order; or the Config can be used.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/*.toml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, doc := range []string{minimal, "a = [[{b = [{c.d = '''\n''''}]}]]", "[[group]]\n[group.resource]", "node = [1, {name = 'x'}]", "a.b.c = 1\n[a.b]", "\"\\u0000\" = \"\\\\\"", "x = 1979-05-27 07:32:00 # t"} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		locate(string(data)) // also what the library does not accept
		cfg, err := Parse("f.toml", data, testKinds())
		if err == nil {
			mustBeUsable(t, cfg)
			return
		}
		problems, ok := err.(Errors)
		if !ok || len(problems) == 0 {
			t.Fatalf("%T: %v", err, err)
		}
		lines := strings.Count(string(data), "\n") + 1
		for _, p := range problems {
			if p.File != "f.toml" || p.Msg == "" || p.Line < 0 || p.Line > lines {
				t.Errorf("%+v in a file of %d lines", p, lines)
			}
		}
		if !slices.IsSortedFunc(problems, func(a, b Problem) int { return a.Line - b.Line }) {
			t.Errorf("not in order:\n%v", err)
		}
	})
}

// mustBeUsable checks what the other packages rely on.
func mustBeUsable(t *testing.T, cfg *Config) {
	if len(cfg.Members()) == 0 || cfg.Cluster.Name == "" || cfg.Cluster.KeyFile == "" {
		t.Errorf("incomplete: %+v", cfg)
	}
	owner := map[string]string{}
	for _, n := range cfg.Nodes {
		if len(cfg.Endpoints(n.Name)) == 0 {
			t.Errorf("%q has no endpoints", n.Name)
		}
		levels := cfg.Levels(n.Name)
		if n.Role == Member && len(levels) == 0 && n.WatchdogLevel() != 1 {
			t.Errorf("%q has no fencing", n.Name)
		}
		for _, level := range levels {
			if len(level) == 0 {
				t.Errorf("%q has an empty level", n.Name)
			}
			for _, set := range level {
				if set.Device.Options == nil || len(set.Plugs) == 0 {
					t.Errorf("%q: %+v", n.Name, set)
				}
				for _, plug := range set.Plugs {
					id := set.Device.Name + "\x00" + plug
					if other, taken := owner[id]; taken && other != n.Name {
						t.Errorf("%q and %q share plug %q of %q", n.Name, other, plug, set.Device.Name)
					}
					owner[id] = n.Name
				}
			}
		}
	}
	for _, g := range cfg.Groups {
		for _, r := range g.Resources {
			if r.Options == nil || r.Name == "" {
				t.Errorf("%q: %+v", g.Name, r)
			}
		}
	}
}
