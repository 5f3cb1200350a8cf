package sim

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	tortureFor = flag.Duration("torture", 0, "for how long clusters are tortured; 0 is one short story of each shape")
	shrinkFor  = flag.Duration("shrink", 3*time.Minute, "how long a shorter story that fails is looked for, at most")
	tableFile  = flag.String("table", "", "a file for the table of what happened under which fault")
	storyFile  = flag.String("story", "", "a story that TestTortureReplay tells")
	workDir    = flag.String("torture-work", "", "of TestTortureWork, which TestTorture runs")
	sideways   = flag.Int("workers", runtime.NumCPU(), "how many stories are told at the same time")
)

// TestTorture tells stories until the time is over: clusters of all shapes, and all faults that there are, mixed without pause. Each is
// told in a process of its own kind, TestTortureWork, so that what hangs or panics is a failure with a story, too.
func TestTorture(t *testing.T) {
	if *tortureFor == 0 {
		first := beginSeed()
		for shape := range shapes {
			s := drawStory(first+uint64(shape), shape, 12)
			t.Run(fmt.Sprint(s.Seed), func(t *testing.T) {
				tell(t, s)
				if t.Failed() {
					t.Logf("%s", s.json())
				}
			})
		}
		return
	}
	began, all := time.Now(), newCoverage()
	var wg sync.WaitGroup
	results := make([]work, *sideways)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for i := range results {
		wg.Go(func() {
			if results[i] = sendToWork(ctx, t, i, began.Add(*tortureFor)); results[i].err != nil {
				end() // one failure is enough
			}
		})
	}
	wg.Wait()
	stories := 0
	for _, w := range results {
		if w.Coverage != nil {
			all.add(w.Coverage)
			stories += w.Stories
		}
	}
	took := time.Since(began)
	t.Logf("%d faults in %d stories, %d entries of logs, in %s by %d processes: %.1f faults a second", all.Faults, stories, all.Entries, took.Round(time.Second), *sideways, float64(all.Faults)/took.Seconds())
	t.Logf("what happened under which fault:\n%s", all.table())
	if *tableFile != "" {
		if err := os.WriteFile(*tableFile, []byte(all.table()), 0o644); err != nil {
			t.Error(err)
		}
	}
	for _, w := range results {
		if w.err != nil {
			failing(t, w)
			return
		}
	}
	if cells := all.empty(); len(cells) > 0 && all.Faults >= enough {
		t.Errorf("%d cells of the table are empty: %s", len(cells), strings.Join(cells, "; "))
	} else if len(cells) > 0 {
		t.Logf("%d cells of the table are empty, after few faults: %s", len(cells), strings.Join(cells, "; "))
	}
}

// enough faults are those after which no cell of the table may be empty: six minutes of two cores.
const enough = 15_000

// work is what one process did.
type work struct {
	Stories  int       `json:"stories"`
	Coverage *coverage `json:"coverage"`

	err    error
	story  story // at which it ended
	output string
}

const (
	workResult = "result.json"
	workStory  = "story.json"
)

// longestStory is the wall-clock time after which a story counts as hung.
const longestStory = 5 * time.Minute

// sendToWork has a process tell stories until the time is over, or one fails.
func sendToWork(ctx context.Context, t *testing.T, number int, until time.Time) (w work) {
	dir := t.TempDir()
	seed := beginSeed() + uint64(number)*1_000_000
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestTortureWork$", "-torture-work", dir, "-torture", time.Until(until).String(),
		"-seed", fmt.Sprint(seed), "-test.timeout", (time.Until(until) + 2*longestStory).String())
	out, err := cmd.CombinedOutput()
	if w.output = string(out); ctx.Err() == nil {
		w.err = err
	}
	for file, v := range map[string]any{workResult: &w, workStory: &w.story} {
		if b, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
			_ = json.Unmarshal(b, v)
		}
	}
	return w
}

// TestTortureWork is one process of TestTorture.
func TestTortureWork(t *testing.T) {
	if *workDir == "" {
		return // nobody sent it
	}
	put := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(*workDir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all := work{Coverage: newCoverage()}
	for began := time.Now(); time.Since(began) < *tortureFor; all.Stories++ {
		s := drawStory(*firstSeed+uint64(all.Stories), int(*firstSeed)+all.Stories, 30+int(*firstSeed+uint64(all.Stories))%31)
		put(workStory, s.json())
		hung := time.AfterFunc(longestStory, func() { panic(fmt.Sprintf("the story of seed %d is not over after %s", s.Seed, longestStory)) })
		ok := t.Run(fmt.Sprint(s.Seed), func(t *testing.T) { all.Coverage.add(tell(t, s)) })
		hung.Stop()
		b, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		if put(workResult, b); !ok {
			return
		}
	}
}

// failing shows the shortest story that still fails.
func failing(t *testing.T, w work) {
	t.Errorf("seed %d fails, after %d events:\n%s", w.story.Seed, len(w.story.Events), gist(w.output, 20))
	if len(w.story.Events) == 0 {
		return
	}
	dir, err := os.MkdirTemp("", "torture.")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "story.json")
	keep := func(s story) {
		if err := os.WriteFile(file, s.json(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	keep(w.story)
	last := w.output
	shortest := w.story.shrink(time.Now().Add(*shrinkFor), func(s story) bool {
		candidate := filepath.Join(dir, "candidate.json")
		if err := os.WriteFile(candidate, s.json(), 0o644); err != nil {
			t.Fatal(err)
		}
		for range 3 { // chance has a part in it: goroutines run in any order
			if out, failed := replay(t, candidate); failed {
				last = out
				keep(s)
				return true
			}
		}
		return false
	})
	t.Errorf("the shortest story that fails has %d events of %d:\n%s\n\n%s\nagain: go test -run TestTortureReplay ./e2e/sim -story %s",
		len(shortest.Events), len(w.story.Events), shortest.json(), gist(last, 60), file)
}

// replay tells a story in a process of its own.
func replay(t *testing.T, file string) (output string, failed bool) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestTortureReplay$", "-story", file, "-test.timeout", longestStory.String())
	out, err := cmd.CombinedOutput()
	return string(out), err != nil
}

// TestTortureReplay tells the story in a file: go test -run TestTortureReplay ./e2e/sim -story FILE
func TestTortureReplay(t *testing.T) {
	if *storyFile == "" {
		return // there is nothing to tell
	}
	b, err := os.ReadFile(*storyFile)
	if err != nil {
		t.Fatal(err)
	}
	var s story
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	tell(t, s)
}

// gist is what failed, and what was done before that; and the last lines of the hosts' logs.
func gist(output string, lines int) string {
	what, rest, reported := strings.Cut(output, "state: {")
	if !reported {
		what, rest = "", output
	}
	all := strings.Split(rest, "\n")
	return what + "\n...\n" + strings.Join(all[max(0, len(all)-lines):], "\n")
}
