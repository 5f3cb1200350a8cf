//go:build systemdhost

package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/bus"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// Tests with a real systemd.

const unit = "hamgr-web:app.service"

func systemctl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemctl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func property(t testing.TB, name string) string {
	t.Helper()
	return systemctl(t, "show", "-P", name, unit)
}

// withSystemd lets all commands of the test find systemd.
func withSystemd(t testing.TB) {
	before := managed
	managed = func() bool { return true }
	t.Cleanup(func() { managed = before })
}

// TestSame: what is tested of processes without systemd is as true with it.
func TestSame(t *testing.T) {
	withSystemd(t)
	for name, test := range map[string]func(*testing.T){
		"older token": TestOlderTokenIsFoundAndEnded, "descendants": TestStopEndsAllDescendants, "shut down": TestStopLetsTheProgramShutDown,
		"killed before the deadline": TestStopKillsBeforeItsDeadline, "found without PID": TestFoundWithoutPID, "start errors": TestStartErrors,
		"ready after": TestReadyAfter, "survives": TestSurvivesTheDaemon, "service": TestServiceLife, "what is left": TestStopEndsWhatIsLeft,
		"never inactive": TestNeverInactiveWithoutStop, "monitor": TestMonitor, "service died": TestServiceDied, "user": TestUser,
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { wantNoUnit(t) }) // after those of the test
			test(t)
		})
	}
}

func wantNoUnit(t testing.TB) {
	t.Helper()
	if state := property(t, "LoadState") + " " + property(t, "ActiveState"); state != "not-found inactive" {
		t.Errorf("the unit is %s", state)
	}
}

func TestUnit(t *testing.T) {
	withSystemd(t)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	put(t, secret, "mouse\n")
	o := Kind().Options().(*Options)
	// The one who escapes has no variable of ours, a session of its own, and no parent: only the control group leads to it.
	o.Run = []string{"sh", "-c", `echo "$0 $1 $KEY" '$KEY ${KEY} $$ %i %% ; \' "$QUOTED"; (env -i setsid sh -c 'sleep 60 & echo $!' &) ; exec sleep 60`, "$HOME", "100%"}
	o.LogFile, o.User, o.WorkingDirectory = filepath.Join(dir, "log"), "daemon", "/usr"
	o.Environment = map[string]string{"QUOTED": "a \"b\" $c `d` \\ %i"}
	o.EnvironmentFiles = map[string]string{"KEY": secret}
	c, err := build(o, dir, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer mustStop(t, c)
	rec := mustStart(t, c)
	wantState(t, c, resources.Active)
	words := awaitFile(t, o.LogFile, 17)
	b, _ := os.ReadFile(o.LogFile)
	if got, want := strings.Split(string(b), "\n")[0], "$HOME 100% mouse $KEY ${KEY} $$ %i %% ; \\ a \"b\" $c `d` \\ %i"; got != want {
		t.Errorf("it is given %q, want %q", got, want)
	}
	escaped := words[len(words)-1]
	p, err := process.Look(rec.PID)
	if err != nil || p.Parent != 1 {
		t.Errorf("its parent is %d: %v", p.Parent, err)
	}
	if group := property(t, "ControlGroup"); group != "/hamgr.slice/"+unit {
		t.Errorf("control group %q", group)
	}
	for name, want := range map[string]string{"KillMode": "control-group", "Restart": "no", "OOMPolicy": "continue", "User": "daemon", "Slice": "hamgr.slice", "TimeoutStopUSec": "10s"} {
		if got := property(t, name); got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
	if before := strings.Fields(property(t, "Before")); !slices.Contains(before, groupsTarget) {
		t.Errorf("at shutdown hamgr is not stopped first: %s", before)
	}
	if all := systemctl(t, "show", unit) + systemctl(t, "cat", unit); strings.Contains(all, "mouse") {
		t.Error("systemd tells the secret to everybody")
	}
	if left := permits(t, dir); len(left) > 0 {
		t.Errorf("secrets are left in %s", left)
	}
	mustStart(t, c)
	systemctl(t, "daemon-reload")
	systemctl(t, "daemon-reexec")
	wantState(t, c, resources.Active)
	if state := property(t, "LoadState") + " " + property(t, "ActiveState"); state != "loaded active" {
		t.Errorf("after a reload the unit is %s", state)
	}
	if again := mustStart(t, c); again != rec {
		t.Errorf("started again: %+v", again)
	}
	mustStop(t, c)
	if runs(t, escaped) || runs(t, fmt.Sprint(rec.PID)) {
		t.Error("something survives the stop")
	}
	wantNoUnit(t)
}

func TestDeathOfUnit(t *testing.T) {
	withSystemd(t)
	for how, want := range map[string]string{"exit 3": "ended with status 3", "kill -9 $$": "SIGKILL", "exit 0": "status 0"} {
		dir := t.TempDir()
		c := tracked(t, dir, 1, "sh", "-c", "while ! [ -e "+dir+"/go ]; do sleep 0.02; done; "+how)
		mustStart(t, c)
		died := make(chan error, 1)
		go func() { died <- c.Died(t.Context()) }()
		put(t, dir+"/go", "")
		select {
		case err := <-died:
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", how, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("its death was not noticed")
		}
		state, detail, err := c.Probe(t.Context())
		if state != resources.Inactive || err != nil || !strings.Contains(detail, want) {
			t.Errorf("%s: %s %q %v", how, state, detail, err)
		}
		mustStop(t, c)
		wantNoUnit(t)
	}
}

func TestFailedStart(t *testing.T) {
	withSystemd(t)
	dir := t.TempDir()
	hidden := filepath.Join(dir, "hidden")
	if err := os.Mkdir(hidden, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hidden+"/app", []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(o *Options)
		words  []string
	}{
		"program":   {func(o *Options) { o.Run = []string{hidden + "/app"} }, []string{"status 203", "cannot be executed", "journalctl -u " + unit}},
		"directory": {func(o *Options) { o.WorkingDirectory = hidden }, []string{"status 200", "cannot be entered"}},
		"at once":   {func(o *Options) { o.Run = []string{"sh", "-c", "exit 0"} }, []string{"ended at once"}},
		"status":    {func(o *Options) { o.Run, o.Start, o.Stop = nil, []string{"sh", "-c", "exit 5"}, []string{"true"} }, []string{"status 5"}},
	} {
		o := Kind().Options().(*Options)
		o.Run, o.User = []string{"sleep", "60"}, "daemon"
		c.change(o)
		r, err := build(o, dir, 1)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Start(deadline(t, 10*time.Second))
		if err == nil && name == "at once" {
			err = r.Died(deadline(t, 10*time.Second)) // it was quick enough to be seen
			c.words = nil
		}
		for _, word := range c.words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v, want %q", name, err, word)
			}
		}
		t.Log(err)
		mustStop(t, r)
		wantNoUnit(t)
	}
}

