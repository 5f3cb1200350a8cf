package command

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// Options are the keys of a command in hamgr.toml.
type Options struct {
	Run     []string `toml:"run" doc:"one long-running program and its arguments; it must stay in the foreground. No shell is involved, here and below"`
	Start   []string `toml:"start" doc:"instead of run: the command that starts the service, and exits with status 0 when it is active"`
	Stop    []string `toml:"stop" doc:"with start: the command that stops the service; status 0: it is inactive"`
	Monitor []string `toml:"monitor" doc:"with start: the command that looks at the service; status 0: active, 7: inactive, any other: failed"`

	User             string            `toml:"user" doc:"user, by name or number, who runs the commands; default: root, or whoever runs hamgr"`
	Group            string            `toml:"group" doc:"group, by name or number; default: that of user"`
	WorkingDirectory string            `toml:"working_directory" doc:"directory in which the commands run; default /"`
	Environment      map[string]string `toml:"environment" doc:"environment variables, beside PATH, LANG and TZ of hamgr's, HOME, and hamgr's own"`
	EnvironmentFiles map[string]string `toml:"environment_files" doc:"environment variables whose values are secret: the absolute path of a file that holds the value, read whenever a command is started; a newline at its end does not count"`
	Shared           bool              `toml:"shared" doc:"another group may run the very same commands, with the same environment, at the same time; otherwise that is refused, because what they work on is not known; default false"`
	LogFile          string            `toml:"log_file" doc:"file to which output is appended; default: the journal where systemd runs, else it is discarded"`

	ReadyAfter time.Duration `toml:"ready_after" doc:"with run: how long the process must have lived before its start counts as done; default 0s"`
	StopSignal string        `toml:"stop_signal" doc:"signal that asks processes to end; default TERM"`
	KillAfter  time.Duration `toml:"kill_after" doc:"time from the stop signal to SIGKILL, cut to three quarters of what is left of the stop's deadline; default 10s"`
}

// problems collects what is wrong with the keys.
type problems []error

func (p *problems) add(key, cure, format string, args ...any) {
	*p = append(*p, &resources.KeyError{Key: key, Msg: fmt.Sprintf(format, args...), Cure: cure})
}

// Validate implements resources.Options.
func (o *Options) Validate() error {
	var p problems
	o.checkForm(&p)
	for key, argv := range map[string][]string{"run": o.Run, "start": o.Start, "stop": o.Stop, "monitor": o.Monitor} {
		checkCommand(&p, key, argv)
	}
	o.checkEnvironment(&p)
	for key, path := range map[string]string{"working_directory": o.WorkingDirectory, "log_file": o.LogFile} {
		if path != "" && !filepath.IsAbs(path) {
			p.add(key, "write the whole path, from /", "%q is a relative path", path)
		} else if hasControl(path) {
			p.add(key, "", "a control character in %q", path)
		}
	}
	for key, name := range map[string]string{"user": o.User, "group": o.Group} {
		if strings.ContainsAny(name, ":/%\n\x00 ") {
			p.add(key, "write its name or its number", "%q is no name", name)
		}
	}
	if o.ReadyAfter < 0 {
		p.add("ready_after", "", "%s is negative", o.ReadyAfter)
	}
	if _, err := o.signal(); err != nil {
		p.add("stop_signal", "use a name such as TERM, INT, QUIT or HUP", "%v", err)
	}
	if o.KillAfter < 0 {
		p.add("kill_after", "", "%s is negative", o.KillAfter)
	}
	return errors.Join(p...)
}

// Exclusive implements resources.Options: the same program, told the same, works on the same thing.
func (o *Options) Exclusive() (key, what string) {
	if o.Shared {
		return "", ""
	}
	key = "run"
	if len(o.Start) > 0 {
		key = "start"
	}
	return key, fmt.Sprintf("%q in %q with %q and %q", slices.Concat(o.Run, o.Start), o.WorkingDirectory, o.Environment, o.EnvironmentFiles)
}

// checkForm: one program that runs, or commands that start and stop.
func (o *Options) checkForm(p *problems) {
	switch {
	case len(o.Run) > 0 && len(o.Start) > 0:
		p.add("start", "keep one of them", "there is run, too")
	case len(o.Run) == 0 && len(o.Start) == 0:
		p.add("run", `give the program and its arguments, as in ["/usr/bin/app", "--foreground"], or give start and stop`, "no program")
	case len(o.Start) > 0 && len(o.Stop) == 0:
		p.add("stop", "add the command that stops it", "what start has started can be stopped by nothing")
	case len(o.Run) > 0 && len(o.Stop) > 0:
		p.add("stop", "remove it, or use start instead of run; stop_signal says how run is asked to end", "it belongs to start")
	case len(o.Run) > 0 && len(o.Monitor) > 0:
		p.add("monitor", "remove it, or use start instead of run", "it belongs to start")
	case len(o.Start) > 0 && o.ReadyAfter > 0:
		p.add("ready_after", "remove it; let start exit when the service is active", "it belongs to run")
	}
}

func checkCommand(p *problems, key string, argv []string) {
	if len(argv) == 0 {
		return
	}
	switch program := argv[0]; {
	case program == "":
		p.add(key, `give the program and its arguments, as in ["/usr/bin/app", "--foreground"]`, "no program")
	case strings.Contains(program, "/") && !filepath.IsAbs(program):
		p.add(key, "write the whole path, from /, or a name that PATH leads to", "%q is a relative path", program)
	}
	for _, arg := range argv {
		if strings.ContainsRune(arg, 0) || !utf8.ValidString(arg) {
			p.add(key, "", "a NUL byte, or no UTF-8, in %q", arg)
		}
	}
}

func (o *Options) checkEnvironment(p *problems) {
	for _, name := range slices.Sorted(maps.Keys(o.Environment)) {
		checkVariable(p, "environment", name)
		if wrongValue(o.Environment[name]) {
			p.add("environment", "", "%s: a control character, or no UTF-8", name)
		} else if soundsSecret(name) { // the configuration is copied to every node, and shown
			p.add("environment", fmt.Sprintf("write environment_files = { %s = \"/etc/hamgr/secrets/...\" }, and the value into that file", name), "%s is a secret", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.EnvironmentFiles)) {
		checkVariable(p, "environment_files", name)
		if _, twice := o.Environment[name]; twice {
			p.add("environment_files", "keep one of them", "%s is in environment, too", name)
		}
		if path := o.EnvironmentFiles[name]; !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
			p.add("environment_files", "write the whole path, from /", "%s: %q is no absolute path", name, path)
		}
	}
}

const variableChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"

func checkVariable(p *problems, key, name string) {
	switch {
	case name == "" || strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(variableChars, r) }) || name[0] >= '0' && name[0] <= '9':
		p.add(key, "use letters, digits and _", "%q is no name of a variable", name)
	case strings.HasPrefix(name, "HAMGR_"):
		p.add(key, "choose another name", "%s: names that start with HAMGR_ are hamgr's own", name)
	}
}

// wrongValue tells what systemd would silently leave out of an environment: its src/basic/env-util.c, env_value_is_valid.
func wrongValue(value string) bool {
	return !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return r == 0x7f || r < ' ' && r != '\t' && r != '\n' })
}

func hasControl(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }

func soundsSecret(name string) bool {
	name = strings.ToUpper(name)
	for _, end := range []string{"PASSWORD", "PASSWD", "PASSPHRASE", "SECRET"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

func (o *Options) signal() (unix.Signal, error) {
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(o.StopSignal), "SIG")
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("no signal is called %q", o.StopSignal)
}
