package guard

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func open(t *testing.T, dir string) *Guard {
	t.Helper()
	g, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestTokensOnlyGrow(t *testing.T) {
	g, ctx := open(t, t.TempDir()), t.Context()
	for _, step := range []struct {
		token   uint64
		highest uint64 // if refused
	}{{3, 0}, {3, 0}, {2, 3}, {7, 0}, {3, 7}, {6, 7}, {7, 0}, {maxToken, 0}, {7, maxToken}} {
		err := g.Check(ctx, "db", step.token)
		var r *Refused
		switch {
		case step.highest == 0 && err != nil:
			t.Errorf("token %d: %v", step.token, err)
		case step.highest != 0 && !errors.As(err, &r):
			t.Errorf("token %d: %v, want a refusal", step.token, err)
		case step.highest != 0 && *r != Refused{"db", step.token, step.highest}:
			t.Errorf("token %d: %+v", step.token, *r)
		}
	}
	if err := g.Check(ctx, "other", 1); err != nil {
		t.Errorf("another name has another record: %v", err)
	}
	if n, err := g.Highest("db"); n != maxToken || err != nil {
		t.Errorf("highest: %d %v", n, err)
	}
}

func TestUnusableTokensAndNames(t *testing.T) {
	dir := t.TempDir()
	g, ctx := open(t, dir), t.Context()
	for _, token := range []uint64{0, maxToken + 1, 1 << 63, 1<<64 - 1} {
		if err := g.Check(ctx, "db", token); !errors.Is(err, ErrToken) {
			t.Errorf("token %d: %v", token, err)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", maxName+1)} {
		if err := g.Check(ctx, name, 1); !errors.Is(err, ErrName) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if _, err := Open(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("open of a missing directory: %v", err)
	}
}

// Names that a path would give a meaning to stay names.
func TestOddNamesStayApart(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "guard")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	g := open(t, dir)
	odd := []string{"..", ".", "../x", "/etc/passwd", "a/b", "a%2fb", "a\nb", "a b", "\xff\xfe", ".hidden", "db.token", "db", strings.Repeat("/", maxName)}
	for i, name := range odd {
		if err := g.Check(t.Context(), name, uint64(i)+1); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for i, name := range odd {
		if n, err := g.Highest(name); n != uint64(i)+1 || err != nil {
			t.Errorf("%q: highest %d, %v; want %d", name, n, err, i+1)
		}
	}
	if outside, err := os.ReadDir(root); err != nil || len(outside) != 1 {
		t.Errorf("outside of the directory: %v %v", outside, err)
	}
}

func TestDamagedRecordRefusesEverything(t *testing.T) {
	dir := t.TempDir()
	g := open(t, dir)
	if err := g.Check(t.Context(), "db", 5); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "db.token")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string][]byte{"empty": {}, "zeroes": make([]byte, len(good)), "of another name": formatRecord("web", 5)}
	for i := range good {
		bad["cut at "+string(rune('a'+i))] = good[:i]
		flipped := append([]byte(nil), good...)
		flipped[i] ^= 1
		bad["flipped at "+string(rune('a'+i))] = flipped
	}
	for what, content := range bad {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, h := range []*Guard{g, open(t, dir)} {
			for _, token := range []uint64{1, 5, 9} {
				if err := h.Check(t.Context(), "db", token); !errors.Is(err, ErrDamaged) {
					t.Errorf("record %s, token %d: %v", what, token, err)
				}
			}
		}
	}
}

// A higher token is recorded at once, but its write waits for the one that runs.
func TestHigherTokenWaitsForTheRunningWrite(t *testing.T) {
	dir := t.TempDir()
	running, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	var mu sync.Mutex
	var order []string
	log := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, s)
	}
	wg.Go(func() {
		err := open(t, dir).Do(t.Context(), "db", 1, func() error {
			close(running)
			<-end
			log("old ended")
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-running
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	g := open(t, dir)
	if err := g.Do(short, "db", 2, func() error { log("new too early"); return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("write beside a lower token's: %v", err)
	}
	var r *Refused
	if err := g.Check(t.Context(), "db", 1); !errors.As(err, &r) {
		t.Errorf("lower token while the higher one waits: %v", err)
	}
	// The second of the new token must wait too, although its token is recorded already.
	if err := open(t, dir).Check(short, "db", 2); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second writer of the new token: %v", err)
	}
	wg.Go(func() {
		if err := g.Do(t.Context(), "db", 2, func() error { log("new"); return nil }); err != nil {
			t.Error(err)
		}
	})
	close(end)
	wg.Wait()
	if got := strings.Join(order, ", "); got != "old ended, new" {
		t.Errorf("order: %s", got)
	}
}

func TestSameTokenShares(t *testing.T) {
	g := open(t, t.TempDir())
	err := g.Do(t.Context(), "db", 4, func() error {
		return g.Do(t.Context(), "db", 4, func() error { return nil })
	})
	if err != nil {
		t.Error(err)
	}
}

func TestErrorOfTheWriteComesBack(t *testing.T) {
	want := errors.New("disk full")
	if err := open(t, t.TempDir()).Do(t.Context(), "db", 4, func() error { return want }); err != want {
		t.Error(err)
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(formatRecord("db", 5))
	f.Add(formatRecord("a\n\"\xff b", maxToken))
	f.Add([]byte("hamgr-token/1 \"db\" 5 00000000\n"))
	f.Add([]byte("hamgr-token/1 `db` 5 "))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		name, token, err := parseRecord(b)
		if err != nil {
			if token != 0 || name != "" {
				t.Errorf("a damaged record says %q %d", name, token)
			}
			return
		}
		if got := formatRecord(name, token); string(got) != string(b) {
			t.Errorf("%q is read as %q %d", b, name, token)
		}
	})
}

func FuzzFileName(f *testing.F) {
	f.Add("db", "DB")
	f.Add("a/b", "a%2fb")
	f.Add("..", ".")
	f.Fuzz(func(t *testing.T, a, b string) {
		fa, errA := fileName(a)
		fb, errB := fileName(b)
		if errA != nil || errB != nil {
			return
		}
		if (fa == fb) != (a == b) {
			t.Errorf("%q and %q: %q and %q", a, b, fa, fb)
		}
		if strings.ContainsAny(fa, "/.\x00") || len(fa)+len(recordSuffix)+len(".new") > 255 {
			t.Errorf("%q: file name %q", a, fa)
		}
	})
}

func BenchmarkDo(b *testing.B) {
	g, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := g.Do(b.Context(), "db", 7, func() error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
