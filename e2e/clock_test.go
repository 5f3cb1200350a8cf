package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// wallClock are the few places of cluster and stonith that look at the wall clock, or make or read a time of it.
var wallClock = map[string]string{
	"cluster/node/status.go":             "what is shown",
	"cluster/node/keys.go":               "whether a file is another one than before",
	"cluster/node/clock.go":              "that it stepped, for the log",
	"cluster/node/apply.go":              "failback's part of the day, as the coordinator's plan has it",
	"cluster/coordinator/watch.go":       "failback's part of the day: it moves what runs well, and decides nothing else",
	"cluster/coordinator/coordinator.go": "Command.At, for display",
	"cluster/link/identity.go":           "certificates are valid whatever the clock says",
	"cluster/consensus/join.go":          "a deadline that has passed whatever the clock says",
}

var readsWallClock = regexp.MustCompile(`\.(Unix|UnixMilli|UnixMicro|UnixNano|Hour)\(|time\.(Unix|UnixMilli|UnixMicro|Date)\(|CLOCK_REALTIME|\.Round\(0\)`)

// TestWallClockDecidesNothing: steps of the wall clock change nothing, because nothing that decides looks at it. Times that
// time.Now gives are compared by their monotonic reading, as long as they stay in the process.
func TestWallClockDecidesNothing(t *testing.T) {
	found := map[string]bool{}
	for _, tree := range []string{"cluster", "stonith"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, d os.DirEntry, err error) error {
			name := strings.TrimPrefix(filepath.ToSlash(path), "../")
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "cluster/config/") {
				return err
			}
			text, err := os.ReadFile(path)
			if clock := readsWallClock.Find(text); clock != nil {
				found[name] = true
				if wallClock[name] == "" {
					t.Errorf("%s looks at the wall clock: %s", name, clock)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range wallClock {
		if !found[name] {
			t.Errorf("%s no longer looks at the wall clock: take it off the list", name)
		}
	}
}
