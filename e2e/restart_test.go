package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cmd/hamgr/demo"
)

func readUntil(t *testing.T, r io.Reader, text string) []byte {
	t.Helper()
	var seen []byte
	for buf := make([]byte, 1024); !bytes.Contains(seen, []byte(text)); {
		n, err := r.Read(buf)
		seen = append(seen, buf[:n]...)
		if err != nil {
			t.Fatalf("no %q in: %s", text, seen)
		}
	}
	return seen
}

// startCluster is three daemons as real processes. They end with the test.
func startCluster(tb testing.TB, ctx context.Context, detection time.Duration) (*demo.Cluster, demo.Placement) {
	tb.Helper()
	folder, err := os.MkdirTemp(demo.DefaultParent(), "e2e-")
	if err != nil {
		tb.Fatal(err)
	}
	c, err := demo.StartCluster(ctx, demo.ClusterConfig{
		Executable: hamgr, Parent: folder, DetectionTime: detection, Prefer: []string{"beta", "gamma", "alpha"},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Log(c.Events.Tail(30))
		}
		if err := c.Kill(); err != nil {
			tb.Error(err)
		}
		if err := os.RemoveAll(folder); err != nil {
			tb.Error(err)
		}
	})
	at, err := c.Ready(ctx, 60*time.Second)
	if err != nil {
		tb.Fatal(err)
	}
	return c, at
}

// TestRestartOfADaemon: a daemon that is restarted in the same boot, on purpose or by a crash, on any node,
// neither stops the group nor gets its node shot.
func TestRestartOfADaemon(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, at := startCluster(t, ctx, 3*time.Second)
	before := lastWrite(t, c)
	if before.Token != at.Token {
		t.Fatalf("the last write is %v, the grant %+v", before, at)
	}
	other := "gamma"
	if at.Coordinator == other || at.Holder == other {
		other = "alpha"
	}
	for _, step := range []struct {
		node string
		sig  syscall.Signal
	}{
		{at.Holder, syscall.SIGTERM}, {at.Holder, syscall.SIGKILL},
		{at.Coordinator, syscall.SIGTERM}, {at.Coordinator, syscall.SIGKILL},
		{other, syscall.SIGTERM}, {other, syscall.SIGKILL},
	} {
		if err := c.RestartDaemon(ctx, step.node, step.sig); err != nil {
			t.Fatal(err)
		}
		now, err := c.Ready(ctx, 60*time.Second)
		if err != nil {
			t.Fatalf("after %s to %s: %v", step.sig, step.node, err)
		}
		if now.Holder != at.Holder || now.Token != at.Token || now.Boot != at.Boot {
			t.Fatalf("after %s to %s the group is at %+v, was at %+v", step.sig, step.node, now, at)
		}
	}
	// Longer than anything that was started by a restart takes to come to a shot.
	wait(t, ctx, 6*time.Second)
	after := lastWrite(t, c)
	if after.PID != before.PID || after.Boot != before.Boot || after.Token != before.Token || after.Seq <= before.Seq {
		t.Errorf("not the same process writes: %v, then %v", before, after)
	}
	if shots := c.Events.All(func(e demo.Event) bool { return e.Message == "fencing ordered" }); len(shots) != 0 {
		t.Errorf("a node was shot for a restart: %v", shots)
	}
}

// lastWrite waits for the first one: the group runs as soon as its process does.
func lastWrite(t *testing.T, c *demo.Cluster) demo.Entry {
	t.Helper()
	for range 100 {
		entries, err := c.Ledger()
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			t.Fatal(err)
		case len(entries) > 0:
			return entries[len(entries)-1]
		}
		wait(t, t.Context(), 100*time.Millisecond)
	}
	t.Fatal("nobody writes")
	return demo.Entry{}
}

// wait lets real processes work for a while.
func wait(tb testing.TB, ctx context.Context, d time.Duration) {
	tb.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		tb.Fatal(ctx.Err())
	case <-timer.C:
	}
}
