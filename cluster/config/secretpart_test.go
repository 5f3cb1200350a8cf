package config

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/agents"
)

// scriptOptions have a table of strings, some of which are secrets.
type scriptOptions struct {
	Options map[string]string        `toml:"options" doc:"its own options"`
	Secrets map[string]agents.Secret `toml:"options" doc:"those of them that are secrets" secret:"(.*_)?passw(or)?d|token"`
}

func (o *scriptOptions) Validate() error {
	var errs []error
	for name, s := range o.Secrets {
		if len(s.Reveal()) > 60 {
			errs = append(errs, &agents.KeyError{Key: "options." + name, Msg: "is longer than 60 bytes", Cure: "set a shorter one"})
		}
	}
	if o.Options["port"] == "0" {
		errs = append(errs, &agents.KeyError{Key: "options.port", Msg: "is 0", Cure: "write another"})
	}
	return errors.Join(errs...)
}

func (o *scriptOptions) Open(*slog.Logger) (agents.Agent, error) {
	return nil, errors.New("not in this test")
}

func loadScripted(t *testing.T, text string, mode os.FileMode) (*Config, error) {
	t.Helper()
	kinds := testKinds()
	kinds.Agents["script"] = agents.Kind{Name: "script", Options: func() agents.Options { return &scriptOptions{} }}
	return Load(write(t, filepath.Join(t.TempDir(), "hamgr.toml"), text, mode), kinds)
}

// scripted is a file whose one device has the given lines in its table of options.
func scripted(lines ...string) string {
	text := fenced("")
	head, _, _ := strings.Cut(text, "agent = ")
	return head + "agent = \"script\"\n[fence_device.options]\n" + strings.Join(lines, "\n") + "\n"
}

const optionsLine = 12 // the first line of the table

func optionsOf(cfg *Config) *scriptOptions { return cfg.Devices[0].Options.(*scriptOptions) }

// Secrets in a table of strings arrive byte for byte, apart from the rest, and never show.
func TestSecretsInATable(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	t.Setenv("HAMGR_TEST_TOKEN", "env-hunter2")
	for i, secret := range oddSecrets {
		if len(secret) < 3 || strings.HasSuffix(secret, "\n") || secret == "[secret]" {
			continue
		}
		path := write(t, filepath.Join(dir, strconv.Itoa(i)), secret+"\n", 0o400)
		cfg, err := loadScripted(t, scripted(
			`ip = "10.9.0.60"`,
			`identity_file = "/root/.ssh/id_rsa"`,
			`password_script = "/bin/true"`,
			"password_file = "+strconv.Quote(path),
			`snmp_priv_passwd_credential = `+strconv.Quote(filepath.Base(path)),
			`token_env = "HAMGR_TEST_TOKEN"`), 0o644)
		if err != nil {
			t.Fatal(err)
		}
		o := optionsOf(cfg)
		if !maps.Equal(o.Options, map[string]string{"ip": "10.9.0.60", "identity_file": "/root/.ssh/id_rsa", "password_script": "/bin/true"}) {
			t.Errorf("the rest is %v", o.Options)
		}
		if want := (map[string]agents.Secret{
			"password": agents.NewSecret(secret), "password_file": agents.NewSecret(path),
			"snmp_priv_passwd": agents.NewSecret(secret), "token": agents.NewSecret("env-hunter2"),
		}); !maps.EqualFunc(o.Secrets, want, func(a, b agents.Secret) bool { return a.Reveal() == b.Reveal() }) {
			for name, s := range o.Secrets {
				t.Errorf("%s is %q", name, s.Reveal())
			}
		}
		mustNotShow(t, cfg, secret)
		mustNotShow(t, cfg, "env-hunter2")
	}
}

// An inline one is a secret by its name, and refused where others can read the file.
func TestInlineSecretInATable(t *testing.T) {
	cfg, err := loadScripted(t, scripted(`password = "hunter2"`, `Pass-Word = "hunter3"`, `SNMP-Priv_Passwd = "hunter4"`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	o := optionsOf(cfg)
	if len(o.Options) != 1 || o.Options["Pass-Word"] != "hunter3" || o.Secrets["password"].Reveal() != "hunter2" || o.Secrets["SNMP-Priv_Passwd"].Reveal() != "hunter4" {
		t.Errorf("%+v", o)
	}
	mustNotShow(t, cfg, "hunter2")
	mustNotShow(t, cfg, "hunter4")
}

func TestSecretProblemsInATable(t *testing.T) {
	open := write(t, filepath.Join(t.TempDir(), "open"), "hunter2", 0o604)
	long := write(t, filepath.Join(t.TempDir(), "long"), strings.Repeat("hunter2", 10), 0o600)
	for line, wants := range map[string][]string{
		`password = "hunter2"`:                   {"options.password: a secret stands in a file that others can read (mode 0640)", "password_file"},
		"password_file = " + strconv.Quote(open): {"options.password_file: ", "is open to all users"},
		"password_file = " + strconv.Quote(long): {"options.password: is longer than 60 bytes"},
		`password_file = "relative"`:             {"options.password_file: ", "is not an absolute path"},
		`password_file = ""`:                     {"options.password_file: is empty"},
		`password_env = "HAMGR_TEST_NONE"`:       {"options.password_env: ", "is not set or empty"},
		`password_env = 12345`:                   {"options.password_env: is a number, but a string is wanted"},
		`password = 12345`:                       {"options.password: is a number, but a string is wanted"},
		`port = 623`:                             {"options.port: is a number, but a string is wanted"},
		`port = "0"`:                             {"options.port: is 0; write another"},
		"x = \"\"\npassword_env = \"HOME\"\npassword_file = \"/x\"": {"options.password_file: password_env is given too"},
	} {
		_, err := loadScripted(t, scripted(line), 0o640)
		problems, ok := err.(Errors)
		if !ok || len(problems) != 1 || problems[0].Line != optionsLine+strings.Count(line, "\n") {
			t.Errorf("%s: %v", line, err)
			continue
		}
		for _, want := range append(wants, "; ") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", line, err, want)
			}
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "12345") {
			t.Errorf("the secret is shown: %v", err)
		}
	}
	if _, err := loadScripted(t, scripted(), 0o644); err != nil {
		t.Error(err)
	}
	whole := strings.Replace(scripted(), "[fence_device.options]", `options = "hunter2"`, 1)
	if _, err := loadScripted(t, whole, 0o644); err == nil || !strings.Contains(err.Error(), "options: is a string, but a table of strings is wanted") || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

// The two parts are one key to whoever reads about it.
func TestSecretPartIsNoKey(t *testing.T) {
	if keys := Describe(&scriptOptions{}); len(keys) != 1 || keys[0].Key != "options" || keys[0].Type != "table of strings" {
		t.Errorf("%+v", keys)
	}
}
