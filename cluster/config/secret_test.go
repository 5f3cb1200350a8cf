package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// oddSecrets have the bytes that shells, quoting and trimming are known to eat.
var oddSecrets = []string{
	"$HOME`id`'\"#!;\\%&|<>", " blanks around ", "tab\tinside", "\tfirst", "ends with CR\r", "a\r\nb", "two newlines\n", "\n",
	"NUL\x00inside", "\x00", "ünïcödé-\U0001f511", "latin1 \xfc\xff", "%s%d%n", "\\n", "[secret]", "[[", "12345", "truetrue", "a=b", "\ufeffbom",
}

// fenced is a file whose one device has the given line for its password.
func fenced(line string) string {
	return `[cluster]
name = "web"
key_file = "/k"
[[node]]
name = "alpha"
addresses = ["10.0.0.11"]
fencing = [["bmc"]]
[[fence_device]]
name = "bmc"
agent = "bmc"
address = "10.9.0.11"
username = "fencer"
` + line + "\n"
}

const passwordLine = 13

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func loadText(t *testing.T, text string, mode os.FileMode) (*Config, error) {
	t.Helper()
	return Load(write(t, filepath.Join(t.TempDir(), "hamgr.toml"), text, mode), testKinds())
}

func password(cfg *Config) string { return cfg.Devices[0].Options.(*bmcOptions).Password.Reveal() }

