package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/bus"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// Where the daemon is a service of systemd's, that is asked for the process: in a transient service of its own the process is in a control group of its
// own, is no child of the daemon, and does not belong to the daemon's service. What is said of it here is what is said of
// any other process; systemd starts it, and tells how it ended.

// manager is what the kind asks of systemd: methods of *bus.Conn.
type manager interface {
	bus.Asked
	Service(ctx context.Context, name string) (bus.Properties, error)
	Enqueue(ctx context.Context, verb, name string) (job uint32, result <-chan string, err error)
	StartTransient(ctx context.Context, u bus.Transient) (job uint32, result <-chan string, err error)
	ResetFailed(ctx context.Context, name string) error
	Close()
}

const (
	// slice is the parent of all control groups of resources.
	slice = "hamgr.slice"
	// groupsTarget comes before the daemon, so at shutdown systemd stops the daemon first: see the kind systemd.
	groupsTarget = "hamgr-groups.target"
	// permitPattern is the name of environment files.
	permitPattern = "environment-*"
	// dialTime is how long a systemd may take to answer at all.
	dialTime = 2 * time.Second
	// endingTime is how long systemd is asked how a process ended that has just ended.
	endingTime = 250 * time.Millisecond
)

// errNoSystemd says that this host's first process is another one.
var errNoSystemd = errors.New("no systemd runs here")

// isRunBySystemd reports whether the daemon is a service of systemd's. One that somebody has started by hand, perhaps one of several on
// this host, keeps what it starts to itself.
func isRunBySystemd() bool {
	own, err := os.ReadFile("/proc/self/cgroup")
	return err == nil && isService(own) && os.Getppid() == 1 && os.Geteuid() == 0
}

// connect gives a connection to the systemd of this host.
func connect(ctx context.Context) (manager, error) {
	if _, err := os.Stat("/run/systemd/system"); err != nil { // sd_booted(3)
		return nil, errNoSystemd
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c, err := bus.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// systemd gives a connection, or nil where the daemon is not run by systemd, or that does not answer: then the process is the daemon's
// child.
func (c *command) systemd(ctx context.Context) manager {
	if !c.managed() {
		return nil
	}
	m, err := c.dial(ctx)
	if err != nil {
		c.env.Log.Warn("systemd does not answer: the process is started without a unit of its own", "err", err)
		return nil
	}
	return m
}

// unitName is the same for every start of the resource. Names in hamgr.toml have no colon.
func (c *command) unitName() string {
	return "hamgr-" + c.env.Group + ":" + c.env.Resource + ".service"
}

// launchUnit has systemd start the program.
//
// The environment comes from a file of this one start, for two reasons. What systemd is told by a message anybody may
// ask it for, and the environment can hold secrets. And systemd, which cannot start the program without the file, has lost the
// permission as soon as the file is gone: a request that it reads late does no harm.
func (c *command) launchUnit(ctx context.Context, m manager, p prepared, rec record) (err error) {
	permit, err := c.writePermit(p.env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.callOff()) }()
	if err := m.ResetFailed(ctx, rec.Unit); err != nil {
		return err
	}
	if err := c.runJob(ctx, m, slice, rec, func() (uint32, <-chan string, error) { return m.Enqueue(ctx, "StartUnit", slice) }); err != nil {
		return err
	}
	u := bus.Transient{
		Name: rec.Unit, Description: fmt.Sprintf("resource %s of group %s, run by hamgr", c.env.Resource, c.env.Group),
		Forks: !c.runs(), Program: p.path, Args: p.argv, EnvironmentFile: permit,
		User: c.opts.User, Group: c.opts.Group, WorkingDirectory: c.workDir(), AppendTo: c.opts.LogFile,
		Before: []string{groupsTarget}, Slice: slice, StopSignal: int32(c.signal), KillAfter: c.opts.KillAfter,
	}
	err = c.runJob(ctx, m, rec.Unit, rec, func() (uint32, <-chan string, error) { return m.StartTransient(ctx, u) })
	if errors.Is(err, bus.ErrUnitExists) && c.isForeign(ctx, m, rec.Unit) {
		// Nothing was started, and a stop must not take for its own what another hamgr on this host runs under that name.
		return errors.Join(fmt.Errorf("%w: what runs in it was not started by this resource: is there another hamgr on this host? %w", resources.ErrSetup, err), removeRecord(c.dir))
	}
	if err != nil {
		return err
	}
	if !c.runs() {
		return c.started(ctx, rec)
	}
	s, err := m.Service(ctx, rec.Unit)
	if err != nil {
		return err
	}
	leader, err := process.Look(s.PID("MainPID"))
	if errors.Is(err, process.ErrGone) || s.PID("MainPID") == 0 {
		return fmt.Errorf("it has ended at once%s%s", c.unitEnding(ctx, m, rec.Unit), c.seeLog(rec))
	}
	if err != nil {
		return fmt.Errorf("look at what was started: %w", err)
	}
	rec.PID, rec.Start, rec.Done = leader.PID, leader.Start, true
	return writeRecord(c.dir, rec)
}

// runJob waits for the end of a job that starts a unit.
func (c *command) runJob(ctx context.Context, m manager, unit string, rec record, ask func() (uint32, <-chan string, error)) error {
	job, result, err := ask()
	if err != nil {
		return fmt.Errorf("systemd refuses: %w; if it is left over, run: systemctl stop %s; systemctl reset-failed %s", err, unit, unit)
	}
	word, err := bus.Await(ctx, m, unit, job, result)
	switch {
	case err != nil:
		return fmt.Errorf("it was not done in time: %w", err)
	case word == "done":
		return nil
	}
	return fmt.Errorf("systemd's job to start %s %s%s%s", unit, bus.ResultWords(word), c.unitEnding(ctx, m, unit), c.seeLog(rec))
}

// isForeign reports whether the unit has processes, and none that this resource has started.
func (c *command) isForeign(ctx context.Context, m manager, unit string) bool {
	s, err := m.Service(ctx, unit)
	if err != nil || s.Text("ControlGroup") == "" {
		return false
	}
	all, err := process.All()
	group, found := rooted(s.Text("ControlGroup")), false
	for _, p := range all {
		if !inGroup(p, group) {
			continue
		}
		found = true
		if bears, leaving := p.Bears(dirVariable + c.dir); bears || leaving {
			return false
		}
	}
	return err == nil && found
}

// exitWords are what systemd says by statuses from 200 on: systemd.exec(5), "Process Exit Codes".
var exitWords = map[string]string{
	"status 200": "the working directory cannot be entered", "status 203": "the program cannot be executed",
	"status 209": "log_file cannot be opened", "status 216": "the group does not exist, or cannot be taken on",
	"status 217": "the user does not exist, or cannot be taken on",
}

// unitEnding says how the unit's process ended, as far as systemd tells, as an addition to a sentence.
func (c *command) unitEnding(ctx context.Context, m manager, unit string) string {
	s, err := m.Service(ctx, unit)
	if err != nil {
		return ""
	}
	words := s.Ending()
	if words == "" {
		return ""
	}
	for status, more := range exitWords {
		if strings.HasSuffix(words, status) {
			words += " (" + more + ")"
			break
		}
	}
	return ": " + words
}

// writePermit writes the file without which the program is not started.
func (c *command) writePermit(env []string) (path string, err error) {
	b, err := environmentFile(env)
	if err != nil {
		return "", err
	}
	path = filepath.Join(c.dir, permitPattern[:len(permitPattern)-1]+rand.Text())
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return "", fmt.Errorf("hand over the environment: %w", err)
	}
	return path, nil
}

