package ocf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// late is the most that a call may take beyond its deadline on a machine that is busy.
const late = 600 * time.Millisecond

// A call obeys its context within 50 ms, all killed, where the machine has time.
func TestEndsWithin50ms(t *testing.T) {
	s := script(t, `[ $1 = monitor ] && { touch $d/in; setsid sleep 60 & sleep 60; }`)
	r := s.resource()
	best := time.Hour
	for try := 0; try < 20 && best > 50*time.Millisecond; try++ {
		_ = os.Remove(s.file("in"))
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { _, _, err := r.Probe(ctx); ended <- err }()
		for !s.has("in") {
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, process.ErrHangs) {
			t.Logf("%v", err)
			continue
		}
		best = min(best, time.Since(began))
	}
	t.Logf("%v", best)
	if best > 50*time.Millisecond {
		t.Errorf("%v late at best", best)
	}
}

// However an agent stalls, the call ends with its context, and so does all that the agent has made.
func TestStalls(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"it sleeps":                       `sleep 60`,
		"it ignores every signal":         `trap '' TERM INT HUP QUIT; while :; do sleep 0.02; done`,
		"it stops itself":                 `kill -STOP $$`,
		"a child holds the pipes":         `sleep 60 & sleep 60`,
		"a child in another session":      `setsid sleep 60 & sleep 60`,
		"one that left its parents":       `(setsid sh -c 'sleep 60 & exec sleep 61' &) ; sleep 60`,
		"one in another group":            `timeout 60 sleep 60`,
		"one that forgot the environment": `env -i /usr/bin/sleep 60 & echo $! >>$d/pids; sleep 60`,
		"a session that forgot it too":    `env -i /usr/bin/setsid /usr/bin/sleep 60 & echo $! >>$d/pids; sleep 60`,
		"one that forks for ever":         `while :; do sleep 0.01 & done`,
		"one without parents or marks":    `(env -i /usr/bin/sleep 60 & echo $! >>$d/pids); sleep 60`,
		"it prints without end":           `yes`,
		"it prints on both":               `yes >&2 & yes`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := script(t, `case $1 in monitor|stop|validate-all) touch $d/in; `+body+` ;; esac`)
			r := s.resource()
			for op, call := range map[string]func(context.Context) error{
				"probe": func(ctx context.Context) error {
					state, _, err := r.Probe(ctx)
					if state != resources.Unknown {
						t.Errorf("a monitor without an answer: %s", state)
					}
					return err
				},
				"start": r.Start, "stop": r.Stop, "check": r.Check,
			} {
				if name != "it sleeps" && (op == "start" || op == "check") {
					continue
				}
				ctx := within(t, 100*time.Millisecond)
				woken := make(chan time.Time, 1) // a busy machine may be late by itself
				go func() { <-ctx.Done(); woken <- time.Now() }()
				err := call(ctx)
				if over := time.Since(<-woken); over > 2*late {
					t.Errorf("%s: %v too late", op, over)
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", op, err)
				}
			}
			for d := 200 * time.Millisecond; !s.has("in"); d *= 2 { // a busy machine may not have come to run it
				if d > 10*time.Second {
					t.Fatal("the agent was not run")
				}
				_, _, _ = r.Probe(within(t, d))
			}
			for pid := range strings.FieldsSeq(s.read("pids")) {
				n, err := strconv.Atoi(pid)
				must(t, err)
				p, err := process.Look(n)
				if err == nil && p.Wait(within(t, 2*time.Second)) != nil {
					t.Errorf("left: %s", p)
					_ = p.Signal(syscall.SIGKILL)
				}
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	s := script(t, `[ $1 = start ] && touch $d/in && sleep 60`)
	r := s.resource()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for !s.has("in") {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	err := r.Start(ctx)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, process.ErrHangs) && !strings.Contains(err.Error(), "start was killed") {
		t.Error(err)
	}
	s.nothingLeft()
	must(t, r.Stop(within(t, 5*time.Second)))
}

// 100 MB are swallowed, and what is kept of them is short and printable.
func TestFlood(t *testing.T) {
	t.Parallel()
	s := script(t, `[ $1 = start ] && { head -c 100000000 /dev/zero; head -c 3000000 /dev/urandom; printf '\033[31mred\007\n'; head -c 1000 /dev/urandom; exit 1; } >&2`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := s.resource().Start(within(t, 20*time.Second))
	runtime.ReadMemStats(&after)
	last := &tail{most: 100}
	for i := range 1000 {
		_, _ = fmt.Fprintf(last, "line %d\n%s", i, strings.Repeat("x", i%120))
	}
	if len(last.buf) > 100 || !strings.HasPrefix(last.text(), "xxx") && !strings.HasPrefix(last.text(), "line ") || cap(last.buf) > 1000 {
		t.Errorf("%d bytes in %d: %q", len(last.buf), cap(last.buf), last.text())
	}
	if err == nil || len(err.Error()) > 2000 || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Errorf("%q", err)
	}
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 32<<20 {
		t.Errorf("heap grew by %d MB", grown>>20)
	}
}

// A service that inherited the agent's output goes on printing when the agent has ended, whoever reads it.
func TestServiceKeepsItsOutput(t *testing.T) {
	t.Parallel()
	s := script(t, `
case $1 in
start)	(sleep 0.2; trap 'echo pipe >$d/died' PIPE; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo "a line of seventy characters to fill the pipe with, whose reader has gone"; done 2>/dev/null; echo $i >$d/count; exec sleep 60) & echo $! >$d/pid; touch $d/up; exit 0 ;;
stop)	kill $(cat $d/pid) ;;
esac`)
	r := s.resource()
	must(t, r.Start(within(t, 5*time.Second)))
	for end := time.Now().Add(10 * time.Second); !s.has("count"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) || s.has("died") {
			t.Fatalf("the service was held up, or died: %q", s.read("died"))
		}
	}
	must(t, r.Stop(within(t, 5*time.Second)))
}

