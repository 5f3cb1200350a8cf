//go:build systemdhost

package hosts

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	writerName = "writer"
	writePause = 5 * time.Millisecond
)

// write is the writer's main program: a service that appends to a ledger on the shared disk, for ever, each entry stamped
// with its token and synced. Around each it tells a second ledger, which is not the host's and which nothing that befalls the host
// can touch: that it is about to, and that it has.
func write(files []string) int {
	disk, err := os.OpenFile(files[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		defer disk.Close()
		var watched *os.File
		if watched, err = os.OpenFile(files[1], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err == nil {
			defer watched.Close()
			err = keepWriting(disk, watched)
		}
	}
	fmt.Fprintln(os.Stderr, "writer:", err)
	return 1
}

func keepWriting(disk, watched *os.File) error {
	token, node := os.Getenv("HAMGR_TOKEN"), os.Getenv("HAMGR_NODE")
	for n := 1; ; n++ {
		tell := func(what string) error {
			_, err := fmt.Fprintf(watched, "%s %s %s %d %d\n", what, token, node, n, monotonic())
			return err
		}
		err := tell("will")
		if err == nil {
			_, err = fmt.Fprintf(disk, "%s %s %d\n", token, node, n)
		}
		if err == nil {
			err = disk.Sync()
		}
		if err == nil {
			err = tell("did")
		}
		if err != nil {
			return err
		}
		time.Sleep(writePause)
	}
}

// monotonic is the kernel's clock that all hosts share.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// entry is one write.
type entry struct {
	token uint64
	node  string
	n     int
}

// witnessed is a line of the second ledger.
type witnessed struct {
	entry
	done bool
	at   time.Duration
}

func parseDisk(text string) (entries []entry, err error) {
	for line := range strings.Lines(text) {
		var e entry
		if _, bad := fmt.Sscanf(line, "%d %s %d\n", &e.token, &e.node, &e.n); bad != nil {
			err = errors.Join(err, fmt.Errorf("on the disk: %q: %w", line, bad))
		}
		entries = append(entries, e)
	}
	return entries, err
}

func parseWatched(text string) (lines []witnessed, err error) {
	for line := range strings.Lines(text) {
		var w witnessed
		var what string
		var at int64
		if _, bad := fmt.Sscanf(line, "%s %d %s %d %d\n", &what, &w.token, &w.node, &w.n, &at); bad != nil {
			err = errors.Join(err, fmt.Errorf("watched: %q: %w", line, bad))
		}
		w.done, w.at = what == "did", time.Duration(at)
		lines = append(lines, w)
	}
	return lines, err
}

// judge says what is wrong with the ledgers: two that wrote at a time, a token below an earlier one, a token on two
// nodes, a write that was acknowledged and is not on the disk.
func judge(disk []entry, watched []witnessed) error {
	var errs []error
	last := witnessed{}
	wrote := map[entry]int{}
	for i, w := range watched {
		switch {
		case w.token < last.token:
			errs = append(errs, fmt.Errorf("line %d: %+v after token %d", i+1, w, last.token))
		case w.token == last.token && w.node != last.node:
			errs = append(errs, fmt.Errorf("line %d: token %d on %s and on %s", i+1, w.token, last.node, w.node))
		case w.token == last.token && w.done && (last.done || w.n != last.n), // two writers with one token
			w.token == last.token && !w.done && (!last.done || w.n != last.n+1):
			errs = append(errs, fmt.Errorf("line %d: %+v after %+v", i+1, w, last))
		}
		last = w
		if w.done {
			wrote[w.entry]++
		}
	}
	before := entry{}
	for i, e := range disk {
		if e.token < before.token || e.token == before.token && (e.node != before.node || e.n != before.n+1) || e.token > before.token && e.n != 1 {
			errs = append(errs, fmt.Errorf("on the disk, line %d: %+v after %+v", i+1, e, before))
		}
		before = e
		delete(wrote, e)
	}
	if len(wrote) > 0 {
		errs = append(errs, fmt.Errorf("%d writes that were acknowledged are not on the disk", len(wrote)))
	}
	return errors.Join(errs...)
}

// judgeLedger judges what the writers have done until now, and gives the tokens in the order of their writes with the time
// between the last write of each and the first of the next.
func (l *lab) judgeLedger(t *testing.T, holder string) (tokens []uint64, pauses []time.Duration) {
	t.Helper()
	// The disk last: of what is watched then, all must be on it.
	text, err := os.ReadFile(l.watched() + "/ledger")
	if err != nil {
		t.Fatal(err)
	}
	text = text[:strings.LastIndexByte(string(text), '\n')+1]
	watched, err := parseWatched(string(text))
	if err != nil {
		t.Error(err)
	}
	onDisk := strings.TrimSuffix(l.host(holder).must(t, "cat /srv/data/ledger && printf end"), "end")
	onDisk = onDisk[:strings.LastIndexByte(onDisk, '\n')+1]
	disk, err := parseDisk(onDisk)
	if err != nil {
		t.Error(err)
	}
	if len(disk) == 0 || len(watched) == 0 {
		t.Fatalf("nothing was written: %d entries on the disk, %d watched", len(disk), len(watched))
	}
	if err := judge(disk, watched); err != nil {
		t.Errorf("the ledger: %v", err)
	}
	for i, w := range watched {
		if i == 0 || w.token != watched[i-1].token {
			tokens = append(tokens, w.token)
			if i > 0 {
				pauses = append(pauses, w.at-watched[i-1].at)
			}
		}
	}
	return tokens, pauses
}

// TestJudge: each thing that must not be is seen.
func TestJudge(t *testing.T) {
	const fine = "will 3 n1 1 10|did 3 n1 1 11|will 3 n1 2 12|will 5 n2 1 20|did 5 n2 1 21"
	for name, c := range map[string]struct {
		watched, disk string
		bad           bool
	}{
		"fine":                  {fine, "3 n1 1|5 n2 1", false},
		"more on the disk":      {fine, "3 n1 1|3 n1 2|5 n2 1", false},
		"lost":                  {fine, "5 n2 1", true},
		"an old token":          {fine + "|will 3 n1 3 22", "3 n1 1|5 n2 1", true},
		"an old token finishes": {fine + "|did 3 n1 2 22", "3 n1 1|5 n2 1", true},
		"one token, two nodes":  {fine + "|will 5 n3 2 22", "3 n1 1|5 n2 1", true},
		"two at once":           {fine + "|will 5 n2 2 22|will 5 n2 2 23", "3 n1 1|5 n2 1", true},
		"an old one, on disk":   {fine, "3 n1 1|5 n2 1|3 n1 2", true},
		"twice on the disk":     {fine, "3 n1 1|3 n1 1|5 n2 1", true},
	} {
		t.Run(name, func(t *testing.T) {
			watched, err := parseWatched(strings.ReplaceAll(c.watched, "|", "\n") + "\n")
			disk, err2 := parseDisk(strings.ReplaceAll(c.disk, "|", "\n") + "\n")
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			if err := judge(disk, watched); (err != nil) != c.bad {
				t.Error(err)
			}
		})
	}
}
