package systemd

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

	"github.com/hamgr/hamgr/resources"
)

// manager is what the kind asks of systemd.
type manager interface {
	// unit and service give the properties of the unit, which is loaded for that: those that all
	// types of units have, and those of a service.
	unit(ctx context.Context, name string) (properties, error)
	service(ctx context.Context, name string) (properties, error)
	// processes lists what runs in the unit's control group.
	processes(ctx context.Context, name string) ([]string, error)
	// enqueue asks for a job, StartUnit or StopUnit. The job's result comes on the channel, which has room for it.
	enqueue(ctx context.Context, verb, name string) (job uint32, result <-chan string, err error)
	cancel(ctx context.Context, job uint32) error
	resetFailed(ctx context.Context, name string) error
	reload(ctx context.Context) error
	// watch wakes the channel whenever something of the unit has changed, until end is called.
	watch(name string) (wake <-chan struct{}, end func())
	// lost is closed when the connection is.
	lost() <-chan struct{}
	close()
}

// Names of systemd's D-Bus interface: org.freedesktop.systemd1(5).
const (
	systemdName      = "org.freedesktop.systemd1"
	managerInterface = systemdName + ".Manager"
	managerPath      = "/org/freedesktop/systemd1"
	noSuchUnit       = systemdName + ".NoSuchUnit"
	noSuchJob        = systemdName + ".NoSuchJob"
)

// privateSocket is where systemd itself listens, for root alone.
const privateSocket = "/run/systemd/private"

// errLost says that the connection broke before the answer.
var errLost = errors.New("the connection to systemd was lost")

// conn is a connection to systemd. github.com/coreos/go-systemd has one too; it can neither cancel a job nor list
// processes, and waits without a context here and there.
type conn struct {
	bus     *dbus.Conn
	signals *signals
}

var _ manager = (*conn)(nil)

func connect(ctx context.Context) (manager, error) { return connectTo(ctx, privateSocket) }

func connectTo(ctx context.Context, socket string) (*conn, error) {
	c := &conn{signals: newSignals()}
	bus, err := dbus.Dial("unix:path="+socket, dbus.WithSignalHandler(c.signals))
	if err != nil {
		return nil, fmt.Errorf("%w: connect to systemd: %w", resources.ErrNode, err)
	}
	c.bus = bus
	// Authentication knows no context; closing the connection ends it.
	stop := context.AfterFunc(ctx, c.close)
	err = bus.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))})
	if err == nil {
		err = c.subscribe(ctx)
	}
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("%w: connect to systemd: %w", resources.ErrNode, err)
	}
	return c, nil
}

// subscribe asks for signals. It is the first message, and systemd (252 at least) lets that lie if it has read it together with
// the end of the authentication, until something else arrives. So something does.
func (c *conn) subscribe(ctx context.Context) error {
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

func (c *conn) manager(ctx context.Context, method string, args ...any) *dbus.Call {
	return c.bus.Object(systemdName, managerPath).CallWithContext(ctx, managerInterface+"."+method, 0, args...)
}

func unitPath(name string) dbus.ObjectPath {
	return dbus.ObjectPath(managerPath + "/unit/" + sd.PathBusEscape(name))
}

func (c *conn) properties(ctx context.Context, name, kind string) (properties, error) {
	var variants map[string]dbus.Variant
	call := c.bus.Object(systemdName, unitPath(name)).CallWithContext(ctx, "org.freedesktop.DBus.Properties.GetAll", 0, systemdName+"."+kind)
	if err := call.Store(&variants); err != nil {
		return nil, fmt.Errorf("ask systemd for %s: %w", name, err)
	}
	p := make(properties, len(variants))
	for k, v := range variants {
		p[k] = v.Value()
	}
	return p, nil
}

func (c *conn) unit(ctx context.Context, name string) (properties, error) {
	return c.properties(ctx, name, "Unit")
}

func (c *conn) service(ctx context.Context, name string) (properties, error) {
	return c.properties(ctx, name, "Service")
}

func (c *conn) processes(ctx context.Context, name string) ([]string, error) {
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

func (c *conn) enqueue(ctx context.Context, verb, name string) (uint32, <-chan string, error) {
	finish := c.signals.expectJob()
	var job dbus.ObjectPath
	err := c.manager(ctx, verb, name, "replace").Store(&job)
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

func (c *conn) cancel(ctx context.Context, job uint32) error {
	err := c.manager(ctx, "CancelJob", job).Err
	if isError(err, noSuchJob) {
		return nil
	}
	return err
}

func (c *conn) resetFailed(ctx context.Context, name string) error {
	err := c.manager(ctx, "ResetFailedUnit", name).Err
	if isError(err, noSuchUnit) {
		return nil
	}
	return err
}

func (c *conn) reload(ctx context.Context) error { return c.manager(ctx, "Reload").Err }

func (c *conn) watch(name string) (<-chan struct{}, func()) { return c.signals.watch(unitPath(name)) }

func (c *conn) lost() <-chan struct{} { return c.bus.Context().Done() }

func (c *conn) close() { _ = c.bus.Close() }

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
