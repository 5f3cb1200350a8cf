package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cmd/hamgr/demo"
)

// event is a line of a daemon's log.
type event struct {
	Time                           time.Time
	Msg, Node, Boot, Group, Reason string
	Op, Token                      uint64
	on                             string // whose log it is
}

func (e event) String() string {
	return fmt.Sprintf("%s %s: %s node=%s group=%s token=%d op=%d %s", e.Time.Format("15:04:05.000"), e.on, e.Msg, e.Node, e.Group, e.Token, e.Op, e.Reason)
}

// events are the lines of all logs that match, in the order of their times: all daemons share the machine's clock, or what
// theirs was stepped by is known.
func (l *lab) events(match func(event) bool) (all []event) {
	l.t.Helper()
	for _, name := range l.names {
		text, err := os.ReadFile(l.file(name + ".log"))
		if err != nil {
			l.t.Fatal(err)
		}
		at := 0
		for line := range bytes.Lines(text) {
			e := event{on: name}
			if json.Unmarshal(line, &e) == nil && match(e) {
				e.Time = e.Time.Add(-l.hosts[name].guest.steppedBefore(at))
				all = append(all, e)
			}
			at += len(line)
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return a.Time.Compare(b.Time) })
	return all
}

// said gives the lines with this message.
func (l *lab) said(msg string) []event {
	l.t.Helper()
	return l.events(func(e event) bool { return e.Msg == msg })
}

// shots are the fencings that were ordered.
func (l *lab) shots() []event {
	l.t.Helper()
	return l.said("fencing ordered")
}

// noShot: nobody was shot, and no power was touched.
func (l *lab) noShot() {
	l.t.Helper()
	if shots := l.shots(); len(shots) > 0 {
		l.t.Errorf("shots: %v", shots)
	}
	if commands := l.device.commands(); len(commands) > 0 {
		l.t.Errorf("power was switched: %+v", commands)
	}
}

// ledger is what was written for a group so far.
func (l *lab) ledger(group string) []demo.Entry {
	l.t.Helper()
	return l.entries(group + ".ledger")
}

// entries are those of a file of writes, up to the last whole line.
func (l *lab) entries(file string) (entries []demo.Entry) {
	l.t.Helper()
	text, err := os.ReadFile(l.file(file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.t.Fatal(err)
	}
	for line := range strings.Lines(string(text[:bytes.LastIndexByte(text, '\n')+1])) {
		e, err := demo.ParseEntry(strings.TrimSuffix(line, "\n"))
		if err != nil {
			l.t.Fatal(err)
		}
		if h := l.hosts[e.Node]; h != nil && h.guest != nil {
			e.Mono += uint64(h.guest.younger)
		}
		entries = append(entries, e)
	}
	return entries
}

// last is a group's newest entry.
func (l *lab) last(group string) demo.Entry {
	l.t.Helper()
	entries := l.ledger(group)
	if len(entries) == 0 {
		l.t.Fatalf("nobody has written for %s", group)
	}
	return entries[len(entries)-1]
}

// writes waits until a group's ledger grows, and gives the entry.
func (l *lab) writes(group string) (e demo.Entry) {
	l.t.Helper()
	before := len(l.ledger(group))
	l.until(patience, "writes for "+group, func(context.Context) error {
		if len(l.ledger(group)) == before {
			return errors.New("there are none")
		}
		return nil
	})
	return l.last(group)
}

// judge reads from ledgers, logs and the device whether what must hold beside the rules of a history has held: no write is
// missing, each shot was ordered once, and no two opposite commands were at work at once.
func (l *lab) judge() {
	l.t.Helper()
	for _, g := range l.groups {
		entries := l.ledger(g)
		if len(entries) == 0 {
			l.t.Errorf("nothing was written for %s", g)
		}
		if lost := demo.Judge(entries).Lost; len(lost) > 0 {
			l.t.Errorf("%s: writes missing or repeated: %v", g, lost)
		}
	}
	ordered := map[uint64]event{}
	for _, e := range l.shots() {
		if first, again := ordered[e.Op]; again {
			l.t.Errorf("operation %d was ordered twice: %v and %v", e.Op, first, e)
		}
		ordered[e.Op] = e
	}
	if err := opposite(l.device.commands()); err != nil {
		l.t.Error(err)
	}
	for _, name := range l.names {
		text, err := os.ReadFile(l.file(name + ".log"))
		for _, bad := range []string{"\npanic: ", "WARNING: DATA RACE", "\nfatal error: "} {
			if err != nil || bytes.Contains(text, []byte(bad)) {
				l.t.Errorf("%s: %v %q in its log", name, err, bad)
			}
		}
	}
}

// hamgr is an operator at a node's command line.
func (l *lab) hamgr(node string, args ...string) (out string, status int) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, hamgr, append([]string{"--socket", l.hosts[node].socket()}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		l.t.Logf("hamgr %s: status %d: %s", strings.Join(args, " "), exit.ExitCode(), strings.TrimSpace(stderr.String()))
		return stdout.String(), exit.ExitCode()
	} else if err != nil {
		l.t.Fatal(err)
	}
	return stdout.String(), 0
}

// history is what `hamgr fence history` tells on a node.
func (l *lab) history(node string) (h api.FenceHistory) {
	l.t.Helper()
	out, status := l.hamgr(node, "fence", "history", "--json")
	if status != 0 {
		l.t.Fatalf("hamgr fence history ended with status %d: %s", status, out)
	}
	if err := json.Unmarshal([]byte(out), &h); err != nil {
		l.t.Fatalf("%v in %s", err, out)
	}
	return h
}

// screen is what `hamgr status` shows on a node.
func (l *lab) screen(node string) string {
	l.t.Helper()
	out, _ := l.hamgr(node, "status") // its exit status tells of problems
	return out
}

// tellAll shows what a failed test needs.
func (l *lab) tellAll() {
	for _, name := range l.names {
		text, _ := os.ReadFile(l.file(name + ".log"))
		lines := strings.SplitAfter(string(text), "\n")
		l.t.Logf("---- log of %s\n%s", name, strings.Join(lines[max(0, len(lines)-80):], ""))
	}
	for _, c := range l.device.commands() {
		l.t.Logf("---- %s %s by %s, %s to %s", c.action, c.node, c.by, c.began.Format("15:04:05.000"), c.ended.Format("15:04:05.000"))
	}
}
