package netns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// logFile is where a node keeps its log, below its data folder.
func (h *host) logFile() (string, error) {
	var found string
	err := filepath.WalkDir(h.data(), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == "log.db" {
			found = path
		}
		return err
	})
	if err == nil && found == "" {
		err = fmt.Errorf("no log.db in %s", h.data())
	}
	return found, err
}

// empty removes all that the host has on its disk.
func (h *host) empty() error {
	entries, err := os.ReadDir(h.data())
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(h.data(), e.Name())))
	}
	return err
}

const damaged = "the stored log is damaged"

// TestDamage: what a node finds on its disk after a boot is not what it left there. It goes on as a new voter where that is
// safe by itself; where it cannot know, it says what is wrong and what to do, and after that was done it is in again. The
// others never notice but that it is away.
func TestDamage(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	t.Parallel()
	l := newCluster(t, shape{members: 3, prefer: map[string][]string{theGroup: {"n1", "n2"}}})
	h := l.hosts["n3"]
	before := l.writes(theGroup)
	old := l.file("old")
	for _, c := range []struct {
		name   string
		damage func(log string) error
		says   string // where it does not go on by itself: what is wrong; it also says what to do
	}{
		{"wiped", func(string) error { return h.empty() }, ""},
		{"copied", func(string) error { return os.CopyFS(old, os.DirFS(h.data())) }, ""}, // for the next one
		{"rolled back", func(string) error { return errors.Join(h.empty(), os.CopyFS(h.data(), os.DirFS(old))) }, "restored from an older copy"},
		{"cut short", func(log string) error { return os.Truncate(log, 5000) }, damaged},
		{"with other bits", func(log string) error {
			b, err := os.ReadFile(log)
			for i := 0; i < len(b); i += 512 {
				b[i+random.IntN(512)] ^= 1 << random.IntN(8)
			}
			return errors.Join(err, os.WriteFile(log, b, 0o600))
		}, damaged},
		{"unreadable", func(log string) error { return errors.Join(os.Remove(log), os.Mkdir(log, 0o700)) }, damaged},
		{"without its log", func(log string) error { return os.Remove(log) }, damaged},
		{"without its identity", func(string) error {
			var errs []error
			all, err := filepath.Glob(filepath.Join(h.data(), "identity*"))
			for _, f := range all {
				errs = append(errs, os.Remove(f))
			}
			if len(all) == 0 {
				err = errors.Join(err, errors.New("there is none"))
			}
			return errors.Join(append(errs, err)...)
		}, damaged},
	} {
		if err := h.off(); err != nil {
			t.Fatal(err)
		}
		log, err := h.logFile()
		if err == nil {
			err = c.damage(log)
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		l.commits(3) // what it does not know of
		from := h.said()
		l.powerOn("n3")
		if c.says != "" {
			l.until(patience, c.name+": its daemon says so", func(context.Context) error {
				if said := h.said()[len(from):]; !strings.Contains(said, "hamgr: ") || !strings.Contains(said, c.says) {
					return fmt.Errorf("its log: %s", said)
				}
				return nil
			})
			said := h.said()[len(from):]
			t.Logf("%s: %s", c.name, said[strings.Index(said, "hamgr: "):])
			if !strings.Contains(said, "empty "+h.data()) && !strings.Contains(said, "move it away") {
				t.Errorf("%s: nobody says what to do", c.name)
			}
			if err := errors.Join(h.off(), h.empty()); err != nil {
				t.Fatal(err)
			}
			l.powerOn("n3")
		}
		l.settled(c.name+", and in again", l.names...)
		if after := l.writes(theGroup); after.PID != before.PID || after.Token != before.Token {
			t.Fatalf("%s: not the same process writes: %v, then %v", c.name, before, after)
		}
	}
	l.noShot()
	l.judge()
}

// said is the daemon's log so far.
func (h *host) said() string {
	text, _ := os.ReadFile(h.l.file(h.name + ".log"))
	return string(text)
}

// commits puts entries into the log.
func (l *lab) commits(n int) {
	l.t.Helper()
	for range n {
		for _, what := range []string{"on", "off"} {
			if out, status := l.hamgr("n1", "maintenance", what); status != 0 {
				l.t.Fatalf("maintenance %s: status %d: %s", what, status, out)
			}
		}
	}
}