// What start leaves running is the service, and is nobody's to kill: not at the end of the start, and not
// when a later monitor is killed.
func TestServiceIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := script(t, `
case $1 in
start) sleep 60 & echo $! >$d/pid ;;
monitor) [ -e $d/stall ] && sleep 60 ;;
stop) kill $(cat $d/pid) ;;
esac`)
	r := s.resource()
	must(t, r.Start(within(t, 5*time.Second)))
	s.write("stall", "")
	if _, _, err := r.Probe(within(t, 200*time.Millisecond)); err == nil {
		t.Error("the monitor did not stall")
	}
	must(t, os.Remove(s.file("stall")))
	pid, err := strconv.Atoi(strings.TrimSpace(s.read("pid")))
	must(t, err)
	if p, err := process.Look(pid); err != nil || p.Ended() {
		t.Errorf("the service: %+v %v", p, err)
	}
	must(t, r.Stop(within(t, 5*time.Second)))
}

// The daemon died in the middle of a start. What goes on of it is unknown to a look, and is ended before
// anything else is done.
func TestEarlierRun(t *testing.T) {
	t.Parallel()
	s := script(t, "")
	r := s.resource()
	mark := newMark()
	must(t, r.note(startedFile, ""))
	must(t, r.note(runningFile, mark))
	orphan := exec.Command("sh", "-c", "trap '' TERM; setsid sleep 60 & wait; sleep 60")
	orphan.Env = append(os.Environ(), "HAMGR_BOOT="+s.boot, markVariable+mark)
	must(t, orphan.Start())
	go func() { _ = orphan.Wait() }()
	stranger := exec.Command("sleep", "60")
	stranger.Env = append(os.Environ(), markVariable+mark+"x")
	must(t, stranger.Start())
	defer func() { _ = stranger.Process.Kill(); _ = stranger.Wait() }()

	state, _, err := r.Probe(within(t, 5*time.Second))
	if state != resources.Unknown {
		t.Errorf("probe: %s", state)
	}
	wantErr(t, err, nil, "an earlier action still runs", strconv.Itoa(orphan.Process.Pid))
	must(t, r.Stop(within(t, 5*time.Second)))
	s.nothingLeft()
	wantState(t, r, resources.Inactive)
	if p, err := process.Look(stranger.Process.Pid); err != nil || p.Ended() {
		t.Error("a stranger was killed")
	}
}

