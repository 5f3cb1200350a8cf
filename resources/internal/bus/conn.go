// Package bus is a connection to the host's systemd, for the kinds of resources that have it run something.
//
// It is systemd's own private socket, not the message bus: there only root talks, and nobody but PID 1 answers. On the bus
// any user may send signals that look like systemd's, and the bus is one more program that can hang.
package bus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// Names of systemd's D-Bus interface: org.freedesktop.systemd1(5).
const (
	systemdName      = "org.freedesktop.systemd1"
	managerInterface = systemdName + ".Manager"
	managerPath      = "/org/freedesktop/systemd1"
	noSuchUnit       = systemdName + ".NoSuchUnit"
	unitExists       = systemdName + ".UnitExists"
	noSuchJob        = systemdName + ".NoSuchJob"
)

// privateSocket is where systemd itself listens, for root alone.
const privateSocket = "/run/systemd/private"

// ErrLost says that the connection broke before the answer.
var ErrLost = errors.New("the connection to systemd was lost")

// ErrNoUnit says that systemd has no unit of that name, or not any more.
var ErrNoUnit = errors.New("no such unit")

// ErrUnitExists says that a unit of that name is there already.
var ErrUnitExists = errors.New("a unit of that name exists")

// Conn is a connection to systemd. github.com/coreos/go-systemd has one too; it can neither cancel a job nor list
// processes, and waits without a context here and there.
type Conn struct {
	bus     *dbus.Conn
	signals *signals
}

// Connect gives a connection that the caller closes.
func Connect(ctx context.Context) (*Conn, error) { return connectTo(ctx, privateSocket) }

func connectTo(ctx context.Context, socket string) (*Conn, error) {
	c := &Conn{signals: newSignals()}
	bus, err := dbus.Dial("unix:path="+socket, dbus.WithSignalHandler(c.signals))
	if err != nil {
		return nil, fmt.Errorf("connect to systemd: %w", err)
	}
	c.bus = bus
	// Authentication knows no context; closing the connection ends it.
	stop := context.AfterFunc(ctx, c.Close)
	err = bus.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))})
	if err == nil {
		err = c.subscribe(ctx)
	}
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to systemd: %w", err)
	}
	return c, nil
}

// subscribe asks for signals. It is the first message, and systemd (252 at least) lets that lie if it has read it together with
// the end of the authentication, until something else arrives. So something does.
func (c *Conn) subscribe(ctx context.Context) error {
	systemd := c.bus.Object(systemdName, managerPath)
	call := systemd.GoWithContext(ctx, managerInterface+".Subscribe", 0, nil)
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		t := time.NewTimer(pause)
		select {
		case <-call.Done:
			t.Stop()
			return call.Err
		case <-t.C:
			systemd.Go("org.freedesktop.DBus.Peer.Ping", dbus.FlagNoReplyExpected, nil)
		}
	}
}

func (c *Conn) manager(ctx context.Context, method string, args ...any) *dbus.Call {
	return c.bus.Object(systemdName, managerPath).CallWithContext(ctx, managerInterface+"."+method, 0, args...)
}

func unitPath(name string) dbus.ObjectPath {
	return dbus.ObjectPath(managerPath + "/unit/" + sd.PathBusEscape(name))
}

func (c *Conn) properties(ctx context.Context, name, kind string) (Properties, error) {
	var variants map[string]dbus.Variant
	call := c.bus.Object(systemdName, unitPath(name)).CallWithContext(ctx, "org.freedesktop.DBus.Properties.GetAll", 0, systemdName+"."+kind)
	if err := call.Store(&variants); err != nil {
		return nil, fmt.Errorf("ask systemd for %s: %w", name, err)
	}
	p := make(Properties, len(variants))
	for k, v := range variants {
		p[k] = v.Value()
	}
	return p, nil
}

// Unit gives the properties that all types of units have. The unit is loaded for that.
func (c *Conn) Unit(ctx context.Context, name string) (Properties, error) {
	return c.properties(ctx, name, "Unit")
}

// Service gives the properties of a service. The unit is loaded for that.
func (c *Conn) Service(ctx context.Context, name string) (Properties, error) {
	return c.properties(ctx, name, "Service")
}

