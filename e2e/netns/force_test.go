package netns

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/cluster/state"
)

// TestQuorumForce: two of three hosts die for good. The third one goes on only by an operator's word, who names both; the
// tokens jump. When the dead ones come back after all, with their old disks, they are newcomers.
func TestQuorumForce(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 3, prefer: map[string][]string{theGroup: {"n2"}}})
	before := l.writes(theGroup)
	force := func(on string, down ...string) (string, int) {
		args := []string{"quorum", "force", on, "--typed", on, "--reason", "the other room burnt down", "--json"}
		if len(down) > 0 {
			args = append(args, "--down", strings.Join(down, ","))
		}
		return l.hamgr("n1", args...)
	}
	refused := func(what, on string, down ...string) {
		t.Helper()
		if out, status := force(on, down...); status != unsafe && (status != 2 || on == "n1") {
			t.Errorf("%s: status %d: %s", what, status, out)
		}
	}
	refused("forced while there is a coordinator", "n1", "n2", "n3")
	if err := l.hosts["n3"].off(); err != nil {
		t.Fatal(err)
	}
	refused("forced while a majority answers", "n1", "n3")

	l.device.silence("n3", true) // the room is gone, with its power switches
	l.device.silence("n2", true)
	if err := l.hosts["n2"].off(); err != nil {
		t.Fatal(err)
	}
	l.says("n1", "NO QUORUM")
	l.until(patience, "n1 gives up its coordinator", func(ctx context.Context) error {
		if s, err := l.status(ctx, "n1"); err != nil || s.Coordinator != "" {
			return fmt.Errorf("%v, coordinator %q", err, s.Coordinator)
		}
		return nil
	})
	refused("forced without a word on who is down", "n1")
	refused("forced with a word on one of two", "n1", "n2")
	refused("forced on another node", "n2", "n1", "n3")
	if e := l.last(theGroup); e.Token != before.Token {
		t.Errorf("taken over without quorum: %v", e)
	}
	out, status := force("n1", "n2", "n3")
	if status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	l.until(patience, "n1 has quorum", func(ctx context.Context) error {
		if s, err := l.status(ctx, "n1"); err != nil || !s.Quorate {
			return fmt.Errorf("%v, quorate: %v %v", err, s.Quorate, s.Problems)
		}
		return nil
	})
	// That they are down is the operator's word for the quorum alone. What they may hold needs a proof of its own.
	l.let(3 * detection)
	if e := l.last(theGroup); e.Token != before.Token {
		t.Errorf("taken over without proof: %v", e)
	}
	l.device.silence("n2", false)
	l.device.silence("n3", false)
	l.until(patience, "the group runs on", func(context.Context) error {
		if e := l.last(theGroup); e.Token <= before.Token+state.Lift {
			return fmt.Errorf("the last write is %v", e)
		}
		return nil
	})
	l.settled("the dead ones are back", l.names...)
	for _, name := range []string{"n2", "n3"} {
		all := l.events(func(e event) bool { return e.on == name && e.Msg == "old data set aside" })
		if len(all) == 0 {
			t.Errorf("%s came back with what it remembered", name)
		}
	}
	if all := l.said("quorum is forced"); !slices.ContainsFunc(all, func(e event) bool { return strings.Contains(e.Reason, "burnt down") }) {
		t.Errorf("%v", all)
	}
	l.judge()
	l.writes(theGroup)
}