// Two daemons, or two objects of one, do not act at once.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	s := script(t, `[ $1 = start ] && { touch $d/in; while [ ! -e $d/go ]; do sleep 0.01; done; }`)
	done := make(chan error)
	go func() { done <- s.resource().Start(within(t, 10*time.Second)) }()
	for !s.has("in") {
		time.Sleep(time.Millisecond)
	}
	other := s.resource()
	state, _, err := other.Probe(within(t, 100*time.Millisecond))
	if state != resources.Unknown || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("during a start: %s %v", state, err)
	}
	s.write("go", "")
	must(t, <-done)
	wantState(t, other, resources.Active)
	must(t, other.Stop(within(t, 5*time.Second)))
}

// 300 actions that are cut short anywhere leave nothing: no process, no descriptor, no goroutine (TestMain).
func TestRandomCancels(t *testing.T) {
	s := script(t, `[ $((0x$(head -c 1 /dev/urandom | od -An -tx1 | tr -d ' ') % 4)) = 0 ] && { setsid sleep 60 & sleep 60; }`)
	before := descriptors(t)
	var wg sync.WaitGroup
	for lane := range 3 {
		dir := filepath.Join(s.dir, "lane"+strconv.Itoa(lane))
		must(t, os.MkdirAll(dir, 0o755))
		r := s.resource()
		r.env.Dir = dir
		wg.Go(func() {
			for range 100 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(40))*time.Millisecond)
				switch rand.IntN(4) {
				case 0:
					_, _, _ = r.Probe(ctx)
				case 1:
					_ = r.Start(ctx)
				case 2:
					_ = r.Stop(ctx)
				case 3:
					_ = r.Check(ctx)
				}
				if end, _ := ctx.Deadline(); time.Since(end) > 5*time.Second { // how soon it comes back, others test
					t.Errorf("%v too late", time.Since(end))
				}
				cancel()
			}
		})
	}
	wg.Wait()
	s.nothingLeft()
	for end := time.Now().Add(3 * time.Second); descriptors(t) > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors, %d before", descriptors(t), before)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

