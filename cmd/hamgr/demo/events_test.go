package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEventsFollowsAFileThatGrows(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	path := filepath.Join(t.TempDir(), "log")
	ev := follow(map[string]string{"alpha": path})
	defer ev.Close()

	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	write := func(text string) {
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"time":"2026-01-02T03:04:05.5Z","level":"WARN","msg":"node dead","node":"beta","token":18446744073709551615}` + "\n" + `{"time":"2026-`)
	first, err := ev.Await(ctx, "the first line", func(e Event) bool { return e.Message == "node dead" })
	if err != nil {
		t.Fatal(err)
	}
	want := time.Date(2026, 1, 2, 3, 4, 5, 5e8, time.UTC)
	if !first.At.Equal(want) || first.Observer != "alpha" || first.Level != "WARN" || first.Text("node") != "beta" || first.Uint("token") != 1<<64-1 {
		t.Errorf("read as %+v", first)
	}
	if first.Text("none") != "" || first.Uint("none") != 0 || first.Uint("node") != 0 {
		t.Error("an attribute that is not there has a value")
	}
	write(`01-02T03:04:06Z","msg":"node joined"}` + "\npanic: not JSON\n")
	if _, err := ev.Await(ctx, "the line in two parts", func(e Event) bool { return e.Message == "node joined" }); err != nil {
		t.Fatal(err)
	}
	if _, err := ev.Await(ctx, "the panic", func(e Event) bool { return e.line == "panic: not JSON" }); err != nil {
		t.Fatal(err)
	}
	if tail := ev.Tail(2); strings.Contains(tail, "node dead") || !strings.Contains(tail, "node joined") || !strings.Contains(tail, "panic") {
		t.Errorf("tail: %s", tail)
	}

	short, cancelShort := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancelShort()
	if _, err := ev.Await(short, "nothing", func(Event) bool { return false }); !errors.Is(err, errNotSeen) {
		t.Errorf("waiting for what never comes: %v", err)
	}
}

func FuzzParseEvent(f *testing.F) {
	f.Add(`{"time":"2026-01-02T03:04:05.5Z","level":"WARN","msg":"node dead","node":"beta","token":7}`)
	f.Add(`{"time":5,"level":{},"msg":null,"token":"7"}`)
	f.Add(`panic: runtime error`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, line string) {
		e := parseEvent("alpha", line)
		e.Uint("token")
		e.Text("node")
		if e.line != line || e.Observer != "alpha" {
			t.Errorf("%q was changed to %q", line, e.line)
		}
	})
}
