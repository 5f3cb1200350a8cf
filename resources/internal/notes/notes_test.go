package notes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWriteReadRemove(t *testing.T) {
	dir := t.TempDir()
	if b, err := Read(dir, "a"); b != nil || err != nil {
		t.Errorf("there is none: %q %v", b, err)
	}
	for _, v := range []string{"first", "second"} {
		if err := Write(dir, "a", v); err != nil {
			t.Fatal(err)
		}
		if b, err := Read(dir, "a"); string(b) != `"`+v+`"` || err != nil {
			t.Errorf("%q %v", b, err)
		}
	}
	// An empty one is there: it says that something was done.
	if err := os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := Read(dir, "empty"); b == nil || err != nil {
		t.Errorf("an empty record is taken for none: %v", err)
	}
	for range 2 {
		if err := Remove(dir, "a"); err != nil {
			t.Error(err)
		}
	}
	if b, err := Read(dir, "a"); b != nil || err != nil {
		t.Errorf("removed: %q %v", b, err)
	}
	if _, err := Read(dir, "."); err == nil {
		t.Error("a directory is taken for a record")
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	held, err := Lock(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := Lock(ctx, dir); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("locked twice: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		f, err := Lock(t.Context(), dir)
		if err == nil {
			f.Close()
		}
		done <- err
	}()
	held.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := Lock(t.Context(), filepath.Join(dir, "none")); err == nil {
		t.Error("locked in a directory that is not there")
	}
}