// A run has a session of its own, ordinary priority, and no protection from the out-of-memory killer.
func TestNothingIsInherited(t *testing.T) {
	// To be protected takes a privilege, to be preferred does not; both are inherited.
	must(t, os.WriteFile("/proc/self/oom_score_adj", []byte("300"), 0))
	defer func() { must(t, os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0)) }()
	s := script(t, `[ $1 = monitor ] && { sleep 0.05; cat /proc/$$/oom_score_adj >$d/oom; ls -l /proc/$$/fd >$d/fds; cut -d' ' -f5,6 /proc/$$/stat >$d/group; echo $$ >$d/pid; cat >$d/stdin; pwd >$d/pwd; }`)
	wantState(t, s.resource(), resources.Inactive)
	pid := strings.TrimSpace(s.read("pid"))
	for file, want := range map[string]string{"oom": "0\n", "group": pid + " " + pid + "\n", "stdin": "", "pwd": "/\n"} {
		if got := s.read(file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	if fds := s.read("fds"); strings.Contains(fds, s.file("private")) || strings.Contains(fds, "socket") || strings.Count(fds, "pipe:") != 2 {
		t.Errorf("descriptors: %s", fds)
	}
}

// The start of a program fails in ways that tell whose fault it is.
func TestCannotRun(t *testing.T) {
	s := script(t, "")
	path := s.file("resource.d/test/test")
	for name, c := range map[string]struct {
		change func()
		err    error
		words  string
	}{
		"no interpreter":     {func() { s.replace(path, "#!/nonexistent/sh\n", 0o755) }, resources.ErrNode, "interpreter"},
		"no format":          {func() { s.replace(path, "nothing", 0o755) }, resources.ErrSetup, "exec format"},
		"not executable":     {func() { s.replace(path, "#!/bin/sh\n", 0o644) }, resources.ErrSetup, "no program"},
		"writable for all":   {func() { s.replace(path, "#!/bin/sh\n", 0o757) }, resources.ErrSetup, "every user can write"},
		"a directory":        {func() { must(t, os.RemoveAll(path)); must(t, os.Mkdir(path, 0o755)) }, resources.ErrSetup, "no program"},
		"silent on metadata": {func() { must(t, os.RemoveAll(path)); s.replace(path, "#!/bin/sh\n", 0o755) }, resources.ErrSetup, "not metadata"},
	} {
		c.change()
		r := s.resource()
		for _, err := range []error{r.Check(within(t, 5*time.Second)), r.Start(within(t, 5*time.Second))} {
			t.Log(name)
			wantErr(t, err, c.err, c.words)
		}
		must(t, os.RemoveAll(path))
	}
}

func (s *scripted) replace(path, text string, mode os.FileMode) {
	s.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	_ = os.RemoveAll(path)
	must(s, os.WriteFile(path, []byte(text), mode))
	must(s, os.Chmod(path, mode))
}

// Several agents only send a signal: a stop is over when the processes of the service are. One that stays, as
// daemons do that others share, is told of.
func TestStopWaitsForProcesses(t *testing.T) {
	t.Parallel()
	s := script(t, `
case $1 in
start) (trap 'sleep 0.3; exit' TERM; while :; do sleep 0.02; done) & echo $! >$d/pid; sleep $(cat $d/more) & echo $! >$d/pid2 ;;
stop) kill $(cat $d/pid) ;;
esac`)
	r := s.resource()
	var log bytes.Buffer
	r.env.Log = slog.New(slog.NewTextHandler(&log, nil))
	for _, more := range []string{"0", "60"} {
		want := more != "0"
		log.Reset()
		s.write("more", more)
		must(t, r.Start(within(t, 5*time.Second)))
		must(t, r.Stop(within(t, 5*time.Second)))
		pid, err := strconv.Atoi(strings.TrimSpace(s.read("pid")))
		must(t, err)
		if p, err := process.Look(pid); err == nil && !p.Ended() {
			t.Errorf("%s still runs", p)
		}
		if got := strings.Contains(log.String(), "processes that it started are left"); got != want {
			t.Errorf("with %s: %s", more, &log)
		}
	}
	command(t, "kill", strings.TrimSpace(s.read("pid2")))
}

// What an agent printed last is read, also if it has ended before anybody read it.
func TestLastWordsAreRead(t *testing.T) {
	slow := &slowWriter{entered: make(chan struct{}), release: make(chan struct{})}
	c, err := newCapture(slow)
	must(t, err)
	must(t, errOf(c.w.WriteString("first ")))
	<-slow.entered
	must(t, errOf(c.w.WriteString("last")))
	finished := make(chan struct{})
	go func() { defer close(finished); c.finish() }()
	time.AfterFunc(20*time.Millisecond, func() { close(slow.release) })
	<-finished
	if slow.String() != "first last" {
		t.Errorf("%q", slow.String())
	}
}

// slowWriter holds up its first writer.
type slowWriter struct {
	bytes.Buffer
	once             sync.Once
	entered, release chan struct{}
}

func (s *slowWriter) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.entered); <-s.release })
	return s.Buffer.Write(b)
}

func errOf(_ int, err error) error { return err }
