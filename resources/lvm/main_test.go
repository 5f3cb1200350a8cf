package lvm

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/guest"
)

// TestMain is the first process of a kernel of its own, too.
func TestMain(m *testing.M) {
	guest.First(m, "dm-mod", "dm-bufio", "dm-snapshot")
	goleak.VerifyTestMain(m)
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newGroup makes the resource as a daemon does that starts with the directory dir.
func newGroup(t testing.TB, dir string, change ...func(*Options)) *volumeGroup {
	t.Helper()
	o := Kind().Options().(*Options)
	o.VolumeGroup = "vg-x"
	for _, f := range change {
		f(o)
	}
	must(t, o.Validate())
	r, err := o.New(resources.Env{Group: "db", Resource: "disks", Node: "alpha", Boot: "b1", Token: 7, Dir: dir, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	return r.(*volumeGroup)
}

func inMode(mode string) func(*Options) { return func(o *Options) { o.Mode = mode } }

func wantState(t testing.TB, v *volumeGroup, want resources.State, words ...string) {
	t.Helper()
	state, detail, err := v.Probe(within(t, 20*time.Second))
	if state != want || err != nil {
		t.Errorf("probe: %s (%s), %v; want %s", state, detail, err, want)
	}
	for _, w := range words {
		if !strings.Contains(detail, w) {
			t.Errorf("probe: %q lacks %q", detail, w)
		}
	}
}

func wantErr(t testing.TB, err, is error, words ...string) {
	t.Helper()
	if err == nil || is != nil && !errors.Is(err, is) {
		t.Errorf("error %v, want one that is %v", err, is)
		return
	}
	for _, other := range []error{resources.ErrNode, resources.ErrSetup} {
		if other != is && errors.Is(err, other) {
			t.Errorf("error %v blames the wrong one", err)
		}
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q lacks %q", err, w)
		}
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o755))
}