// Processes lists what runs in the unit's control group.
func (c *Conn) Processes(ctx context.Context, name string) ([]string, error) {
	var found []struct {
		Group   string
		PID     uint32
		Command string
	}
	err := c.manager(ctx, "GetUnitProcesses", name).Store(&found)
	if isError(err, noSuchUnit) {
		return nil, nil // systemd unloads no unit whose control group has processes
	}
	if err != nil {
		return nil, fmt.Errorf("ask systemd for the processes of %s: %w", name, err)
	}
	list := make([]string, len(found))
	for i, p := range found {
		list[i] = fmt.Sprintf("%d (%s)", p.PID, shorten(p.Command))
	}
	return list, nil
}

// Enqueue asks for a job, StartUnit or StopUnit. The job's result comes on the channel, which has room for it.
//
// When the host goes down every unit has a stop job, and that of a group's service waits until the daemon has ended, which
// waits until its groups have stopped. A further StopUnit would be the same job. So such a job is told not to
// wait: it is the daemon that keeps the order of its groups.
func (c *Conn) Enqueue(ctx context.Context, verb, name string) (job uint32, result <-chan string, err error) {
	mode := "replace"
	if verb == "StopUnit" && c.stopWaits(ctx, name) {
		mode = "ignore-dependencies"
	}
	return c.enqueue(ctx, verb, name, mode)
}

// stopWaits reports whether the unit has a stop job that waits for others.
func (c *Conn) stopWaits(ctx context.Context, name string) bool {
	u, err := c.Unit(ctx, name)
	if err != nil || u.Job() == 0 {
		return false
	}
	var job map[string]dbus.Variant
	at := dbus.ObjectPath(fmt.Sprintf("%s/job/%d", managerPath, u.Job()))
	call := c.bus.Object(systemdName, at).CallWithContext(ctx, "org.freedesktop.DBus.Properties.GetAll", 0, systemdName+".Job")
	return call.Store(&job) == nil && job["JobType"].Value() == "stop" && job["State"].Value() == "waiting"
}

func (c *Conn) enqueue(ctx context.Context, verb, name string, args ...any) (uint32, <-chan string, error) {
	finish := c.signals.expectJob()
	var job dbus.ObjectPath
	err := c.manager(ctx, verb, append([]any{name}, args...)...).Store(&job)
	switch {
	case isError(err, noSuchUnit):
		err = ErrNoUnit
	case isError(err, unitExists):
		err = ErrUnitExists
	}
	if err != nil {
		finish(0)
		return 0, nil, fmt.Errorf("%s %s: %w", verb, name, err)
	}
	id, err := strconv.ParseUint(path.Base(string(job)), 10, 32)
	if err != nil {
		finish(0)
		return 0, nil, fmt.Errorf("%s %s: systemd names the job %q", verb, name, job)
	}
	return uint32(id), finish(uint32(id)), nil
}

// Cancel takes a job back. One that has ended is no error.
func (c *Conn) Cancel(ctx context.Context, job uint32) error {
	err := c.manager(ctx, "CancelJob", job).Err
	if isError(err, noSuchJob) {
		return nil
	}
	return err
}

// ResetFailed makes systemd forget that the unit has failed, and how often it was started.
func (c *Conn) ResetFailed(ctx context.Context, name string) error {
	err := c.manager(ctx, "ResetFailedUnit", name).Err
	if isError(err, noSuchUnit) {
		return nil
	}
	return err
}

// Reload makes systemd read all unit files again.
func (c *Conn) Reload(ctx context.Context) error { return c.manager(ctx, "Reload").Err }

// Watch wakes the channel whenever something of the unit has changed, until end is called.
func (c *Conn) Watch(name string) (wake <-chan struct{}, end func()) {
	return c.signals.watch(unitPath(name))
}

// Lost is closed when the connection is.
func (c *Conn) Lost() <-chan struct{} { return c.bus.Context().Done() }

// Close ends the connection, and every call on it.
func (c *Conn) Close() { _ = c.bus.Close() }

// isError tells an error that systemd answered by its name.
func isError(err error, name string) bool {
	var e dbus.Error
	return errors.As(err, &e) && e.Name == name
}

// shorten keeps a command line to what fits into a message.
func shorten(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}
