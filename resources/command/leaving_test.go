package command

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

const memoryVariable = "COMMAND_TEST_MEMORY"

// A child that is this binary takes much memory, so that it is long in leaving.
func init() {
	if os.Getenv(memoryVariable) == "" {
		return
	}
	b, err := unix.Mmap(-1, 0, 32<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		os.Exit(1)
	}
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	_, _ = os.Stdout.WriteString("ready\n")
	time.Sleep(time.Minute)
	os.Exit(0)
}

// While the kernel takes a process apart, it bears no mark any more, and may still have files open. Nobody takes it for gone.
func TestLeavingIsNotGone(t *testing.T) {
	dir := t.TempDir()
	seen := 0
	for range 30 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = []string{memoryVariable + "=1", dirVariable + dir}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if n, err := out.Read(make([]byte, 16)); n == 0 {
			t.Fatal(err)
		}
		_ = cmd.Process.Kill()
		p, err := process.Look(cmd.Process.Pid)
		for err == nil && !p.Leaving() && !p.Ended() {
			p, err = process.Look(cmd.Process.Pid)
		}
		if p.Leaving() {
			seen++
		}
		found, findErr := kin{mark: dirVariable + dir}.find(t.Context())
		if now, err := process.Look(cmd.Process.Pid); findErr != nil || err != nil || len(found) == 0 && !now.Ended() {
			t.Errorf("nothing is found (%v), and there is %#v (%v)", findErr, now, err)
		}
		_ = cmd.Wait()
	}
	if seen == 0 {
		t.Error("it was never seen while it left: this test says nothing")
	}
}

// What was told to end, by a start that was called off or by a stop that was not finished, is no success of a later start.
func TestStartAfterWhatWasNotFinished(t *testing.T) {
	t.Run("start", func(t *testing.T) {
		c := tracked(t, t.TempDir(), 1, "sleep", "60")
		ctx, cancel := context.WithCancel(t.Context())
		c.spawn = func(name string, argv []string, attr *os.ProcAttr) (*os.Process, error) {
			p, err := os.StartProcess(name, argv, attr)
			cancel()
			return p, err
		}
		if err := c.Start(ctx); err == nil {
			t.Error("a start that was called off is no success")
		}
		rec, err := readRecord(c.dir)
		if err != nil || rec.Done || rec.PID == 0 {
			t.Errorf("%+v %v", rec, err)
		}
		mustStop(t, c)
	})
	t.Run("stop", func(t *testing.T) {
		c := tracked(t, t.TempDir(), 1, "sh", "-c", "trap '' TERM; echo y > ready; while :; do sleep 0.1; done")
		c.opts.WorkingDirectory = c.dir
		c.opts.KillAfter = 100 * time.Millisecond
		mustStart(t, c)
		awaitFile(t, c.dir+"/ready", 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Stop(ctx); err == nil {
			t.Error("a stop that was called off is no success")
		}
		wantState(t, c, resources.Failed)
		if err := c.Start(deadline(t, 10*time.Second)); err == nil || !strings.Contains(err.Error(), "must be stopped first") {
			t.Errorf("start: %v", err)
		}
		mustStop(t, c)
		mustStart(t, c)
		mustStop(t, c)
	})
}

// Somebody has cleared the daemon's directory while the service runs: it is found by its mark, never called inactive, and ended.
func TestRecordIsLost(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]*command{
		"run":      tracked(t, dir, 1, "sleep", "60"),
		"commands": service(t, dir, 1, daemonise, "true", ""),
	} {
		if err := c.Start(deadline(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := removeRecord(dir); err != nil {
			t.Fatal(err)
		}
		c.clear.Store(false) // as in a daemon that was started anew
		wantState(t, c, resources.Failed)
		if err := c.Start(deadline(t, 10*time.Second)); err == nil {
			t.Errorf("%s: a second one was started", name)
		}
		mustStop(t, c)
		if left, err := c.members(t.Context(), record{}); err != nil || len(left) > 0 {
			t.Errorf("%s: left: %v %v", name, left, err)
		}
	}
}

// Looks hang no longer than they are given, whatever they look at: here a record that is a pipe nobody writes to.
func TestLooksThatHang(t *testing.T) {
	c := tracked(t, t.TempDir(), 1, "sleep", "60")
	path := filepath.Join(c.dir, recordFile)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(context.Context) error{
		"died": c.Died,
		"probe": func(ctx context.Context) error {
			state, _, err := c.Probe(ctx)
			if state != resources.Unknown {
				t.Errorf("probe: %s", state)
			}
			return err
		},
	} {
		done := make(chan error, 1)
		go func() { done <- call(deadline(t, 50*time.Millisecond)) }()
		select {
		case err := <-done:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s hangs", name)
		}
		w, err := os.OpenFile(path, os.O_WRONLY, 0) // lets it go
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
