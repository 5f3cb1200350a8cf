package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// Why a service is to end: the job that its systemd has for it.
const (
	jobStop    = "stop" // by an operator, for another unit that it conflicts with, or because the host goes down
	jobRestart = "restart"
	jobNone    = "" // somebody sent it a signal; Restart= of its unit starts it again
)

// errNoService says that no systemd runs this daemon.
var errNoService = errors.New("this daemon is no service of systemd's")

// askTime is how long a systemd may take to answer: longer than one does that reads all its units again.
const askTime = 20 * time.Second

// serviceJob asks systemd what it is about to do with the unit that this daemon is. However a restart is asked for, by
// restart, try-restart or reload-or-restart, or of a unit that this one is part of, it is one job of that type, until the
// old process has ended. A host that goes down stops its units by jobs, too.
//
// An error says that nobody knows. So it is after systemctl reboot --force: then no manager is left that could be asked.
func serviceJob(ctx context.Context) (string, error) {
	if os.Getenv("NOTIFY_SOCKET") == "" || os.Getenv("INVOCATION_ID") == "" {
		return jobNone, errNoService
	}
	unit, err := ownUnit()
	if err != nil {
		return jobNone, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	jobs, err := listJobs(ctx)
	if err != nil {
		return jobNone, fmt.Errorf("ask systemd what it does with %s: %w", unit, err)
	}
	for _, j := range jobs {
		if j.Unit == unit {
			return j.Type, nil
		}
	}
	return jobNone, nil
}

// job is what ListJobs of systemd's manager tells of each: org.freedesktop.systemd1(5).
type job struct {
	ID                uint32
	Unit, Type, State string
	Path, UnitPath    dbus.ObjectPath
}

// listJobs asks systemd by its own socket, as systemctl does: it answers also when D-Bus has been stopped, and no process
// has to be started on a host that may be short of everything.
func listJobs(ctx context.Context) (jobs []job, err error) {
	conn, err := dbus.Dial("unix:path=/run/systemd/private", dbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		return nil, err
	}
	manager := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	call := manager.GoWithContext(ctx, "org.freedesktop.systemd1.Manager.ListJobs", 0, nil)
	// systemd (252 at least) lets the first message lie, if it has read it together with the end of the authentication,
	// until something else arrives. So something does.
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		select {
		case <-call.Done:
			err = call.Store(&jobs)
			return jobs, err
		case <-time.After(pause):
			manager.Go("org.freedesktop.DBus.Peer.Ping", dbus.FlagNoReplyExpected, nil)
		}
	}
}

// ownUnit is the systemd service in whose control group this process is (cgroups(7)).
func ownUnit() (string, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	return unitOf(string(b))
}

// unitOf finds the service in the lines of /proc/PID/cgroup.
func unitOf(cgroups string) (string, error) {
	for line := range strings.Lines(cgroups) {
		for part := range strings.SplitSeq(strings.TrimSpace(line), "/") {
			if strings.HasSuffix(part, ".service") {
				return part, nil
			}
		}
	}
	return "", fmt.Errorf("no service in %q", cgroups)
}

// extendStop asks systemd for more time to stop in (sd_notify(3)) until ctx ends: groups may take longer to leave than
// TimeoutStopSec= says. Should this process hang meanwhile, systemd ends it half a minute later.
func extendStop(ctx context.Context, log *slog.Logger) {
	for {
		notify(log, "EXTEND_TIMEOUT_USEC=30000000")
		if !sleep(ctx, 5*time.Second) {
			return
		}
	}
}
