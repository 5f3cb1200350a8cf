package node

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestStartGoesOnWhereGroupsRun: a daemon that is to stop while it starts has to have started to empty its node.
func TestStartGoesOnWhereGroupsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		stopped, stop := context.WithCancel(t.Context())
		stop()
		ctx, cancel := startContext(stopped, dir)
		defer cancel()
		if ctx.Err() == nil {
			t.Error("a start of a node that runs nothing goes on after its end")
		}
		if err := os.MkdirAll(filepath.Join(dir, heldFolder, "db.json"), 0o700); err != nil {
			t.Fatal(err)
		}
		ctx, cancel = startContext(stopped, dir)
		defer cancel()
		if ctx.Err() != nil {
			t.Error("what runs here stays behind")
		}
		if time.Sleep(startLimit + time.Second); ctx.Err() == nil {
			t.Error("a start without end")
		}
	})
}
