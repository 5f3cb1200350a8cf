package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
)

var update = flag.Bool("update", false, "rewrite the golden files and scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"hamgr": main})
}

// TestScripts runs the real command line. `daemon KIND` starts a daemon that answers from
// memory, on the socket that $HAMGR_SOCKET names.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HAMGR_SOCKET", filepath.Join(e.WorkDir, "hamgr.sock"))
			e.Setenv("SUDO_USER", "anna")
			e.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector would wait for a second at each end
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) == 0 {
					ts.Fatalf("usage: daemon KIND")
				}
				stop, err := startDaemon(ts.Getenv("HAMGR_SOCKET"), newCanned(strings.Join(args, " ")))
				ts.Check(err)
				ts.Defer(stop)
			},
			"bmc": startBMC,
			// status WANT COMMAND...: the exit status is exactly that
			"status": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: status WANT COMMAND...")
				}
				got := "0"
				if err := ts.Exec(args[1], args[2:]...); err != nil {
					got = strings.TrimPrefix(err.Error(), "exit status ")
				}
				if got != args[0] {
					ts.Fatalf("exit status %s, want %s", got, args[0])
				}
			},
		},
	})
}

// What `init --print-sample` prints is valid as it stands, but for the secrets it names.
func TestSampleIsValid(t *testing.T) {
	if _, err := config.Parse("sample.toml", sample, kinds()); err != nil {
		t.Error(err)
	}
}

func startDaemon(socket string, b api.Backend) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	l, err := api.ListenUnix(ctx, socket)
	if err != nil {
		cancel()
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- api.Serve(ctx, l, api.Operator(b), slog.New(slog.DiscardHandler)) }()
	return func() { cancel(); <-done }, nil
}

// ask runs one command line in this process, as an operator at a terminal who types answer.
func ask(t *testing.T, kind, answer string, args ...string) (status int, out, talk string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "hamgr.sock")
	stop, err := startDaemon(socket, newCanned(kind))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	t.Setenv("SUDO_USER", "anna")
	var stdout, stderr bytes.Buffer
	c := &cli{in: strings.NewReader(answer), out: &stdout, err: &stderr, interactive: true}
	status = c.run(t.Context(), append([]string{"--socket", socket}, args...))
	return status, stdout.String(), stderr.String()
}

// Power is cut only after a clear yes.
func TestFenceAsks(t *testing.T) {
	for answer, want := range map[string]int{"y\n": exitDone, " YES \n": exitDone, "n\n": exitFailed, "\n": exitFailed, "": exitFailed, "yep\n": exitFailed, "gamma\n": exitFailed} {
		status, out, talk := ask(t, "healthy", answer, "fence", "off", "gamma")
		if status != want {
			t.Errorf("answer %q: status %d, want %d", answer, status, want)
		}
		if cut := strings.Contains(out, "is off"); cut != (want == exitDone) {
			t.Errorf("answer %q: fenced %v", answer, cut)
		}
		if !strings.Contains(talk, "gamma is alive, and holds db; cut its power? [y/N] ") {
			t.Errorf("asked: %q", talk)
		}
	}
}

func TestFenceAsksOnlyWhereItMatters(t *testing.T) {
	for _, args := range [][]string{{"fence", "on", "gamma"}, {"fence", "reboot", "--yes", "gamma"}} {
		if status, _, talk := ask(t, "healthy", "", args...); status != exitDone || strings.Contains(talk, "[y/N]") {
			t.Errorf("%v: status %d, %q", args, status, talk)
		}
	}
	// Without quorum the operator is told so before the question.
	if _, _, talk := ask(t, "noquorum", "n\n", "fence", "off", "gamma"); !strings.Contains(talk, "may be old") {
		t.Errorf("asked: %q", talk)
	}
	if status, _, talk := ask(t, "healthy", "y\n", "fence", "off", "delta"); status != exitNotFound || strings.Contains(talk, "[y/N]") {
		t.Errorf("an unknown node: status %d, %q", status, talk)
	}
}

func TestExitStatusOfEveryCode(t *testing.T) {
	for code, want := range map[api.Code]int{
		api.ErrNoCoordinator: 4, api.ErrNoQuorum: 4, api.ErrUnsafe: 5, api.ErrNotFound: 6, api.ErrTimeout: 7, api.ErrUnknownOutcome: 7,
		api.ErrInvalid: 2, api.ErrFailed: 1, api.ErrInternal: 1, api.ErrUnreachable: 3, "from_a_newer_daemon": 1,
	} {
		c := &cli{out: new(bytes.Buffer), err: new(bytes.Buffer)}
		if got := c.end(fmt.Errorf("try: %w", &api.Error{Code: code, Message: "m"})); got != want {
			t.Errorf("%s: status %d, want %d", code, got, want)
		}
	}
}

// An answer that never comes must not hold the terminal beyond a signal.
func TestQuestionObeysItsContext(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	c := &cli{in: in, err: new(bytes.Buffer)}
	if err := c.agree(ctx, "go on?"); err == nil {
		t.Error("agreed by silence")
	}
}

func TestProgressSaysThingsOnce(t *testing.T) {
	for want, e := range map[string]api.FenceEvent{
		"off ordered":          {Text: "off ordered"},
		"b3: refused":          {Text: "b3: refused", Error: "refused"},
		"off ordered: refused": {Text: "off ordered", Error: "refused"},
	} {
		if got := progress(e); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
