package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/notes"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// The test binary is its own helper: with this variable set it is a daemon that starts
// a resource in the directory that it names, and waits to be killed.
const (
	daemonVariable  = "COMMAND_TEST_DAEMON"
	systemdVariable = "COMMAND_TEST_SYSTEMD" // where it is set, the daemon finds the host's systemd
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(daemonVariable); dir != "" {
		if os.Getenv(systemdVariable) != "" {
			managed = isRunBySystemd
		}
		r, err := newCommand(dir, 1, os.Args[1:]...)
		if err == nil {
			err = r.Start(context.Background())
		}
		fmt.Println("started", err)
		time.Sleep(10 * time.Minute) // it is killed long before
	}
	goleak.VerifyTestMain(m)
}

// managed is false, so that the tests do the same wherever they run.
var managed = func() bool { return false }

func newCommand(dir string, token uint64, run ...string) (*command, error) {
	o := Kind().Options().(*Options)
	o.Run = run
	return build(o, dir, token)
}

func build(o *Options, dir string, token uint64) (*command, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r, err := o.New(resources.Env{Group: "web", Resource: "app", Node: "alpha", Boot: "boot-1", Token: token, Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	c := r.(*command)
	c.managed = managed
	return c, nil
}

// tracked is a command that the test will certainly end.
func tracked(t *testing.T, dir string, token uint64, run ...string) *command {
	t.Helper()
	c, err := newCommand(dir, token, run...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		c.opts.KillAfter = 0
		if err := c.Stop(ctx); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return c
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func mustStart(t *testing.T, c *command) record {
	t.Helper()
	if err := c.Start(deadline(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	rec, err := readRecord(c.dir)
	if err != nil || rec.PID == 0 {
		t.Fatalf("record: %+v %v", rec, err)
	}
	return rec
}

func mustStop(t *testing.T, c *command) {
	t.Helper()
	if err := c.Stop(deadline(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	wantState(t, c, resources.Inactive)
}

func wantState(t *testing.T, c *command, want resources.State) {
	t.Helper()
	got, detail, err := c.Probe(t.Context())
	if err != nil || got != want {
		t.Errorf("probe: %v %q %v, want %v", got, detail, err, want)
	}
}

// awaitFile waits for a file of PIDs, one a line, that helpers write.
func awaitFile(t *testing.T, path string, lines int) []string {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		b, _ := os.ReadFile(path)
		if got := strings.Fields(string(b)); len(got) >= lines {
			return got
		}
		if time.Now().After(end) {
			t.Fatalf("%s: only %q", path, b)
		}
	}
}

func runs(t *testing.T, pid string) bool {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		t.Fatal(err)
	}
	p, err := process.Look(n)
	return err == nil && !p.Ended()
}

func TestLife(t *testing.T) {
	dir := t.TempDir()
	c := tracked(t, dir, 7, "sleep", "60")
	wantState(t, c, resources.Inactive)
	mustStop(t, c)
	first := mustStart(t, c)
	wantState(t, c, resources.Active)
	if again := mustStart(t, c); again != first {
		t.Errorf("a second start under the same token made %+v from %+v", again, first)
	}
	mustStop(t, c)
	if _, err := process.Look(first.PID); !errors.Is(err, process.ErrGone) {
		t.Errorf("PID %d was not reaped: %v", first.PID, err)
	}
	if second := mustStart(t, c); second.PID == first.PID {
		t.Errorf("no new process: %+v", second)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("SECRET_OF_THE_DAEMON", "hidden")
	dir := t.TempDir()
	o := Kind().Options().(*Options)
	o.Run = []string{"sh", "-c", "pwd; env; exec sleep 60"}
	o.Environment = map[string]string{"COLOUR": "blue sky"}
	o.WorkingDirectory, o.LogFile = dir, filepath.Join(dir, "log")
	c, err := build(o, dir, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer mustStop(t, c)
	rec := mustStart(t, c)
	awaitFile(t, o.LogFile, 9)
	b, err := os.ReadFile(o.LogFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{dir, "HAMGR_TOKEN=7", "HAMGR_GROUP=web", "HAMGR_RESOURCE=app", "HAMGR_NODE=alpha", "HAMGR_BOOT=boot-1", "COLOUR=blue sky", "PATH=" + os.Getenv("PATH")} {
		if !strings.Contains(string(b), want+"\n") {
			t.Errorf("no line %q in %q", want, b)
		}
	}
	if strings.Contains(string(b), "SECRET") {
		t.Errorf("the daemon's environment leaks: %q", b)
	}
	p, err := process.Look(rec.PID)
	if err != nil || p.Group != rec.PID || p.Session != rec.PID {
		t.Errorf("not in a session of its own: %+v %v", p, err)
	}
}

func TestSurvivesTheDaemon(t *testing.T) {
	dir := t.TempDir()
	daemon := exec.Command(os.Args[0], "sleep", "60")
	daemon.Env = append(os.Environ(), daemonVariable+"="+dir)
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 100)
	if n, err := out.Read(line); err != nil || string(line[:n]) != "started <nil>\n" {
		t.Fatalf("daemon: %q %v", line[:n], err)
	}
	_ = daemon.Process.Kill()
	_ = daemon.Wait()

	c := tracked(t, dir, 1, "sleep", "60")
	wantState(t, c, resources.Active)
	rec := mustStart(t, c) // goes on with what runs
	died := make(chan error, 1)
	go func() { died <- c.Died(t.Context()) }()
	if err := c.Died(deadline(t, 10*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("died: %v", err)
	}
	if err := unix.Kill(rec.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-died; err == nil || !strings.Contains(err.Error(), fmt.Sprint(rec.PID)) {
		t.Errorf("died: %v", err)
	}
	wantState(t, c, resources.Inactive)
}

func TestDiedTellsHow(t *testing.T) {
	for script, want := range map[string]string{"exit 3": "ended with status 3", "kill -9 $$": "killed by SIGKILL"} {
		c := tracked(t, t.TempDir(), 1, "sh", "-c", script)
		rec := mustStart(t, c)
		if err := c.Died(deadline(t, 10*time.Second)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", script, err)
		}
		if _, err := process.Look(rec.PID); !errors.Is(err, process.ErrGone) {
			t.Errorf("%s: PID %d was not reaped: %v", script, rec.PID, err)
		}
	}
	c := tracked(t, t.TempDir(), 1, "true")
	if err := c.Died(deadline(t, 10*time.Second)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("died before any start: %v", err)
	}
}

// A daemon that dies right after the fork must have left word that there is something
// to look for, and must have held the lock until then.
func TestIntentIsRecordedBeforeTheFork(t *testing.T) {
	dir := t.TempDir()
	c := tracked(t, dir, 4, "sleep", "60")
	c.spawn = func(name string, argv []string, attr *os.ProcAttr) (*os.Process, error) {
		if rec, err := readRecord(dir); err != nil || rec != (record{Boot: "boot-1", Token: 4}) {
			t.Errorf("record: %+v %v", rec, err)
		}
		if _, err := notes.Lock(deadline(t, 5*time.Millisecond), dir); err == nil {
			t.Error("not locked")
		}
		return os.StartProcess(name, argv, attr)
	}
	mustStart(t, c)
}

// A launch that outlasts its context is undone, and until then nothing is judged.
func TestLateLaunchIsUndone(t *testing.T) {
	dir := t.TempDir()
	c := tracked(t, dir, 4, "sleep", "60")
	launched := make(chan process.Process, 1)
	entered, leave := make(chan struct{}), make(chan struct{})
	c.spawn = func(name string, argv []string, attr *os.ProcAttr) (p *os.Process, err error) {
		close(entered)
		<-leave
		p, err = os.StartProcess(name, argv, attr)
		if err == nil {
			child, _ := process.Look(p.Pid)
			launched <- child
		}
		return p, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	if err := c.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v", err)
	}
	if err := c.Stop(deadline(t, 20*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stop while the launch hangs: %v", err)
	}
	close(leave)
	child := <-launched
	if err := child.Wait(deadline(t, 10*time.Second)); err != nil {
		t.Errorf("what was launched too late: %v", err)
	}
	mustStop(t, c)
}

// A child between fork and exec bears no mark, but holds the lock.
func TestNothingIsJudgedWhileAForkIsPending(t *testing.T) {
	dir := t.TempDir()
	c := tracked(t, dir, 1, "sleep", "60")
	held, err := notes.Lock(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for name, call := range map[string]func(context.Context) error{
		"start": c.Start, "stop": c.Stop,
		"probe": func(ctx context.Context) error { _, _, err := c.Probe(ctx); return err },
	} {
		begun := time.Now()
		if err := call(deadline(t, 20*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
}

func TestStartErrors(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no such program":   func(o *Options) { o.Run = []string{"/no/such/program"} },
		"no such name":      func(o *Options) { o.Run = []string{"no-such-program-at-all"} },
		"no such directory": func(o *Options) { o.WorkingDirectory = "/no/such/directory" },
		"no such log":       func(o *Options) { o.LogFile = "/no/such/directory/log" },
		"dies too early":    func(o *Options) { o.Run, o.ReadyAfter = []string{"sh", "-c", "sleep 0.05; exit 9"}, 5*time.Second },
	} {
		o := Kind().Options().(*Options)
		o.Run = []string{"sleep", "60"}
		change(o)
		c, err := build(o, t.TempDir(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(deadline(t, 10*time.Second)); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		mustStop(t, c)
	}
}

func TestReadyAfter(t *testing.T) {
	o := Kind().Options().(*Options)
	o.Run, o.ReadyAfter = []string{"sleep", "60"}, 30*time.Millisecond
	c, err := build(o, t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	mustStart(t, c)
	if took := time.Since(begun); took < o.ReadyAfter {
		t.Errorf("start took only %s", took)
	}
	mustStop(t, c)
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`{"boot":"b","token":1,"pid":99,"start":5}`))
	f.Add([]byte(`{"pid":-1}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r := parseRecord(b); r.PID < 0 || r.PID == 1 {
			t.Errorf("%q gives PID %d", b, r.PID)
		}
	})
}

func BenchmarkStartStop(b *testing.B) {
	c, err := newCommand(b.TempDir(), 1, "sleep", "60")
	if err != nil {
		b.Fatal(err)
	}
	var starts time.Duration
	for b.Loop() {
		begun := time.Now()
		if err := c.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		starts += time.Since(begun)
		if err := c.Stop(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(starts.Nanoseconds())/float64(b.N), "ns/start")
}

func BenchmarkProbe(b *testing.B) {
	c, err := newCommand(b.TempDir(), 1, "sleep", "60")
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if state, _, err := c.Probe(b.Context()); state != resources.Active {
			b.Fatal(state, err)
		}
	}
	if err := c.Stop(b.Context()); err != nil {
		b.Fatal(err)
	}
}
