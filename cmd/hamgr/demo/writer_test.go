package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources/guard"
)

// writeFor lets a writer with this token work for a while.
func writeFor(t *testing.T, w Writer, token string, d time.Duration) error {
	t.Helper()
	t.Setenv("HAMGR_TOKEN", token)
	t.Setenv("HAMGR_NODE", "node"+token)
	t.Setenv("HAMGR_BOOT", "boot"+token)
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return w.Run(ctx)
}

func TestWriterIsRefusedByAHigherToken(t *testing.T) {
	dir := t.TempDir()
	w := Writer{Ledger: filepath.Join(dir, "ledger"), Refused: filepath.Join(dir, "refused"), Guard: dir}
	for _, token := range []string{"4", "9"} {
		if err := writeFor(t, w, token, 100*time.Millisecond); err != nil {
			t.Fatalf("token %s: %v", token, err)
		}
	}
	refused := (*guard.Refused)(nil)
	if err := writeFor(t, w, "4", 10*time.Second); !errors.As(err, &refused) {
		t.Fatalf("an old token: %v", err)
	}
	w.Stubborn = true
	if err := writeFor(t, w, "4", 100*time.Millisecond); err != nil {
		t.Fatalf("a stubborn writer gave up: %v", err)
	}

	entries, err := ReadLedger(w.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	v := Judge(entries)
	if v.Writes < 4 || len(v.Overlaps) != 0 || entries[0].Token != 4 || entries[len(entries)-1].Token != 9 {
		t.Errorf("ledger: %v", entries)
	}
	stale, err := ReadLedger(w.Refused)
	if err != nil || len(stale) < 3 {
		t.Errorf("refused: %v, %v", stale, err)
	}
}

func TestWriterNeedsToKnowWhoItIs(t *testing.T) {
	w := Writer{Ledger: filepath.Join(t.TempDir(), "ledger"), Guard: t.TempDir()}
	if err := w.Run(t.Context()); err == nil {
		t.Error("a writer without a token wrote")
	}
	t.Setenv("HAMGR_TOKEN", "1")
	if err := w.Run(t.Context()); err == nil {
		t.Error("a writer without a node wrote")
	}
	if _, err := os.Stat(w.Ledger); err == nil {
		t.Error("there is a ledger")
	}
}