// callOff takes the permission to start anything from systemd.
func (c *command) callOff() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ok, _ := filepath.Match(permitPattern, e.Name()); ok {
			if err := os.Remove(filepath.Join(c.dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("take the permission to start back: %w", err)
			}
		}
	}
	return nil
}

// unitState asks systemd whether a unit whose start was not seen to its end is down. What systemd has in hand when the permit goes it
// has forked before it answers; a fork may not have come into its control group yet, where others would find it.
func (c *command) unitState(ctx context.Context, unit string) (down bool, words string, err error) {
	m, err := c.dial(ctx)
	if err != nil {
		return false, "", fmt.Errorf("%w: ask systemd for %s: %w", resources.ErrNode, unit, err)
	}
	defer m.Close()
	u, err := m.Unit(ctx, unit)
	if err != nil {
		return false, "", err
	}
	return u.IsDown() && u.Job() == 0, u.State(), nil
}

// endUnit makes systemd forget the unit, after all that was seen of it is gone.
func (c *command) endUnit(ctx context.Context, unit string) error {
	m, err := c.dial(ctx)
	if err != nil {
		return fmt.Errorf("%w: have systemd stop %s: %w", resources.ErrNode, unit, err)
	}
	defer m.Close()
	for pause := time.Millisecond; ; pause *= 2 {
		u, err := m.Unit(ctx, unit)
		if err != nil {
			return err
		}
		if u.IsDown() && u.Job() == 0 {
			return m.ResetFailed(ctx, unit)
		}
		job, result, err := m.Enqueue(ctx, "StopUnit", unit)
		if err == nil {
			_, err = bus.Await(ctx, m, unit, job, result)
		}
		if err != nil && !errors.Is(err, bus.ErrNoUnit) { // a transient one is gone as soon as it is down
			return fmt.Errorf("have systemd stop %s, which is %s: %w", unit, u.State(), err)
		}
		if err := process.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("%s is %s: %w", unit, u.State(), err)
		}
	}
}

// unitReason says how the unit's process ended. systemd may learn of it a moment later than others do.
func (c *command) unitReason(ctx context.Context, unit string) string {
	ctx, cancel := context.WithTimeout(ctx, endingTime)
	defer cancel()
	m, err := c.dial(ctx)
	if err != nil {
		return ""
	}
	defer m.Close()
	for {
		u, err := m.Unit(ctx, unit)
		if err != nil {
			return ""
		}
		if u.IsDown() {
			if u.Text("LoadState") == "not-found" { // only what has failed is kept
				return ": status 0"
			}
			return c.unitEnding(ctx, m, unit)
		}
		if process.Sleep(ctx, 2*time.Millisecond) != nil {
			return ""
		}
	}
}
