package netns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cmd/hamgr/demo"
)

// apply has the cluster go by a configuration, at a node, and waits until all run with it. It gives the exit status.
func (l *lab) apply(node string, c conf) (out string, status int) {
	l.t.Helper()
	path := l.file("wanted.toml")
	if err := os.WriteFile(path, []byte(l.toml(c)), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return l.hamgr(node, "config", "apply", path, "--yes", "--json", "--timeout", patience.String())
}

// applied is apply where it has to succeed: then every host's file is the cluster's, and differs in nothing.
func (l *lab) applied(node string, c conf) {
	l.t.Helper()
	if out, status := l.apply(node, c); status != 0 {
		l.t.Fatalf("config apply on %s: status %d: %s", node, status, out)
	}
	l.settledAs(c)
	for _, name := range c.names {
		l.until(patience, "the file of "+name+" follows", func(context.Context) error {
			if text, err := os.ReadFile(l.hosts[name].config()); err != nil || string(text) != l.toml(c) {
				return fmt.Errorf("it has %d bytes, not %d, %v", len(text), len(l.toml(c)), err)
			}
			return nil
		})
		if out, status := l.hamgr(name, "config", "diff", l.hosts[name].config()); status != 0 {
			l.t.Errorf("config diff on %s: status %d: %s", name, status, out)
		}
	}
}

// settledAs waits until the nodes of a configuration are in.
func (l *lab) settledAs(c conf) {
	l.t.Helper()
	l.settled("the nodes of the configuration are in", c.names...)
}

// refused is apply where it must not succeed; the words have to be there.
func (l *lab) refused(node string, c conf, words ...string) {
	l.t.Helper()
	out, status := l.apply(node, c)
	var told struct {
		Applied bool
		Refused []struct{ Key, Message, Cure string }
	}
	if err := json.Unmarshal([]byte(out), &told); err != nil {
		l.t.Fatalf("%v in %q", err, out)
	}
	if status != unsafe || told.Applied || len(told.Refused) == 0 {
		l.t.Errorf("config apply: status %d: %s", status, out)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			l.t.Errorf("refused without the word %q: %s", w, out)
		}
	}
}

// steady: one process has written for the group since an entry, and never stood still for longer.
func (l *lab) steady(since demo.Entry, longest time.Duration) {
	l.t.Helper()
	l.writes(theGroup)
	entries := l.ledger(theGroup)
	i := slices.Index(entries, since)
	last := since
	for _, e := range entries[i+1:] {
		if e.PID != since.PID || e.Token != since.Token {
			l.t.Fatalf("not the same process writes: %v, then %v", since, e)
		}
		if gap := time.Duration(e.Mono - last.Mono); gap > longest {
			l.t.Errorf("no write for %v, between %v and %v", gap, last, e)
		}
		last = e
	}
}

// TestB31Changes: random changes of the configuration, by any node: what runs never notices. Some of them are refused,
// with the figures; then everything is as before.
func TestB31Changes(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 3})
	changes := 8
	if *long {
		changes = 50
	}
	first := l.writes(theGroup)
	c, random := l.conf, rand.New(rand.NewPCG(31, uint64(changes)))
	for i := range changes {
		next := c
		next.detection = []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}[random.IntN(3)]
		next.cluster = fmt.Sprintf("storm_window = \"0s\"\nquarantine_window = \"0s\"\nrehearsal_age = \"%dh\"\n", 1+random.IntN(1000))
		next.group = fmt.Sprintf("weight = %d\nrestarts = %d\nrestart_window = \"%ds\"\nfailure_expiry = \"%dm\"\n", 1+random.IntN(9), random.IntN(4), 60+random.IntN(1000), 1+random.IntN(100))
		if random.IntN(2) == 0 {
			next.group += "prefer = [\"n3\", \"n2\"]\n"
		}
		by := next.names[random.IntN(len(next.names))]
		switch i % 4 {
		case 1: // a daemon dies in the middle
			killed := next.names[random.IntN(len(next.names))]
			after, died := time.Duration(random.IntN(1500))*time.Millisecond, make(chan error, 1)
			go func() {
				time.Sleep(after)
				died <- errors.Join(l.hosts[killed].kill(), l.hosts[killed].restart())
			}()
			if out, status := l.apply(by, next); status != 0 { // its asker may have been that daemon
				t.Logf("with %s killed, on %s: status %d: %s", killed, by, status, out)
			}
			if err := <-died; err != nil {
				t.Fatalf("%s: %v", killed, err)
			}
			l.until(patience, by+" answers", func(ctx context.Context) error {
				s, err := l.status(ctx, by)
				if err == nil && !s.Quorate {
					err = errors.New("there is no quorum")
				}
				return err
			})
		case 3:
			bad := next // without the node that holds the group
			bad.names = l.others(l.last(theGroup).Node)
			l.refused(by, bad, l.last(theGroup).Node, theGroup)
		}
		l.applied(by, next)
		c = next
		if t.Failed() {
			t.Fatalf("change %d: %+v", i, c)
		}
	}
	l.steady(first, time.Second*time.Duration(slowness))
	l.noShot()
	l.judge()
}

