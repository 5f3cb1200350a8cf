package command

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

func TestValidate(t *testing.T) {
	run := func(o *Options) { o.Run = []string{"app"} }
	service := func(o *Options) { o.Start, o.Stop, o.Monitor = []string{"a"}, []string{"b"}, []string{"c"} }
	for _, c := range []struct {
		key    string
		form   func(*Options)
		change func(*Options)
	}{
		{"run", run, func(o *Options) { o.Run = nil }},
		{"run", run, func(o *Options) { o.Run = []string{"bin/app"} }},
		{"run", run, func(o *Options) { o.Run = []string{""} }},
		{"run", run, func(o *Options) { o.Run = []string{"app", "a\x00b"} }},
		{"start", service, func(o *Options) { o.Run = []string{"app"} }},
		{"start", service, func(o *Options) { o.Start[0] = "./a" }},
		{"stop", service, func(o *Options) { o.Stop = nil }},
		{"stop", service, func(o *Options) { o.Stop[0] = "../b" }},
		{"stop", run, func(o *Options) { o.Stop = []string{"a"} }},
		{"monitor", run, func(o *Options) { o.Monitor = []string{"a"} }},
		{"monitor", service, func(o *Options) { o.Monitor[0] = "" }},
		{"environment", run, func(o *Options) { o.Environment = map[string]string{"HAMGR_TOKEN": "9"} }},
		{"environment", run, func(o *Options) { o.Environment = map[string]string{"a=b": "9"} }},
		{"environment", run, func(o *Options) { o.Environment = map[string]string{"A": "\a"} }},
		{"environment", run, func(o *Options) { o.Environment = map[string]string{"PGPASSWORD": "mouse"} }},
		{"environment_files", run, func(o *Options) { o.EnvironmentFiles = map[string]string{"A": "secret"} }},
		{"environment_files", run, func(o *Options) { o.EnvironmentFiles = map[string]string{"1A": "/secret"} }},
		{"environment_files", run, func(o *Options) {
			o.Environment, o.EnvironmentFiles = map[string]string{"A": "b"}, map[string]string{"A": "/secret"}
		}},
		{"working_directory", run, func(o *Options) { o.WorkingDirectory = "srv" }},
		{"working_directory", run, func(o *Options) { o.WorkingDirectory = "/srv\n" }},
		{"user", run, func(o *Options) { o.User = "a b" }},
		{"group", run, func(o *Options) { o.Group = "a:b" }},
		{"log_file", run, func(o *Options) { o.LogFile = "log" }},
		{"ready_after", run, func(o *Options) { o.ReadyAfter = -1 }},
		{"ready_after", service, func(o *Options) { o.ReadyAfter = time.Second }},
		{"stop_signal", run, func(o *Options) { o.StopSignal = "TREM" }},
		{"kill_after", run, func(o *Options) { o.KillAfter = -1 }},
	} {
		o := Kind().Options().(*Options)
		c.form(o)
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		c.change(o)
		var key *resources.KeyError
		if err := o.Validate(); !errors.As(err, &key) || key.Key != c.key {
			t.Errorf("%s: %v", c.key, err)
		} else if strings.Contains(err.Error(), "mouse") {
			t.Errorf("a secret is told: %v", err)
		}
	}
}

// A file of a secret is read with each start; what cannot be its value is told, and the value is not.
func TestReadSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	for content, want := range map[string]string{"mouse\n": "mouse", "two\nlines\n": "two\nlines", " a=\"b\" $c \\": " a=\"b\" $c \\", "": ""} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readSecret(file); err != nil || got != want {
			t.Errorf("%q: %q %v", content, got, err)
		}
	}
	for _, content := range []string{"mouse\x00", "mouse\xff", strings.Repeat("mouse", mostSecret/5+1)} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readSecret(file); !errors.Is(err, resources.ErrSetup) || strings.Contains(err.Error(), "mouse") {
			t.Errorf("%.20q: %v", content, err)
		}
	}
	if _, err := readSecret(file + "x"); !errors.Is(err, resources.ErrNode) {
		t.Errorf("no file: %v", err)
	}
}

