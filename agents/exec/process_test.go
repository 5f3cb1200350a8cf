package exec

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// slack is what a call may take beyond the end of its context on a machine that does other things too.
const slack = 50 * time.Millisecond

// Agents that do not end: with a deadline and a cancel the call returns at once, and nobody of the
// process group is left.
func TestKilledWhole(t *testing.T) {
	for name, body := range map[string]string{
		"stalls":                             `sleep 60`,
		"stalls in its shell":                `while :; do :; done`,
		"ignores every signal it can":        `trap '' TERM INT HUP; sleep 60; sleep 60`,
		"forks a child that holds the pipes": `sleep 60 & exec sleep 60`,
		"forks a grandchild":                 `(sleep 60 & sleep 60) & wait`,
		"forks without end":                  `while :; do sleep 1 & sleep 0.01; done`,
		"prints without end":                 `while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done`,
		"closes its pipes and stalls":        `exec >&- 2>&- <&-; sleep 60`,
		"stops itself":                       `kill -STOP $$; sleep 60`,
	} {
		t.Run(name, func(t *testing.T) {
			s := script(t, body)
			h := open(t, s.options())
			if _, err := h.prepare(within(t, 5*time.Second)); err != nil { // the metadata is read
				t.Fatal(err)
			}
			var late time.Duration
			for range 3 {
				os.Remove(s.file("stdin"))
				ctx, cancel := context.WithCancel(t.Context())
				returned := make(chan error, 1)
				go func() { _, err := h.Status(ctx, "1"); returned <- err }()
				s.eventually("the agent runs", func() bool { return s.has("stdin") })
				time.Sleep(10 * time.Millisecond)
				start := time.Now()
				cancel()
				err := <-returned
				late = time.Since(start)
				if !errors.Is(err, context.Canceled) || agents.Lasting(err) {
					t.Errorf("error: %v", err)
				}
				s.eventually("its processes are gone", func() bool { return len(s.left()) == 0 })
				if late <= slack {
					return
				}
			}
			t.Errorf("returned %v after the cancel", late)
		})
	}
}

