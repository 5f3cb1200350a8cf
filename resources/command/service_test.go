package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// service is one that commands start, stop and look at. DIR is the test's directory; "state" is what monitor says.
func service(t *testing.T, dir string, token uint64, start, stop, monitor string) *command {
	t.Helper()
	o := Kind().Options().(*Options)
	sh := func(script string) []string {
		return []string{"sh", "-c", strings.ReplaceAll(script, "DIR", dir)}
	}
	o.Start, o.Stop = sh(start), sh(stop)
	if monitor != "" {
		o.Monitor = sh(monitor)
	}
	c, err := build(o, dir, token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // whatever the test has left
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		rec, _ := readRecord(dir)
		err := c.kin(rec).kill()
		if err == nil && rec.Unit != "" {
			err = c.endUnit(ctx, rec.Unit)
		}
		if err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return c
}

const (
	daemonise = "setsid sleep 60 & echo $! >> DIR/pids; echo $HAMGR_TOKEN > DIR/token; echo 0 > DIR/state"
	orderEnd  = "echo 7 > DIR/state; echo y >> DIR/stopped; kill $(cat DIR/pids) || :"
	look      = "echo it is so; exit $(cat DIR/state || echo 7)"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func lines(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

func TestServiceLife(t *testing.T) {
	for _, monitor := range []string{"", look} {
		dir := t.TempDir()
		c := service(t, dir, 7, daemonise, orderEnd, monitor)
		wantState(t, c, resources.Inactive)
		mustStop(t, c)
		for range 2 { // the second one finds it active
			if err := c.Start(deadline(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
			wantState(t, c, resources.Active)
		}
		if n := lines(t, dir+"/pids"); n != 1 {
			t.Errorf("started %d times", n)
		}
		if b, _ := os.ReadFile(dir + "/token"); string(b) != "7\n" {
			t.Errorf("token %q", b)
		}
		other := service(t, dir, 8, daemonise, orderEnd, monitor)
		wantState(t, other, resources.Failed)
		if err := other.Start(deadline(t, 10*time.Second)); err == nil || !strings.Contains(err.Error(), "token 7") {
			t.Errorf("started again under another token: %v", err)
		}
		mustStop(t, other)
		if n := lines(t, dir+"/stopped"); n != 1 {
			t.Errorf("stopped %d times", n)
		}
		if pid := awaitFile(t, dir+"/pids", 1)[0]; runs(t, pid) {
			t.Error("still runs")
		}
	}
}

// What start has left does not survive a stop that forgets it, wherever it went.
func TestStopEndsWhatIsLeft(t *testing.T) {
	for _, monitor := range []string{"", look} {
		dir := t.TempDir()
		c := service(t, dir, 1, `echo 0 > DIR/state
			(setsid sh -c 'trap "" TERM; echo $$ >> DIR/pids; while :; do sleep 0.02; done' &)
			(setsid sh -c '(setsid sh -c "echo \$\$ >> DIR/pids; exec sleep 60" &)' &)
			while [ "$(cat DIR/pids | wc -l)" != 2 ]; do sleep 0.01; done`, "echo 7 > DIR/state", monitor)
		c.opts.KillAfter = 100 * time.Millisecond
		if err := c.Start(deadline(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		all := awaitFile(t, dir+"/pids", 2)
		if monitor != "" { // inactive, it says, but there is something
			put(t, dir+"/state", "7")
			wantState(t, c, resources.Failed)
			put(t, dir+"/state", "0")
		}
		mustStop(t, c)
		for _, pid := range all {
			if runs(t, pid) {
				t.Errorf("PID %s still runs", pid)
			}
		}
	}
}

// Without a monitor a service that was started is never inactive before stop has ended with status 0.
func TestNeverInactiveWithoutStop(t *testing.T) {
	t.Run("its processes have ended", func(t *testing.T) {
		dir := t.TempDir()
		c := service(t, dir, 1, daemonise, "exit $(cat DIR/refuse || echo 0)", "")
		if err := c.Start(deadline(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		killPID(t, awaitFile(t, dir+"/pids", 1)[0])
		wantState(t, c, resources.Failed)
		put(t, dir+"/refuse", "3")
		if err := c.Stop(deadline(t, 10*time.Second)); err == nil || !strings.Contains(err.Error(), "status 3") {
			t.Errorf("stop: %v", err)
		}
		wantState(t, c, resources.Failed)
		if err := c.Start(deadline(t, 10*time.Second)); err == nil {
			t.Error("started though it was not stopped")
		}
		put(t, dir+"/refuse", "0")
		mustStop(t, c)
	})
	t.Run("it has none", func(t *testing.T) {
		dir := t.TempDir()
		c := service(t, dir, 1, "true", "kill -9 $$", "")
		if err := c.Start(deadline(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		wantState(t, c, resources.Active)
		if err := c.Stop(deadline(t, 10*time.Second)); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("stop: %v", err)
		}
		wantState(t, c, resources.Failed)
	})
	t.Run("its start has failed", func(t *testing.T) {
		dir := t.TempDir()
		c := service(t, dir, 1, "(setsid sleep 60 & echo $! > DIR/pids); exit 5", "echo y >> DIR/stopped", "")
		if err := c.Start(deadline(t, 10*time.Second)); err == nil || !strings.Contains(err.Error(), "status 5") {
			t.Errorf("start: %v", err)
		}
		wantState(t, c, resources.Failed)
		mustStop(t, c)
		if runs(t, awaitFile(t, dir+"/pids", 1)[0]) || lines(t, dir+"/stopped") != 1 {
			t.Error("the start that failed has left something")
		}
	})
	t.Run("its start is not over", func(t *testing.T) {
		dir := t.TempDir()
		// What it has started by then is gone before stop runs.
		c := service(t, dir, 1, "setsid sleep 60 & echo $$ $! > DIR/pids; sleep 60", "for p in $(cat DIR/pids); do ! grep -qs sleep /proc/$p/cmdline || exit 9; done", "")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { awaitFile(t, dir+"/pids", 2); cancel() }()
		if err := c.Start(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("start: %v", err)
		}
		wantState(t, c, resources.Failed)
		mustStop(t, c)
		for _, pid := range awaitFile(t, dir+"/pids", 2) {
			if runs(t, pid) {
				t.Errorf("PID %s of start still runs", pid)
			}
		}
	})
	t.Run("stop hangs", func(t *testing.T) {
		dir := t.TempDir()
		c := service(t, dir, 1, "true", "setsid sleep 60 & echo $$ $! > DIR/pids; sleep 60", "")
		if err := c.Start(deadline(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := c.Stop(deadline(t, 2*time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stop: %v", err)
		}
		for _, pid := range awaitFile(t, dir+"/pids", 2) {
			if runs(t, pid) {
				t.Errorf("PID %s of stop still runs", pid)
			}
		}
		wantState(t, c, resources.Failed)
	})
}

func killPID(t *testing.T, pid string) {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(n, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); runs(t, pid); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("PID %s does not die", pid)
		}
	}
}

// The monitor has the last word: what it does not say clearly is never inactive.
func TestMonitor(t *testing.T) {
	dir := t.TempDir()
	c := service(t, dir, 1, "cp DIR/next DIR/state", "true", "echo says  $(cat DIR/state); case $(cat DIR/state) in k) kill -9 $$;; h) sleep 60;; *) exit $(cat DIR/state);; esac")
	for _, begun := range []bool{false, true} {
		for said, want := range map[string]resources.State{"0": resources.Active, "7": resources.Inactive, "1": resources.Failed, "127": resources.Failed, "k": resources.Unknown} {
			if !begun && said == "0" {
				want = resources.Failed // somebody else has started it
			}
			put(t, dir+"/state", said)
			state, detail, err := c.Probe(deadline(t, 10*time.Second))
			if state != want || err != nil || !strings.Contains(detail, "says "+said) {
				t.Errorf("started %t, monitor says %s: %s, %q, %v", begun, said, state, detail, err)
			}
		}
		put(t, dir+"/state", "h")
		begin := time.Now()
		state, _, err := c.Probe(deadline(t, 50*time.Millisecond))
		if state != resources.Unknown || !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 5*time.Second {
			t.Errorf("monitor hangs: %s, %v, after %s", state, err, time.Since(begin))
		}
		if err := c.Stop(deadline(t, 200*time.Millisecond)); err == nil {
			t.Error("stopped, though nobody says so")
		}
		if begun {
			break
		}
		put(t, dir+"/state", "7")
		put(t, dir+"/next", "7")
		if err := c.Start(deadline(t, 10*time.Second)); err == nil || !strings.Contains(err.Error(), "monitor says that the service is inactive") {
			t.Errorf("a start after which monitor says that nothing runs: %v", err)
		}
		put(t, dir+"/state", "0")
		wantState(t, c, resources.Active)
		if err := c.Stop(deadline(t, 10*time.Second)); err == nil || !strings.Contains(err.Error(), "monitor says that it is active") {
			t.Errorf("a stop after which monitor says that it runs: %v", err)
		}
		wantState(t, c, resources.Failed)
		put(t, dir+"/state", "7")
		mustStop(t, c)
		put(t, dir+"/next", "0")
		if err := c.Start(deadline(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, dir+"/state", "7")
	mustStop(t, c)
}

// A program that lies on a file system that is not mounted here says nothing, and has started nothing.
func TestMonitorIsNotThere(t *testing.T) {
	dir := t.TempDir()
	c := service(t, dir, 1, "true", "true", "exit 0")
	c.opts.Monitor = []string{"/no/such/monitor"}
	wantState(t, c, resources.Inactive)
	mustStop(t, c)
	c.opts.Monitor = nil
	if err := c.Start(deadline(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	c.opts.Monitor = []string{"/no/such/monitor"}
	if state, _, err := c.Probe(t.Context()); state != resources.Unknown || !errors.Is(err, resources.ErrNode) {
		t.Errorf("of what was started: %s %v", state, err)
	}
	if err := c.Stop(deadline(t, 10*time.Second)); err == nil {
		t.Error("stopped, though nobody can say so")
	}
}

func TestActionsLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	c := service(t, dir, 1, "true", "true", "(sleep 60 & echo $! >> DIR/pids; setsid sleep 60 & echo $! >> DIR/pids); exit 7")
	wantState(t, c, resources.Inactive)
	for _, pid := range awaitFile(t, dir+"/pids", 2) {
		if runs(t, pid) {
			t.Errorf("PID %s still runs", pid)
		}
	}
}

// What an action of a daemon that died has left is ended before the next action.
func TestEarlierActionIsEnded(t *testing.T) {
	dir := t.TempDir()
	c := service(t, dir, 1, "true", "true", "exit 7")
	earlier, p := startMarked(t, dir)
	wantState(t, c, resources.Inactive)
	if err := p.Wait(deadline(t, 10*time.Second)); err != nil {
		t.Errorf("it still runs: %v", err)
	}
	_ = earlier.Kill()
	_, _ = earlier.Wait()
}

func startMarked(t *testing.T, dir string) (*os.Process, process.Process) {
	t.Helper()
	p, err := os.StartProcess("/bin/sleep", []string{"sleep", "60"}, &os.ProcAttr{Env: []string{actionVariable + dir}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	leader, err := process.Look(p.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p, leader
}

func TestServiceDied(t *testing.T) {
	for _, monitor := range []string{"", look} {
		dir := t.TempDir()
		c := service(t, dir, 1, daemonise+"; "+daemonise, "true", monitor)
		if err := c.Start(deadline(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := c.Died(deadline(t, 10*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("died: %v", err)
		}
		died := make(chan error, 1)
		go func() { died <- c.Died(t.Context()) }()
		pids := awaitFile(t, dir+"/pids", 2)
		killPID(t, pids[0])
		wantState(t, c, resources.Active) // the other one is there
		select {
		case err := <-died:
			t.Errorf("died with one of two: %v", err)
		default:
		}
		if monitor != "" {
			put(t, filepath.Join(dir, "state"), "1")
		}
		killPID(t, pids[1])
		select {
		case err := <-died:
			if err == nil || !strings.Contains(err.Error(), "all of its processes have ended") {
				t.Errorf("died: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("its death was not noticed")
		}
		wantState(t, c, resources.Failed)
	}
}

func TestUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("to run a program as another user needs root")
	}
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	put(t, secret, "mouse\n")
	o := Kind().Options().(*Options)
	o.Run = []string{"sh", "-c", "id -u; id -g; echo $HOME $USER $LOGNAME $KEY; exec sleep 60"}
	o.User, o.Group, o.LogFile = "daemon", "5", filepath.Join(dir, "log")
	o.EnvironmentFiles = map[string]string{"KEY": secret}
	c, err := build(o, dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer mustStop(t, c)
	rec := mustStart(t, c)
	got := awaitFile(t, o.LogFile, 6)
	if want := "1 5 /usr/sbin daemon daemon mouse"; strings.Join(got, " ") != want {
		t.Errorf("it runs with %q, want %q", got, want)
	}
	if argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", rec.PID)); err != nil || strings.Contains(string(argv), "mouse") {
		t.Errorf("arguments %q %v", argv, err)
	}
}
