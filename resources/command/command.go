// Package command is the resource kind of one long-running process, or of what commands start, stop and look at.
//
// What was started does not depend on the daemon: it goes on when the daemon dies, and a new daemon finds it again. Where systemd
// runs it is in a transient service of its own, else in a session of its own.
//
// What belongs to the resource is decided by four marks, any of which is enough: the control group of the service; the
// variable HAMGR_DIR in a process's environment, which every descendant inherits; the session or process group of the
// recorded process; and being a child of one that belongs. So a descendant that moved to another session, or that cleared its
// environment, is found too. Without systemd, one that did both and whose parents are gone is not.
//
// What was started is inactive when none of its processes is left; what commands started, when monitor says so, too, or, without a
// monitor, when stop ended with status 0. Until then it is never inactive, whatever became of its processes.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// Kind is the registry's entry.
func Kind() resources.Kind {
	return resources.Kind{
		Name: "command",
		Doc:  "a long-running program, or commands that start, stop and monitor a service",
		Options: func() resources.Options {
			return &Options{StopSignal: "TERM", KillAfter: 10 * time.Second}
		},
		Example: `[[group.resource]]
name = "app"
kind = "command"
run = ["/usr/local/bin/app", "--data", "/srv/app"]
user = "app"
working_directory = "/srv/app"
environment = { APP_PORT = "8080" }

# Or instead of run, commands for a service that goes to the background:
# start = ["/usr/local/bin/appctl", "start"]
# stop = ["/usr/local/bin/appctl", "stop"]
# monitor = ["/usr/local/bin/appctl", "status"]     # status 0: active, 7: inactive, others: failed
`,
	}
}

// New implements resources.Options.
func (o *Options) New(env resources.Env) (resources.Resource, error) {
	sig, err := o.signal()
	if err != nil {
		return nil, err
	}
	if len(o.Run) == 0 && (len(o.Start) == 0 || len(o.Stop) == 0) {
		return nil, errors.New("no program to run")
	}
	dir, err := filepath.Abs(env.Dir)
	if err != nil {
		return nil, fmt.Errorf("private directory of %s: %w", env.Resource, err)
	}
	return &command{opts: *o, signal: sig, env: env, dir: dir, spawn: os.StartProcess, managed: isRunBySystemd, dial: connect}, nil
}

var _ interface {
	resources.Resource
	resources.Watcher
	resources.Checker
} = (*command)(nil)

type command struct {
	opts   Options
	signal unix.Signal
	env    resources.Env
	dir    string // env.Dir as an absolute path
	spawn  func(name string, argv []string, attr *os.ProcAttr) (*os.Process, error)
	// managed tells whether systemd is to be asked for processes; one that was asked for is asked about wherever there is one.
	managed func() bool
	dial    func(context.Context) (manager, error)
	exits   exits
	alone   atomic.Bool // no action of an earlier daemon is left
	clear   atomic.Bool // nothing of it that an earlier daemon has started is left without a record
}
