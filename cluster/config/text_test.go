package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A text for the log has its secrets elsewhere, and those of this host are read.
func TestLoadBytes(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "bmc")
	if err := os.WriteFile(secret, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := strings.ReplaceAll(minimal, `password = "secret"`, `password_file = "`+secret+`"`)
	cfg, err := LoadBytes(CommittedName(41), []byte(good), testKinds())
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Devices[0].Options.(*bmcOptions).Password.Reveal(); got != "hunter2" {
		t.Errorf("the secret is %q", got)
	}
	if cfg, err = CheckText("new", []byte(strings.ReplaceAll(good, secret, "/no/such")), testKinds()); err != nil {
		t.Errorf("secrets are looked for by who needs none: %v", err)
	} else if got := cfg.Devices[0].Options.(*bmcOptions).Password.Reveal(); got != unread {
		t.Errorf("the secret is %q", got)
	}
	for name, c := range map[string]struct{ text, want string }{
		"inline":  {minimal, `cluster configuration 41, line 26: fence_device "alpha-bmc": password: a secret stands in the configuration itself`},
		"missing": {strings.ReplaceAll(good, secret, "/no/such"), `line 26: fence_device "alpha-bmc": password_file: "/no/such" cannot be read`},
		"large":   {good + strings.Repeat("#", MaxSize), "cluster configuration 41: is larger than 256 KiB"},
		"bytes":   {good + "\n# \xff\xfe", fmt.Sprintf("line %d: the file is not UTF-8", 2+strings.Count(good, "\n"))},
		"keys":    {strings.Replace(good, "verify", "verfy", 1), `line 35: fence_device "beta-bmc": verfy: unknown key`},
	} {
		_, err := LoadBytes(CommittedName(41), []byte(c.text), testKinds())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), `"secret"`) {
			t.Errorf("%s: a secret is shown: %v", name, err)
		}
	}
	// What the host lacks is no matter of the text.
	if _, err := CheckText("new", []byte(minimal), testKinds()); err == nil {
		t.Error("an inline secret may be committed")
	}
}

// A path that leads to a pipe holds nobody up.
func TestSecretFromPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan string, 1)
	go func() {
		_, msg, _ := readSecret(pipe)
		done <- msg
	}()
	select {
	case msg := <-done:
		if !strings.HasSuffix(msg, "is not a file") {
			t.Error(msg)
		}
	case <-time.After(30 * time.Second):
		t.Error("it hangs")
	}
}