// What an agent leaves in its group ends with it, and does not hold up the answer.
func TestNothingIsLeftBehind(t *testing.T) {
	s := script(t, `sleep 60 & sleep 60 >/dev/null 2>&1 & echo "Status: OFF"; exit 2`)
	h := open(t, s.options())
	start := time.Now()
	r, err := h.Status(within(t, 5*time.Second), "1")
	if err != nil || r.State != agents.Off {
		t.Errorf("%v %v", r, err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}
	s.eventually("its processes are gone", func() bool { return len(s.left()) == 0 })
}

// A child that has left the group and holds the pipes holds nobody up either. What may be incomplete is
// not believed.
func TestPipesHeldFromOutside(t *testing.T) {
	for _, ending := range []string{`echo "Status: ON"; exit 0`, `echo "Status: OFF"; exit 2`} {
		s := script(t, `setsid sh -c 'echo $$ >>'$d'/groups; touch '$d'/left; exec sleep 1' & while ! test -e $d/left; do :; done; `+ending)
		start := time.Now()
		r, err := open(t, s.options()).Status(within(t, 5*time.Second), "1")
		if took := time.Since(start); took > 900*time.Millisecond {
			t.Errorf("%s: took %v", ending, took)
		}
		if r.State != agents.Unknown || !errors.Is(err, agents.ErrProtocol) {
			t.Errorf("%s: %v %v", ending, r, err)
		}
	}
}

// Output without measure costs no memory, and is not believed.
func TestFlood(t *testing.T) {
	flood := `yes 0123456789012345678901234567890123456789012345678901234567890123456789 | head -c 100000000`
	for name, c := range map[string]struct {
		body  string
		state agents.PowerState
		err   error
	}{
		"on stdout":             {flood + `; echo "Status: OFF"; exit 2`, agents.Unknown, agents.ErrProtocol},
		"on stdout, after":      {`echo "Status: OFF"; ` + flood + `; exit 2`, agents.Unknown, agents.ErrProtocol},
		"on stderr":             {flood + ` >&2; echo "Status: OFF"; exit 2`, agents.Off, nil},
		"on stderr, a failure":  {flood + ` >&2; echo "Connection refused" >&2; exit 1`, agents.Unknown, agents.ErrUnreachable},
		"in one line on stderr": {`head -c 100000000 /dev/zero >&2; exit 1`, agents.Unknown, errFailed},
	} {
		s := script(t, c.body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := open(t, s.options()).Status(within(t, 20*time.Second), "1")
		runtime.ReadMemStats(&after)
		if r.State != c.state || !errors.Is(err, c.err) {
			t.Errorf("%s: %v %v", name, r, err)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		}
		if kept := int64(after.HeapInuse) - int64(before.HeapInuse); kept > 8<<20 {
			t.Errorf("%s: %d bytes are kept", name, kept)
		}
	}
}

// The agent sees the options on its standard input, and an environment without anything.
func TestEnvironment(t *testing.T) {
	t.Setenv("HAMGR_TEST_SECRET", testPassword)
	s := script(t, `env >$d/env; tr '\0' '\n' </proc/$$/cmdline >$d/argv; pwd >>$d/argv; for f in /proc/$$/fd/*; do readlink $f; done >$d/fds; echo "Status: ON"`)
	s.write("marker", "")
	f, err := os.Open(s.file("marker")) // inherited by none
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := open(t, s.options()).Status(within(t, 5*time.Second), "1"); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(s.read("env")) {
		if name, _, _ := strings.Cut(line, "="); !strings.Contains(" PATH LANG HOME PWD OLDPWD SHLVL _ ", " "+name+" ") {
			t.Errorf("in the environment: %s", line)
		}
	}
	if want := "/bin/sh\n" + s.path + "\n/\n"; s.read("argv") != want {
		t.Errorf("command line and folder: %q", s.read("argv"))
	}
	if files := s.read("fds"); !strings.Contains(files, "pipe:") || strings.Contains(files, "marker") {
		t.Errorf("open files: %v", files)
	}
	if in := s.read("stdin"); !strings.Contains(in, "\npassword="+testPassword+"\n") || !strings.HasPrefix(in, "action=status\nplug=1\n") {
		t.Errorf("standard input: %q", in)
	}
}

// A program that cannot be started says why; none of it is retried for ever.
func TestCannotStart(t *testing.T) {
	s := script(t, "")
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		word string
	}{
		"missing":             {"", 0, "no such program"},
		"not executable":      {"#!/bin/sh\n", 0o600, "no such program"},
		"interpreter missing": {"#!/no/such/interpreter\n", 0o755, "interpreter, is not installed"},
		"all can write it":    {"#!/bin/sh\n", 0o757, "all users can write it (mode 0757)"},
		"not a program":       {"\x00\x01", 0o755, "cannot be started"},
	} {
		o := s.options()
		o.Command = s.file("fence_x")
		os.Remove(o.Command)
		if c.mode != 0 {
			writeProgram(t, o.Command, c.text)
			if err := os.Chmod(o.Command, c.mode); err != nil {
				t.Fatal(err)
			}
		}
		_, err := open(t, o).Status(within(t, 5*time.Second), "1")
		if miss := errWith(err, agents.ErrUnfit, c.word, o.Command); miss != "" {
			t.Errorf("%s: %s", name, miss)
		}
	}
	o := s.options()
	o.Command = "fence_no_such_agent"
	if miss := errWith(open(t, o).Off(within(t, time.Second), "1"), agents.ErrUnfit, "not installed in /usr/sbin"); miss != "" {
		t.Error(miss)
	}
}

// Whatever is cancelled wherever: no process, no goroutine and no file stays.
func TestCancelsAtRandom(t *testing.T) {
	s := script(t, `case $action in status) sleep 0.002; echo "Status: OFF"; exit 2;; *) sleep 0.005 & wait;; esac`)
	h := open(t, s.options())
	if _, err := h.Status(within(t, 5*time.Second), "1"); err != nil {
		t.Fatal(err)
	}
	files := func() int { entries, _ := os.ReadDir("/proc/self/fd"); return len(entries) }
	filesBefore, goroutines := files(), runtime.NumGoroutine()
	n := 1000
	if testing.Short() {
		n = 100
	}
	rng, ended := rand.New(rand.NewPCG(1, 2)), 0
	for range n {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.Int64N(int64(12*time.Millisecond))))
		var err error
		switch rng.IntN(3) {
		case 0:
			_, err = h.Status(ctx, "1")
		case 1:
			err = h.Off(ctx, "1")
		default:
			err = h.Check(ctx, "")
		}
		if errors.Is(err, context.DeadlineExceeded) {
			ended++
		}
		cancel()
	}
	if ended < n/10 {
		t.Errorf("only %d calls were cancelled", ended)
	}
	s.eventually("no process is left", func() bool { return len(s.left()) == 0 })
	s.eventually("no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
	s.eventually("no file is left", func() bool { return files() <= filesBefore })
}