func TestAccount(t *testing.T) {
	root, err := user.Lookup("root")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		user, group string
		want        *account
		err         error
	}{
		"none":               {},
		"by name":            {user: "root", want: &account{groups: []uint32{0}, name: "root", home: root.HomeDir}},
		"by number":          {user: "0", want: &account{groups: []uint32{0}, name: "root", home: root.HomeDir}},
		"nobody's number":    {user: "54321", err: resources.ErrNode},
		"nobody has it":      {user: "no-such-user", err: resources.ErrNode},
		"group":              {group: "0", want: &account{uid: uint32(os.Geteuid())}},
		"no such group":      {user: "root", group: "no-such-group", err: resources.ErrNode},
		"not a user at all":  {user: "4294967295", group: "0", err: resources.ErrNode},
		"not a group at all": {group: "4294967295", err: resources.ErrNode},
	} {
		o := Options{User: c.user, Group: c.group}
		got, err := o.account(t.Context())
		if !errors.Is(err, c.err) || c.err == nil && err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if (got == nil) != (c.want == nil) || got != nil && (got.uid != c.want.uid || got.gid != c.want.gid || got.name != c.want.name || got.home != c.want.home || c.want.groups != nil && !slices.Contains(got.groups, c.want.groups[0])) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Options)
		err    error
		words  string
	}{
		"all is well":    {change: func(o *Options) {}},
		"no program":     {func(o *Options) { o.Run[0] = "/no/such/program" }, resources.ErrNode, "/no/such/program"},
		"no name":        {func(o *Options) { o.Run[0] = "no-such-program" }, resources.ErrNode, "not in PATH"},
		"not executable": {func(o *Options) { o.Run[0] = plain }, resources.ErrSetup, "chmod +x " + plain},
		"no stop":        {func(o *Options) { o.Run, o.Start, o.Stop = nil, []string{"true"}, []string{"/no/stop"} }, resources.ErrNode, "/no/stop"},
		"no monitor": {func(o *Options) {
			o.Run, o.Start, o.Stop, o.Monitor = nil, []string{"true"}, []string{"true"}, []string{"/no/monitor"}
		}, resources.ErrNode, "/no/monitor"},
		"no user":           {func(o *Options) { o.User = "no-such-user" }, resources.ErrNode, "no-such-user"},
		"no directory":      {func(o *Options) { o.WorkingDirectory = "/no/dir" }, resources.ErrNode, "/no/dir"},
		"directory is file": {func(o *Options) { o.WorkingDirectory = plain }, resources.ErrSetup, plain},
		"no secret":         {func(o *Options) { o.EnvironmentFiles = map[string]string{"A": "/no/secret"} }, resources.ErrNode, "/no/secret"},
		"no log":            {func(o *Options) { o.LogFile = "/no/dir/log" }, resources.ErrNode, "/no/dir"},
	} {
		o := Kind().Options().(*Options)
		o.Run = []string{"true"}
		c.change(o)
		r, err := build(o, dir, 1)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Check(t.Context())
		if c.err == nil && err != nil || !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What systemd reads from the file is what a child would get: systemd.exec(5), "EnvironmentFile=", read here as a shell's words.
func FuzzEnvironmentFile(f *testing.F) {
	f.Add("plain")
	f.Add("a \"b\" 'c' $d `e` \\ \n#f;\tg")
	f.Add("\x00")
	f.Fuzz(func(t *testing.T, value string) {
		b, err := environmentFile([]string{"A=" + value, "B=x"})
		if (err != nil) != wrongValue(value) {
			t.Fatalf("%q: %v", value, err)
		}
		if err != nil {
			return
		}
		got, rest, ok := unquote(strings.TrimPrefix(string(b), "A="))
		if !ok || got != value || rest != "\nB=\"x\"\n" {
			t.Errorf("%q is read as %q, %q", value, got, rest)
		}
	})
}

// unquote reads a word in double quotes.
func unquote(s string) (word, rest string, ok bool) {
	var b strings.Builder
	if !strings.HasPrefix(s, `"`) {
		return "", s, false
	}
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:], true
		case s[i] == '\\' && i+1 < len(s) && strings.ContainsRune("\"\\`$", rune(s[i+1])):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", s, false
}

func FuzzGroups(f *testing.F) {
	f.Add([]byte("0::/hamgr.slice/hamgr-web:app.service\n"))
	f.Add([]byte("9:name=systemd:/hamgr.slice/hamgr-web:app.service/below\n1:cpu:/hamgr.slice/hamgr-web:app.service\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		const group = "/hamgr.slice/hamgr-web:app.service"
		if isIn(b, group) && !strings.Contains(string(b), ":"+group) || isService(b) && !strings.Contains(string(b), ".service") {
			t.Errorf("%q", b)
		}
	})
}

func TestIsIn(t *testing.T) {
	const group = "/hamgr.slice/hamgr-web:app.service"
	for in, want := range map[string]bool{
		"0::/hamgr.slice/hamgr-web:app.service\n":                  true,
		"0::/hamgr.slice/hamgr-web:app.service/x/y\n":              true,
		"9:name=systemd:/hamgr.slice/hamgr-web:app.service\n0::/":  true,
		"1:cpu:/hamgr.slice/hamgr-web:app.service\n":               false,
		"0::/hamgr.slice/hamgr-web:app.service2\n":                 false,
		"0::/machine.slice/c1/hamgr.slice/hamgr-web:app.service\n": false, // of a container
		"0::/hamgr.slice/hamgr-web:app.servic":                     false,
		"":                                                         false,
	} {
		if got := isIn([]byte(in), group); got != want {
			t.Errorf("%q: %t", in, got)
		}
	}
}

func TestIsService(t *testing.T) {
	for in, want := range map[string]bool{
		"0::/system.slice/hamgr.service\n":                      true,
		"1:cpu:/\n3:name=systemd:/system.slice/hamgr.service\n": true,
		"0::/user.slice/user-0.slice/session-1.scope\n":         false,
		"1:cpu:/system.slice/hamgr.service\n0::/\n":             false,
		"": false,
	} {
		if got := isService([]byte(in)); got != want {
			t.Errorf("%q: %t", in, got)
		}
	}
}

// A secret that everybody can read is refused beforehand, and keeps nothing from being stopped; what is no plain file hangs nobody.
func TestCheckSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	put(t, file, "mouse\n")
	c := tracked(t, t.TempDir(), 1, "sleep", "60")
	c.opts.EnvironmentFiles = map[string]string{"KEY": file}
	if err := c.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.Check(t.Context()); !errors.Is(err, resources.ErrSetup) || !strings.Contains(err.Error(), "chmod o= "+file) {
		t.Errorf("check: %v", err)
	}
	mustStart(t, c)
	mustStop(t, c)
	if err := errors.Join(os.Remove(file), unix.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := c.Check(deadline(t, 10*time.Second)); !errors.Is(err, resources.ErrSetup) {
		t.Errorf("check: %v", err)
	}
}