// A secret arrives byte for byte from wherever it is kept, and never shows.
func TestSecretsAreByteExact(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	for i, secret := range oddSecrets {
		name := fmt.Sprintf("s%d", i)
		lines := []string{}
		for _, newline := range []string{"", "\n"} {
			if newline == "" && strings.HasSuffix(secret, "\n") {
				continue // here the newline at the end would be the file's
			}
			path := write(t, filepath.Join(dir, name+strconv.Itoa(len(newline))), secret+newline, 0o400)
			lines = append(lines, "password_file = "+strconv.Quote(path), "password_credential = "+strconv.Quote(filepath.Base(path)))
		}
		if !strings.Contains(secret, "\x00") {
			t.Setenv("HAMGR_TEST_"+name, secret)
			lines = append(lines, "password_env = \"HAMGR_TEST_"+name+"\"")
		}
		if s := tomlString(secret); s != "" {
			lines = append(lines, "password = "+s)
		}
		for _, line := range lines {
			cfg, err := loadText(t, fenced(line), 0o600)
			if len(secret) > 20 {
				// Refused by the agent, which tells the length and nothing else.
				if err == nil || !strings.Contains(err.Error(), "is longer than 20 bytes") || strings.Contains(err.Error(), secret) {
					t.Errorf("%s: %v", line, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			if got := password(cfg); got != secret {
				t.Errorf("%s: got %q, want %q", line, got, secret)
			}
			if secret != "[secret]" && len(secret) > 2 {
				mustNotShow(t, cfg, secret)
			}
		}
	}
}

// tomlString writes a string as TOML can; empty if it cannot.
func tomlString(s string) string {
	if strings.ToValidUTF8(s, "") != s {
		return ""
	}
	b := &strings.Builder{}
	for _, r := range s {
		fmt.Fprintf(b, "\\U%08x", r)
	}
	return `"` + b.String() + `"`
}

func mustNotShow(t *testing.T, cfg *Config, secret string) {
	t.Helper()
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("config", "config", cfg, "options", cfg.Devices[0].Options)
	asJSON, _ := json.Marshal(cfg)
	options := cfg.Devices[0].Options
	for _, shown := range []string{
		fmt.Sprintf("%v %+v %#v %s", cfg, cfg, options, options), logged.String(), string(asJSON), fmt.Sprint(Describe(options)),
	} {
		if strings.Contains(shown, secret) {
			t.Errorf("%q is shown in %s", secret, shown)
		}
	}
}

// What is wrong with a secret is told with line and cure, and without the secret.
func TestSecretProblems(t *testing.T) {
	dir := t.TempDir()
	open := write(t, filepath.Join(dir, "open"), "hunter2", 0o604)
	odd := write(t, filepath.Join(dir, "it's open"), "hunter2", 0o644)
	empty := write(t, filepath.Join(dir, "empty"), "\n", 0o600)
	long := write(t, filepath.Join(dir, "long"), strings.Repeat("hunter2", 3), 0o600)
	huge := write(t, filepath.Join(dir, "huge"), strings.Repeat("hunter2", maxSecret), 0o600)
	t.Setenv("HAMGR_TEST_EMPTY", "")
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	tests := []struct {
		line string
		mode os.FileMode
		want []string
	}{
		{`password = "hunter2"`, 0o640, []string{"password: a secret stands in a file that others can read (mode 0640)", "password_file", "chmod 600 "}},
		{`password = "hunter2"`, 0o604, []string{"(mode 0604)"}},
		{"password_file = " + strconv.Quote(open), 0o644, []string{"password_file: ", "is open to all users (mode 0604)", "run: chmod 600 " + open}},
		{"password_file = " + strconv.Quote(odd), 0o644, []string{"run: chmod 600 '" + dir + `/it'\''s open'`}},
		{"password_file = " + strconv.Quote(empty), 0o644, []string{`is empty`}},
		{"password_file = " + strconv.Quote(long), 0o644, []string{`password: is longer than 20 bytes`}},
		{"password_file = " + strconv.Quote(huge), 0o644, []string{`is too large for a secret`}},
		{"password_file = " + strconv.Quote(dir), 0o644, []string{`is not a file`}},
		{"password_file = " + strconv.Quote(dir+"/none"), 0o644, []string{`cannot be read: no such file or directory`, "write the secret into it"}},
		{`password_env = "HAMGR_TEST_NONE"`, 0o644, []string{`the environment variable "HAMGR_TEST_NONE" is not set or empty`}},
		{`password_env = "HAMGR_TEST_EMPTY"`, 0o644, []string{`the environment variable "HAMGR_TEST_EMPTY" is not set or empty`}},
		{`password_credential = "none"`, 0o644, []string{"cannot be read", "add LoadCredential=none:PATH to the unit"}},
		{`password_credential = "/etc/passwd"`, 0o644, []string{"is not the name of a credential"}},
		{`password_credential = ".."`, 0o644, []string{"is not the name of a credential"}},
	}
	for _, tt := range tests {
		_, err := loadText(t, fenced(tt.line), tt.mode)
		problems, ok := err.(Errors)
		if !ok || len(problems) != 1 || problems[0].Line != passwordLine {
			t.Errorf("%s: %v", tt.line, err)
			continue
		}
		for _, want := range append(tt.want, "; ") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", tt.line, err, want)
			}
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the secret is shown: %v", err)
		}
	}
}

func TestNoCredentialsDirectory(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	_, err := loadText(t, fenced(`password_credential = "bmc"`), 0o600)
	if err == nil || !strings.Contains(err.Error(), "LoadCredential=bmc:PATH") {
		t.Error(err)
	}
}

// Parse looks at nothing outside the file, and then at no mode either.
func TestParseFetchesNothing(t *testing.T) {
	t.Setenv("HAMGR_TEST_PW", "hunter2")
	for _, line := range []string{`password_file = "/nowhere/at/all"`, `password_env = "HAMGR_TEST_PW"`, `password_credential = "none"`} {
		if got := password(parseOK(t, fenced(line))); got != unread {
			t.Errorf("%s: got %q", line, got)
		}
	}
	if got := password(parseOK(t, fenced(`password = "hunter2"`))); got != "hunter2" {
		t.Errorf("got %q", got)
	}
}

func TestWritableFileIsDoubtful(t *testing.T) {
	line := "password_file = " + strconv.Quote(write(t, filepath.Join(t.TempDir(), "pw"), "x", 0o640))
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o644: false, 0o664: true, 0o646: true} {
		cfg, err := loadText(t, fenced(line), mode)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(Errors(cfg.Warnings).Error(), "others can write this file"); got != want {
			t.Errorf("mode %04o: %v", mode, cfg.Warnings)
		}
	}
}