// Somebody else's unit of that name is an error that tells what to do, and nothing that a stop may end.
func TestUnitExists(t *testing.T) {
	withSystemd(t)
	if out, err := exec.Command("systemd-run", "--unit="+unit, "sleep", "60").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := tracked(t, t.TempDir(), 1, "sleep", "60")
	if err := c.Start(deadline(t, 10*time.Second)); err == nil || !strings.Contains(err.Error(), "systemctl stop "+unit) {
		t.Errorf("start: %v", err)
	}
	mustStop(t, c)
	if state := property(t, "ActiveState"); state != "active" {
		t.Errorf("a stop has made somebody else's unit %s", state)
	}
	systemctl(t, "stop", unit)
	mustStart(t, c)
	// Our own, of which the record was lost, is found and ended.
	if err := removeRecord(c.dir); err != nil {
		t.Fatal(err)
	}
	c.clear.Store(false)
	wantState(t, c, resources.Failed)
	mustStop(t, c)
	mustStart(t, c)
	mustStop(t, c)
}

// lateManager is a systemd that gets the request to start only later.
type lateManager struct {
	manager
	asked chan bus.Transient
}

func (l lateManager) StartTransient(ctx context.Context, u bus.Transient) (uint32, <-chan string, error) {
	l.asked <- u
	<-ctx.Done()
	return 0, nil, ctx.Err()
}

func TestLateRequestStartsNothing(t *testing.T) {
	withSystemd(t)
	dir := t.TempDir()
	mark := filepath.Join(dir, "mark")
	c := tracked(t, dir, 1, "sh", "-c", "echo y > "+mark+"; exec sleep 60")
	asked := make(chan bus.Transient, 1)
	c.dial = func(ctx context.Context) (manager, error) {
		m, err := connect(ctx)
		return lateManager{m, asked}, err
	}
	if err := c.Start(deadline(t, 3*time.Second)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("start: %v", err)
	}
	mustStop(t, c)
	m, err := bus.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_, result, err := m.StartTransient(t.Context(), <-asked)
	if err != nil {
		t.Fatal(err)
	}
	if word := <-result; word != "failed" {
		t.Errorf("the job %s", bus.ResultWords(word))
	}
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Error("a late request has started it")
	}
	wantState(t, c, resources.Inactive)
	c.dial = connect
	mustStart(t, c) // what is left of the late one is no hindrance
	mustStop(t, c)
}

