// Package systemd is the resource kind of one service of the host's systemd.
//
// systemd is asked on its own private socket, not over the message bus: there only root talks, and
// nobody but PID 1 answers. On the bus any user may send signals that look like systemd's, and the bus
// is one more program that can hang.
//
// What a job's result says is never taken for the unit's state: after each job systemd is asked how the unit is. A
// stop is done only when the unit is inactive, nothing is queued for it and no process of it is left.
//
// A service runs under a grant: a drop-in below /run gives it the token, and takes restarts away from systemd,
// because what restarts a failed service, and where, is the cluster's to decide.
//
// systemd may hang. Every call ends with its context. A request to start that is still unread then might be obeyed
// later; so its connection is kept until it is answered, and no Stop succeeds before.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/hamgr/hamgr/resources"
)

// Kind is the registry's entry.
func Kind() resources.Kind {
	return resources.Kind{
		Name:    "systemd",
		Doc:     "a service of systemd, which must not be enabled",
		Options: func() resources.Options { return &Options{} },
		Example: `[[group.resource]]
name = "postgres"
kind = "systemd"
unit = "postgresql.service"
`,
	}
}

// Options are the keys of a systemd service in hamgr.toml.
type Options struct {
	Unit       string        `toml:"unit" doc:"name of the service with its suffix, as in postgresql.service or postgresql@16-main.service"`
	ReadyAfter time.Duration `toml:"ready_after" doc:"how long the service must have been active before its start counts as done, for services that cannot tell when they are ready; default 0s"`
}

// Validate implements resources.Options.
func (o *Options) Validate() error {
	var errs []error
	if msg, cure := wrongUnit(o.Unit); msg != "" {
		errs = append(errs, &resources.KeyError{Key: "unit", Msg: msg, Cure: cure})
	}
	if o.ReadyAfter < 0 {
		errs = append(errs, &resources.KeyError{Key: "ready_after", Msg: fmt.Sprintf("%s is negative", o.ReadyAfter)})
	}
	return errors.Join(errs...)
}

// Exclusive implements resources.Options: a group that stops the unit would stop it for the other one, and what the unit
// works on is not known.
func (o *Options) Exclusive() (key, what string) { return "unit", o.Unit }

// The rules of unit names: systemd.unit(5), "String escaping for inclusion in unit names" and before.
const (
	maxUnit   = 255
	unitChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\@"
)

// notServices are the other types of units, and why they cannot be a resource: when they have stopped, what they
// started goes on, or something else has it too.
var notServices = map[string]string{
	".socket":    "name the service: a service that a socket has started outlives the socket",
	".timer":     "name the service: a service that a timer has started outlives the timer",
	".path":      "name the service: a service that a path unit has started outlives it",
	".target":    "name the services: what a target has started outlives the target",
	".mount":     `use kind = "filesystem", which proves that the device is free`,
	".automount": `use kind = "filesystem"`,
	".swap":      "swap space belongs to one host",
	".device":    "devices come and go by themselves",
	".slice":     "name the services in it",
	".scope":     "a scope is started by a program, not by systemd",
}

func wrongUnit(name string) (msg, cure string) {
	suffix := path.Ext(name)
	prefix, instance, template := strings.Cut(strings.TrimSuffix(name, suffix), "@")
	switch {
	case name == "":
		return "no unit", `write the name of the service, as in unit = "postgresql.service"`
	case strings.Trim(name, unitChars) != "" || strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(unitChars, r) }):
		return fmt.Sprintf("%q is no name of a unit", name), "use letters, digits and :-_.\\@ only"
	case len(name) > maxUnit:
		return fmt.Sprintf("the name has %d characters; %d are allowed", len(name), maxUnit), ""
	case notServices[suffix] != "":
		return fmt.Sprintf("%q is no service", name), notServices[suffix]
	case suffix != ".service":
		return fmt.Sprintf("%q lacks its suffix", name), fmt.Sprintf("write %q", name+".service")
	case prefix == "":
		return fmt.Sprintf("%q is no name of a unit", name), ""
	case template && instance == "":
		return fmt.Sprintf("%q is a template", name), fmt.Sprintf("name the instance, as in %q", prefix+"@main.service")
	case name == ownUnit:
		return "hamgr cannot manage itself", ""
	}
	return "", ""
}

// New implements resources.Options.
func (o *Options) New(env resources.Env) (resources.Resource, error) {
	if msg, _ := wrongUnit(o.Unit); msg != "" {
		return nil, errors.New(msg)
	}
	return &service{opts: *o, env: env, dial: connect, link: shared, dropIns: runtimeUnits, starts: unanswered}, nil
}

var _ interface {
	resources.Resource
	resources.Watcher
	resources.Checker
} = (*service)(nil)

type service struct {
	opts    Options
	env     resources.Env
	dial    func(context.Context) (manager, error) // a connection for one action
	link    *link                                  // the connection for looks
	dropIns string                                 // directory that holds the drop-ins of this boot
	starts  *requests
	run     run
}
