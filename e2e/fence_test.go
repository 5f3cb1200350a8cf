package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cmd/hamgr/demo"
)

// shell is an operator at one node's command line.
type shell struct {
	t    *testing.T
	c    *demo.Cluster
	node string
	seen bytes.Buffer // all that was printed
}

// run runs hamgr with these arguments and gives what it prints and its exit status.
func (s *shell) run(ctx context.Context, args ...string) (out string, status int) {
	s.t.Helper()
	cmd := exec.CommandContext(ctx, hamgr, append([]string{"--socket", s.c.Socket(s.node)}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	s.seen.Write(stdout.Bytes())
	s.seen.Write(stderr.Bytes())
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		s.t.Logf("hamgr %s: status %d: %s", strings.Join(args, " "), exit.ExitCode(), stderr.String())
		return stdout.String(), exit.ExitCode()
	case err != nil:
		s.t.Fatal(err)
	}
	return stdout.String(), 0
}

// must runs a command that succeeds, and reads its JSON into result.
func (s *shell) must(ctx context.Context, result any, args ...string) {
	s.t.Helper()
	out, status := s.run(ctx, append(args, "--json")...)
	if status != 0 {
		s.t.Fatalf("hamgr %s ended with status %d: %s", strings.Join(args, " "), status, out)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal([]byte(out), result); err != nil {
		s.t.Fatalf("hamgr %s: %v in %s", strings.Join(args, " "), err, out)
	}
}

// TestOperatorsFencing goes the way of an operator with a new cluster of real processes: test the devices,
// rehearse them, look at the history. What is dangerous is refused, and the BMCs' password shows nowhere.
func TestOperatorsFencing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, at := startCluster(t, ctx, 3*time.Second)
	op := &shell{t: t, c: c, node: at.Coordinator}
	if at.Coordinator == at.Holder {
		t.Fatalf("the holder coordinates: %+v", at)
	}

	var tested struct {
		Devices []struct {
			Node, Device, State string
			ReadBy              string `json:"read_by"`
			OK                  bool
		}
	}
	op.must(ctx, &tested, "fence", "test")
	if len(tested.Devices) != 6 { // three BMCs, each read by the two other nodes
		t.Errorf("%d readings: %+v", len(tested.Devices), tested)
	}
	for _, d := range tested.Devices {
		if !d.OK || d.State != "on" || d.ReadBy == d.Node {
			t.Errorf("%+v", d)
		}
	}

	for _, refused := range [][]string{
		{"fence", "rehearse", at.Holder, "--yes"},
		{"fence", "confirm", at.Holder, "--typed", at.Holder, "--reason", "a mistake"},
		{"fence", "off", at.Holder, "--direct", "--config", c.Config(), "--yes"},
	} {
		if out, status := op.run(ctx, refused...); status != 5 {
			t.Errorf("hamgr %s ended with status %d: %s", strings.Join(refused, " "), status, out)
		}
	}

	op.must(ctx, nil, "node", "standby", at.Holder)
	now, err := c.Ready(ctx, time.Minute)
	for err == nil && now.Holder == at.Holder {
		wait(t, ctx, 100*time.Millisecond)
		now, err = c.Ready(ctx, time.Minute)
	}
	if err != nil {
		t.Fatal(err)
	}
	boot := c.Boot(at.Holder)
	op.must(ctx, nil, "fence", "rehearse", at.Holder, "--yes")
	if c.Boot(at.Holder) == boot {
		t.Error("the rehearsal did not switch the machine off and on")
	}
	op.must(ctx, nil, "node", "online", at.Holder)

	var history struct {
		Operations []struct {
			Node, Action, By, Proof string
			Attempts                []struct{ Proven bool }
		}
	}
	op.must(ctx, &history, "fence", "history")
	if len(history.Operations) != 1 {
		t.Fatalf("history: %+v", history)
	}
	if o := history.Operations[0]; o.Node != at.Holder || o.Action != "rehearse" || o.By == "" || !strings.Contains(o.Proof, "read") || len(o.Attempts) != 1 || !o.Attempts[0].Proven {
		t.Errorf("history: %+v", o)
	}
	if after, err := c.Ready(ctx, time.Minute); err != nil || after.Holder != now.Holder || after.Token != now.Token {
		t.Errorf("the group moved: %+v, then %+v, %v", now, after, err)
	}
	noSecret(t, c, op)
}

// noSecret looks for the BMCs' password where it must not be: in the cluster's files other than its own, in what an
// operator saw, and in the arguments and the environment of the daemons.
func noSecret(t *testing.T, c *demo.Cluster, op *shell) {
	t.Helper()
	password, err := os.ReadFile(c.BMCPassword())
	if err != nil {
		t.Fatal(err)
	}
	secret := bytes.TrimSpace(password)
	if len(secret) < 8 {
		t.Fatalf("the password %q is too short to be looked for", secret)
	}
	looked := 0
	look := func(where string, text []byte) {
		looked++
		if bytes.Contains(text, secret) {
			t.Errorf("the password is in %s", where)
		}
	}
	look("what hamgr printed", op.seen.Bytes())
	for _, node := range []string{"alpha", "beta", "gamma"} {
		pid, err := c.DaemonPID(node)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
			if err != nil {
				t.Fatal(err)
			}
			look(name+" of "+node, text)
		}
	}
	err = filepath.WalkDir(c.Folder(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path == c.BMCPassword() {
			return err
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a daemon's own affair
		}
		look(path, text)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if looked < 20 {
		t.Errorf("only %d places were looked at", looked)
	}
}
