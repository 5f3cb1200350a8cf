// Package command is the resource kind of one long-running process.
//
// The process runs in a session and process group of its own, and does not depend on
// the daemon: it goes on when the daemon dies, and a new daemon finds it again. It must
// stay in the foreground; when it ends, the resource has ended.
//
// What belongs to the resource is decided by three marks, any of which is enough: the
// variable HAMGR_DIR in a process's environment, which every descendant inherits;
// the session or process group of the recorded process; and being a child of one that
// belongs. So a descendant that moved to another session, or that cleared its
// environment, is found too. One that did both and whose parents are gone is not.
package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// Kind is the registry's entry.
func Kind() resources.Kind {
	return resources.Kind{
		Name: "command",
		Doc:  "a long-running process in a session of its own, which must stay in the foreground",
		Options: func() resources.Options {
			return &Options{StopSignal: "TERM", KillAfter: 10 * time.Second}
		},
		Example: `[[group.resource]]
name = "app"
kind = "command"
run = ["/usr/local/bin/app", "--data", "/srv/app"]
log_file = "/var/log/app.log"
`,
	}
}

// Options are the keys of a command in hamgr.toml.
type Options struct {
	Run        []string          `toml:"run" doc:"program and arguments; no shell is involved"`
	Env        map[string]string `toml:"env" doc:"environment variables, beside PATH, HOME, LANG and TZ of the daemon and hamgr's own"`
	Dir        string            `toml:"dir" doc:"working directory; default /"`
	LogFile    string            `toml:"log_file" doc:"file to which standard output and error are appended; default: they are discarded"`
	ReadyAfter time.Duration     `toml:"ready_after" doc:"how long the process must have lived before its start counts as done; default 0s"`
	StopSignal string            `toml:"stop_signal" doc:"signal that asks the process to end; default TERM"`
	KillAfter  time.Duration     `toml:"kill_after" doc:"time from the stop signal to SIGKILL, cut to three quarters of what is left of the stop's deadline; default 10s"`
}

// Validate implements resources.Options.
func (o *Options) Validate() error {
	var errs []error
	wrong := func(key, cure, format string, args ...any) {
		errs = append(errs, &resources.KeyError{Key: key, Msg: fmt.Sprintf(format, args...), Cure: cure})
	}
	if len(o.Run) == 0 || o.Run[0] == "" {
		wrong("run", `give the program and its arguments, as in ["/usr/bin/app", "--foreground"]`, "no program")
	}
	if len(o.Run) > 0 && strings.Contains(o.Run[0], "/") && !filepath.IsAbs(o.Run[0]) {
		wrong("run", "write the whole path, from /, or a name that PATH leads to", "%q is a relative path", o.Run[0])
	}
	for _, arg := range o.Run {
		if strings.ContainsRune(arg, 0) {
			wrong("run", "", "a NUL byte in %q", arg)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Env)) {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(o.Env[name], 0):
			wrong("env", "", "%q is no environment variable", name)
		case strings.HasPrefix(name, "HAMGR_"):
			wrong("env", "choose another name", "%s: names that start with HAMGR_ are hamgr's own", name)
		}
	}
	if o.Dir != "" && !filepath.IsAbs(o.Dir) {
		wrong("dir", "write the whole path, from /", "%q is a relative path", o.Dir)
	}
	if o.LogFile != "" && !filepath.IsAbs(o.LogFile) {
		wrong("log_file", "write the whole path, from /", "%q is a relative path", o.LogFile)
	}
	if o.ReadyAfter < 0 {
		wrong("ready_after", "", "%s is negative", o.ReadyAfter)
	}
	if _, err := o.signal(); err != nil {
		wrong("stop_signal", "use a name such as TERM, INT, QUIT or HUP", "%v", err)
	}
	if o.KillAfter < 0 {
		wrong("kill_after", "", "%s is negative", o.KillAfter)
	}
	return errors.Join(errs...)
}

func (o *Options) signal() (unix.Signal, error) {
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(o.StopSignal), "SIG")
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("no signal is called %q", o.StopSignal)
}

// New implements resources.Options.
func (o *Options) New(env resources.Env) (resources.Resource, error) {
	sig, err := o.signal()
	if err != nil {
		return nil, err
	}
	if len(o.Run) == 0 {
		return nil, errors.New("no program to run")
	}
	dir, err := filepath.Abs(env.Dir)
	if err != nil {
		return nil, fmt.Errorf("private directory of %s: %w", env.Resource, err)
	}
	return &command{opts: *o, signal: sig, env: env, dir: dir, spawn: os.StartProcess}, nil
}

var _ interface {
	resources.Resource
	resources.Watcher
} = (*command)(nil)

type command struct {
	opts   Options
	signal unix.Signal
	env    resources.Env
	dir    string // env.Dir as an absolute path
	spawn  func(name string, argv []string, attr *os.ProcAttr) (*os.Process, error)
	exits  exits
}

// Probe implements resources.Resource. A healthy process costs one look at it; all
// processes of the host are read only when the recorded one is not there.
func (c *command) Probe(ctx context.Context) (resources.State, string, error) {
	unlock, err := lock(ctx, c.dir)
	if err != nil {
		return resources.Unknown, "", err
	}
	defer unlock()
	return c.probe()
}

func (c *command) probe() (resources.State, string, error) {
	rec, err := readRecord(c.dir)
	if errors.Is(err, errNoRecord) {
		return resources.Inactive, "not started in this boot", nil
	}
	if err != nil {
		return resources.Unknown, "", err
	}
	leader, runs, err := c.leader(rec)
	if err != nil {
		return resources.Unknown, "", err
	}
	if runs && rec.Token == c.env.Token {
		return resources.Active, leader.String(), nil
	}
	if runs {
		return resources.Failed, fmt.Sprintf("%s still runs under token %d", leader, rec.Token), nil
	}
	left, err := c.members(rec)
	if err != nil {
		return resources.Unknown, "", err
	}
	if len(left) == 0 {
		return resources.Inactive, c.exits.reason(rec.process()), nil
	}
	return resources.Failed, fmt.Sprintf("left over: %s", process.List(left)), nil
}

// Died implements resources.Watcher.
func (c *command) Died(ctx context.Context) error {
	rec, err := readRecord(c.dir)
	if err != nil {
		return err
	}
	leader, runs, err := c.leader(rec)
	if err != nil {
		return err
	}
	if runs {
		if err := leader.Wait(ctx); err != nil {
			return err
		}
	}
	c.exits.reap(rec.process())
	return errors.New(c.exits.reason(rec.process()))
}
