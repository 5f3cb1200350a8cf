package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cmd/hamgr/demo"
)

// demoCommand is `hamgr demo` with a temporary folder of its own, in which nothing may be left.
func demoCommand(t *testing.T, args ...string) (cmd *exec.Cmd, folder string) {
	t.Helper()
	// Not t.TempDir: its name is too long for a socket.
	folder, err := os.MkdirTemp(demo.DefaultParent(), "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, hamgr, append([]string{"demo"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+folder)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	return cmd, folder
}

// mustLeaveNothing looks for files in the folder, and for processes that were started with it.
func mustLeaveNothing(t *testing.T, folder string) {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil || len(files) != 0 {
		t.Errorf("left in the folder: %v, %v", files, err)
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range commands {
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(folder)) {
			t.Errorf("left running: %s", bytes.ReplaceAll(text, []byte{0}, []byte(" ")))
		}
	}
}

// TestDemo plays every scenario, and believes nothing but the ledger.
func TestDemo(t *testing.T) {
	for _, s := range demo.Scenarios {
		t.Run(s.Name, func(t *testing.T) {
			cmd, folder := demoCommand(t, "--scenario", s.Name, "--json")
			var out, talk bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &talk
			err := cmd.Run()
			var r demo.Report
			if jsonErr := json.Unmarshal(out.Bytes(), &r); err != nil || jsonErr != nil {
				t.Fatalf("%v, %v\n%s\n%s", err, jsonErr, &out, &talk)
			}
			if !r.OK || len(r.Wrong) != 0 || r.Overlap != 0 || r.Scenario != s.Name || r.Schema != demo.Schema {
				t.Errorf("%s", &out)
			}
			if r.New.Token <= r.Old.Token || r.New.Node == r.Old.Node || r.Proof == "" || r.Writes < 20 {
				t.Errorf("no takeover after proof: %s", &out)
			}
			if holds := r.Coordinator[0] == r.Old.Node; holds != (s.Name == "coordinator") {
				t.Errorf("%s coordinates, %s held the group", r.Coordinator[0], r.Old.Node)
			}
			if (r.Refused > 0) != (s.Name == "stale") {
				t.Errorf("%d stale writes were refused", r.Refused)
			}
			times := map[string]*int64{"detect": r.Detect, "fence": r.Fence, "grant": r.Grant, "start": r.Start, "total": r.Total, "returned": r.Returned}
			if s.Name == "move" {
				times = map[string]*int64{"stop": r.Stop, "grant": r.Grant, "start": r.Start, "total": r.Total}
				if r.Fence != nil || !strings.Contains(r.Proof, "clean stop") {
					t.Errorf("a move was fenced: %s", &out)
				}
			}
			for name, ms := range times {
				if ms == nil || *ms < 0 {
					t.Errorf("%s is missing or negative: %s", name, &out)
				}
			}
			mustLeaveNothing(t, folder)
		})
	}
}

// TestDemoCalledOff: whatever ends a demo early, and whenever, nothing of it is left.
func TestDemoCalledOff(t *testing.T) {
	tests := []struct {
		name    string
		signals []os.Signal
		after   string // a text of the progress
	}{
		{"interrupt at the start", []os.Signal{os.Interrupt}, "three nodes"},
		{"terminate before the fault", []os.Signal{syscall.SIGTERM}, "coordinates"},
		{"interrupt twice during the failover", []os.Signal{os.Interrupt, os.Interrupt}, "fault"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd, folder := demoCommand(t)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			seen := readUntil(t, out, tt.after)
			for _, s := range tt.signals {
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			rest := new(bytes.Buffer)
			_, _ = rest.ReadFrom(out)
			exit := (*exec.ExitError)(nil)
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("ended with %v, want status 1\n%s%s", err, seen, rest)
			}
			if !strings.Contains(rest.String(), "FAILED") {
				t.Errorf("no verdict: %s", rest)
			}
			mustLeaveNothing(t, folder)
		})
	}
}

// TestDemoWithoutAReader: `hamgr demo | head -1` must not leave three daemons behind.
func TestDemoWithoutAReader(t *testing.T) {
	cmd, folder := demoCommand(t)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	readUntil(t, out, "three nodes")
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it claims success")
	}
	mustLeaveNothing(t, folder)
}

func TestDemoRefusesNonsense(t *testing.T) {
	for _, args := range [][]string{{"--scenario", "earthquake"}, {"--detection-time", "1ms"}, {"now"}} {
		cmd, folder := demoCommand(t, args...)
		out, err := cmd.CombinedOutput()
		exit := (*exec.ExitError)(nil)
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || len(out) == 0 {
			t.Errorf("%v: %v: %s", args, err, out)
		}
		mustLeaveNothing(t, folder)
	}
}
