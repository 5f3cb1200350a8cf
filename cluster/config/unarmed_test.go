package config

import (
	"path/filepath"
	"strings"
	"testing"
)

// A host that only votes has neither the secrets nor what the kinds look for on a host.
func TestUnarmedNeedsNothingOfItsHost(t *testing.T) {
	kinds := testKinds()
	text := fenced(`password_file = "/nonexistent/secret"`) + `
[[group]]
name = "db"
[[group.resource]]
name = "data"
kind = "mount"
device = "/dev/sdb"
mountpoint = "not-absolute"
`
	path := write(t, filepath.Join(t.TempDir(), "hamgr.toml"), text, 0o644)
	if _, err := Load(path, kinds); err == nil || !strings.Contains(err.Error(), "/nonexistent/secret") || !strings.Contains(err.Error(), "not an absolute path") {
		t.Fatalf("an armed host must have what the file names: %v", err)
	}
	kinds.Unarmed = true
	c, err := Load(path, kinds)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Unarmed {
		t.Error("the Config does not say that it is unarmed")
	}
	if _, err := LoadBytes(CommittedName(7), []byte(text), kinds); err != nil {
		t.Errorf("from the log: %v", err)
	}
	// All else is checked as everywhere.
	for _, bad := range []string{strings.Replace(text, `name = "web"`, `nam = "web"`, 1), strings.Replace(text, `"bmc"]]`, `"none"]]`, 1)} {
		if _, err := LoadBytes("hamgr.toml", []byte(bad), kinds); err == nil {
			t.Error("a wrong file was taken")
		}
	}
	// A secret that others can read is refused here too.
	open := write(t, filepath.Join(t.TempDir(), "hamgr.toml"), fenced(`password = "s"`), 0o644)
	if _, err := Load(open, kinds); err == nil {
		t.Error("a secret in a file that all can read was taken")
	}
}