// TestConfigNodes: a fourth node comes into a running cluster, and goes again, and one changes an address. Nothing that
// runs notices; the one that went says so.
func TestConfigNodes(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 3, spare: true, prefer: map[string][]string{theGroup: {"n1", "n2", "n3"}}})
	first := l.writes(theGroup)
	three, four := l.conf, l.conf
	four.names = l.names

	// The daemon starts with the new file while the cluster does not know it yet.
	if err := os.WriteFile(l.hosts["n4"].config(), []byte(l.toml(four)), 0o600); err != nil {
		t.Fatal(err)
	}
	l.powerOn("n4")
	l.applied("n2", four)
	l.tolerates("n4", 1)

	l.wires.set(func(f frame) fate { return fate{lost: f.of("n4")} })
	l.until(patience, "n4 is missed", func(ctx context.Context) error {
		if s, err := l.status(ctx, "n1"); err != nil || nodeOf(s, "n4").State != "dead" {
			return fmt.Errorf("%v, %+v", err, nodeOf(s, "n4"))
		}
		return nil
	})
	l.refused("n1", three, "n4")
	l.wires.set(nil)
	l.settled("n4 is heard again", four.names...)

	l.applied("n3", three)
	l.says("n4", "n4 was removed from the cluster")
	l.tolerates("n1", 1)

	// The second link first; n2's other address is one of the same link, and both are there meanwhile.
	for link := links - 1; link >= 0; link-- {
		h := l.hosts["n2"]
		if err := h.space.ip(fmt.Sprintf("addr add %s/24 dev link%d", address(link, h.number+100), link)); err != nil {
			t.Fatal(err)
		}
		moved := three
		moved.addresses = map[string][]string{"n2": {address(0, h.number), address(1, h.number+100)}}
		if link == 0 {
			moved.addresses["n2"][0] = address(0, h.number+100)
		}
		l.applied("n2", moved)
		three = moved
	}
	l.steady(first, time.Second*time.Duration(slowness))
	l.noShot()
	l.judge()
}

// TestB17RemovedWhileAway: a voter is removed while it is cut off; then the coordinator ends. The others elect a new one;
// the removed one, when it is heard again, says on its own status what it is.
func TestB17RemovedWhileAway(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 4, prefer: map[string][]string{theGroup: {"n1", "n2", "n3"}}})
	s := l.settled("steady", l.names...)
	gone := "n4"
	if s.Coordinator == gone {
		gone = "n3"
	}
	rest := l.conf
	rest.names = l.others(gone)
	before := l.writes(theGroup)
	l.wires.set(func(f frame) fate { return fate{lost: f.of(gone)} })
	l.until(patience, gone+" is missed", func(ctx context.Context) error {
		if s, err := l.status(ctx, s.Coordinator); err != nil || nodeOf(s, gone).State != "dead" {
			return fmt.Errorf("%v, %+v", err, nodeOf(s, gone))
		}
		return nil
	})
	l.refused(s.Coordinator, rest, gone, "does not answer")
	l.says(gone, "NO QUORUM")
	if err := l.hosts[gone].off(); err != nil { // its link lost with the power: it was never told
		t.Fatal(err)
	}
	if out, status := l.hamgr(s.Coordinator, "fence", "off", gone, "--yes"); status != 0 {
		t.Fatalf("fence off: status %d: %s", status, out)
	}
	l.applied(s.Coordinator, rest)
	l.wires.set(nil)
	l.powerOn(gone)
	l.says(gone, gone+" was removed from the cluster")

	if err := l.hosts[s.Coordinator].kill(); err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(slices.Clone(rest.names), func(n string) bool { return n == s.Coordinator })
	l.until(patience, "another one coordinates", func(ctx context.Context) error {
		now, err := l.status(ctx, left[0])
		if err == nil && (!now.Quorate || now.Coordinator == s.Coordinator) {
			err = fmt.Errorf("quorate: %v, coordinator %q", now.Quorate, now.Coordinator)
		}
		return err
	})
	if err := l.hosts[s.Coordinator].restart(); err != nil {
		t.Fatal(err)
	}
	l.settled("without the removed one", rest.names...)
	l.says(gone, gone+" was removed from the cluster")
	if after := l.writes(theGroup); after.PID != before.PID || after.Token != before.Token {
		t.Errorf("not the same process writes: %v, then %v", before, after)
	}
	l.judge()
}
