package bus

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// Transient is a service that systemd is told of when it is started, and that has no unit file. Its control group is its own;
// nothing in it starts it again.
type Transient struct {
	Name        string
	Description string
	// Forks: the program comes back when the service is up, and what it has left behind is the service. Else
	// it is the service itself, and is up when it was executed.
	Forks bool
	// Program and Args, with the program's name as the first; systemd replaces nothing in them.
	Program string
	Args    []string
	// EnvironmentFile must be there: systemd reads it right before it starts the program, and without it does not.
	EnvironmentFile  string
	User, Group      string // empty is root's
	WorkingDirectory string
	AppendTo         string // file for standard output and error; empty is the journal
	Before           []string
	Slice            string
	StopSignal       int32
	KillAfter        time.Duration // from StopSignal to SIGKILL, where systemd stops it; hamgr has its own deadline
}

// Types of D-Bus: org.freedesktop.systemd1(5).
type (
	property struct {
		Name  string
		Value dbus.Variant
	}
	unitOfItsOwn struct { // the call's last argument is a list of these, and always empty
		Name       string
		Properties []property
	}
	execStart struct {
		Path string
		Args []string
		Bare bool // whether an unclean end is no failure
	}
	environmentFile struct {
		Path    string
		MayMiss bool
	}
)

func (u Transient) properties() []property {
	p := map[string]any{
		"Description":      u.Description,
		"Type":             "exec",
		"ExecStart":        []execStart{{u.Program, escape(u.Args), false}},
		"EnvironmentFiles": []environmentFile{{u.EnvironmentFile, false}},
		"WorkingDirectory": u.WorkingDirectory,
		"Before":           u.Before,
		"Slice":            u.Slice,
		"Restart":          "no",
		"KillMode":         "control-group",
		"KillSignal":       u.StopSignal,
		"SendSIGKILL":      true,
		"IgnoreSIGPIPE":    false,
		// What the kernel kills for its memory is one process; whether the service goes on without it is the service's to know.
		"OOMPolicy": "continue",
		// The deadline of the start is the caller's.
		"TimeoutStartUSec": uint64(math.MaxUint64),
		"TimeoutStopUSec":  uint64(u.KillAfter.Microseconds()),
	}
	if u.Forks {
		// No process of it is the main one: it runs while there is any.
		p["Type"], p["GuessMainPID"] = "forking", false
	}
	if u.User != "" {
		p["User"] = u.User
	}
	if u.Group != "" {
		p["Group"] = u.Group
	}
	if u.AppendTo != "" {
		p["StandardOutputFileToAppend"], p["StandardErrorFileToAppend"] = u.AppendTo, u.AppendTo
	}
	list := make([]property, 0, len(p))
	for _, name := range slices.Sorted(maps.Keys(p)) {
		list = append(list, property{name, dbus.MakeVariant(p[name])})
	}
	return list
}

// StartTransient asks for the job that starts the service. It fails if a unit of that name is there. The job's result comes on
// the channel, which has room for it.
//
// The dependencies that systemd adds by itself are ignored: those of the working directory and of the log file on their mounts
// would mount what is in /etc/fstab, without a grant.
func (c *Conn) StartTransient(ctx context.Context, u Transient) (job uint32, result <-chan string, err error) {
	return c.enqueue(ctx, "StartTransientUnit", u.Name, "ignore-dependencies", u.properties(), []unitOfItsOwn{})
}

// escape keeps systemd from replacing variables in arguments: systemd.service(5), "Command lines". (There is a flag for that too, of
// ExecStartEx; systemd 252 then writes a unit file that it cannot read again.)
func escape(args []string) []string {
	escaped := make([]string, len(args))
	for i, arg := range args {
		escaped[i] = strings.ReplaceAll(arg, "$", "$$")
	}
	return escaped
}
