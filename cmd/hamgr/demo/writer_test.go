package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources/guard"
)

// writeAs has a writer with this token work until ctx ends.
func writeAs(ctx context.Context, t *testing.T, w Writer, token uint64) error {
	t.Helper()
	name := strconv.FormatUint(token, 10)
	t.Setenv("HAMGR_TOKEN", name)
	t.Setenv("HAMGR_NODE", "node"+name)
	t.Setenv("HAMGR_BOOT", "boot"+name)
	return w.Run(ctx)
}

// writeUntil runs the writer until so many lines of the token are in the file.
func writeUntil(t *testing.T, w Writer, token uint64, path string, lines int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			n := 0
			entries, _ := ReadLedger(path)
			for _, e := range entries {
				if e.Token == token {
					n++
				}
			}
			if n >= lines {
				cancel()
			}
			_ = pause(ctx, writeEvery/4)
		}
	}()
	if err := writeAs(ctx, t, w, token); err != nil || ctx.Err() == context.DeadlineExceeded {
		t.Fatalf("token %d: %v, %v", token, err, ctx.Err())
	}
}

func TestWriterIsRefusedByAHigherToken(t *testing.T) {
	dir := t.TempDir()
	w := Writer{Ledger: filepath.Join(dir, "ledger"), Refused: filepath.Join(dir, "refused"), Guard: dir}
	writeUntil(t, w, 4, w.Ledger, 2)
	writeUntil(t, w, 9, w.Ledger, 2)
	refused := (*guard.Refused)(nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := writeAs(ctx, t, w, 4); !errors.As(err, &refused) {
		t.Fatalf("an old token: %v", err)
	}
	w.Stubborn = true
	writeUntil(t, w, 4, w.Refused, 3)

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
