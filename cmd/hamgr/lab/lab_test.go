package lab

import (
	"context"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStoriesDriveTheProduct: quorum, lease, token and stonith run what the daemon runs. An import that is not used does
// not compile.
func TestStoriesDriveTheProduct(t *testing.T) {
	for file, packages := range map[string][]string{
		"quorum.go":  {"cluster/consensus"},
		"voters.go":  {"cluster/consensus", "cluster/link", "cluster/link/linktest"},
		"stage.go":   {"resources", "resources/fake"},
		"token.go":   {"resources/guard"},
		"stonith.go": {"stonith", "agents", "agents/fake", "resources/fake"},
	} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		imported := map[string]bool{}
		for _, i := range parsed.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			imported[path] = true
		}
		for _, p := range packages {
			if !imported["github.com/hamgr/hamgr/"+p] {
				t.Errorf("%s does not use %s: it would show a copy of what it is about", file, p)
			}
		}
	}
}

// TestSameEachTime: two runs of everything tell the same, and leave nothing behind.
func TestSameEachTime(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	first, err := All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(first, second) {
		t.Errorf("once:\n%+v\nand again:\n%+v", first, second)
	}
	if len(first) != len(subjects)+2 {
		t.Errorf("%d stories, of %d, two of them in both ways", len(first), len(subjects))
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestReadOn: what a rule points to is there.
func TestReadOn(t *testing.T) {
	for _, s := range Stories() {
		for _, file := range s.Rule.Read {
			if _, err := os.Stat(filepath.Join("../../..", file)); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
		if len(s.Rule.Read) == 0 || s.Title == "" {
			t.Errorf("%s: %+v", s.Name, s)
		}
	}
}

// TestBusyMachine: where the votes cannot come in time the story is not told wrongly, but not told.
func TestBusyMachine(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := Run(ctx, "quorum", false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended with %v", err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("took %s to end", took)
	}
	if _, err := Run(ctx, "stonith", false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended with %v", err)
	}
}

func TestNoSuchStory(t *testing.T) {
	if _, err := Run(t.Context(), "paxos", false); err == nil {
		t.Error("told")
	}
	if _, err := Run(t.Context(), "lease", true); err == nil || Cuts("lease") || !Cuts("ring") {
		t.Error("a lease has no side")
	}
}