// The service that the daemon is dies with all of its control group, and what it has started does not.
func TestSurvivesTheDaemonsGroup(t *testing.T) {
	withSystemd(t)
	dir := t.TempDir()
	out, err := exec.Command("systemd-run", "--unit=fakedaemon.service", "-p", "KillMode=control-group",
		"--setenv="+daemonVariable+"="+dir, "--setenv="+systemdVariable+"=1", os.Args[0], "sleep", "60").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("systemctl", "stop", "fakedaemon.service").Run() })
	c := tracked(t, dir, 1, "sleep", "60")
	var rec record
	for end := time.Now().Add(10 * time.Second); !rec.Done; time.Sleep(5 * time.Millisecond) {
		if rec, _ = readRecord(dir); time.Now().After(end) {
			t.Fatal("the daemon does not start it")
		}
	}
	if rec.Unit != unit {
		t.Errorf("a daemon that is a service starts it in unit %q", rec.Unit)
	}
	systemctl(t, "stop", "fakedaemon.service")
	wantState(t, c, resources.Active)
	if again := mustStart(t, c); again != rec {
		t.Errorf("started again: %+v", again)
	}
	mustStop(t, c)
}

// What start has left is found by its control group alone: it has no variable of ours, a session of its own and no parent.
func TestEscapedService(t *testing.T) {
	withSystemd(t)
	dir := t.TempDir()
	c := service(t, dir, 1, "(env -i setsid sh -c 'sleep 60 & echo $! > DIR/pids' &); while ! [ -s DIR/pids ]; do sleep 0.01; done", "true", "")
	if err := c.Start(deadline(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	pid := awaitFile(t, dir+"/pids", 1)[0]
	state, detail, err := c.Probe(t.Context())
	if state != resources.Active || err != nil || !strings.Contains(detail, pid) {
		t.Errorf("%s %q %v", state, detail, err)
	}
	killPID(t, pid)
	wantState(t, c, resources.Failed)
	mustStop(t, c)
}

// Processes that make others and end, faster than anybody can look for them, die with their control group.
func TestStorm(t *testing.T) {
	withSystemd(t)
	dir := t.TempDir()
	put(t, dir+"/drop", "trap '' TERM\n(env -i /usr/bin/setsid /bin/sh "+dir+"/drop &)\necho y >> "+dir+"/drops\n")
	c := tracked(t, dir, 1, "sh", "-c", "trap '' TERM; sh "+dir+"/drop & sh "+dir+"/drop & sh "+dir+"/drop & while :; do sleep 1; done")
	c.opts.KillAfter = time.Minute
	mustStart(t, c)
	awaitFile(t, dir+"/drops", 50)
	c.opts.KillAfter = 100 * time.Millisecond // systemd has been told otherwise, so this is not its work
	mustStop(t, c)
	wantNoUnit(t)
	if out, err := exec.Command("pgrep", "-f", dir+"/drop").Output(); err == nil {
		t.Errorf("left: %s", out)
	}
}

func TestKillGroup(t *testing.T) {
	withSystemd(t)
	c := tracked(t, t.TempDir(), 1, "sleep", "60")
	rec := mustStart(t, c)
	c.kin(rec).killGroup()
	if err := rec.process().Wait(deadline(t, 10*time.Second)); err != nil {
		t.Errorf("the control group was not killed: %v", err)
	}
	mustStop(t, c)
}

// openFiles counts descriptors: connections that are not closed show there.
func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestManyCalledOff(t *testing.T) {
	withSystemd(t)
	c := tracked(t, t.TempDir(), 1, "sleep", "60")
	before := openFiles(t)
	for i := range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond/2)
		_ = c.Start(ctx)
		cancel()
		mustStop(t, c)
		if out, err := exec.Command("pgrep", "-xf", "sleep 60").Output(); err == nil {
			t.Fatalf("round %d: left: %s", i, out)
		}
	}
	if after := openFiles(t); after > before+2 {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func BenchmarkUnit(b *testing.B) {
	withSystemd(b)
	c, err := newCommand(b.TempDir(), 1, "sleep", "60")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := errors.Join(c.Start(b.Context()), c.Stop(b.Context())); err != nil {
			b.Fatal(err)
		}
	}
}
