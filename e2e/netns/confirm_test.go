package netns

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/cluster/api"
)

// unsafe is the exit status of what was refused because it would be.
const unsafe = 5

// TestB32Confirm: an operator's word that a node is down is refused while a node hears it, or its BMC says on. When all
// is silent it is taken, and recorded as a word, not as a fencing.
func TestB32Confirm(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 3})
	before := l.writes(theGroup)
	node := before.Node
	ask := l.others(node)[0]
	confirm := func() (string, int) {
		return l.hamgr(ask, "fence", "confirm", node, "--typed", node, "--reason", "unplugged both cords", "--json")
	}
	if out, status := confirm(); status != unsafe {
		t.Errorf("confirmed while it is alive: status %d: %s", status, out)
	}

	// It stands still; its BMC says on, and cannot switch it off.
	l.device.stick(node, true)
	if err := l.hosts[node].freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.until(patience, "fencing fails", func(context.Context) error {
		if len(l.said("fencing attempt failed")) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if out, status := confirm(); status != unsafe {
		t.Errorf("confirmed while its BMC says on: status %d: %s", status, out)
	}
	if e := l.last(theGroup); e.Token != before.Token {
		t.Fatalf("taken over without proof: %v", e)
	}

	// Now it is really off, and nothing can tell.
	l.device.silence(node, true)
	if err := l.hosts[node].off(); err != nil {
		t.Fatal(err)
	}
	out, status := confirm()
	if status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	l.until(patience, "taken over", func(ctx context.Context) error {
		s, err := l.status(ctx, ask)
		if g := groupOf(s, theGroup); err == nil && (g.State != api.GroupRunning || g.Node == node) {
			err = fmt.Errorf("%+v", g)
		}
		return err
	})
	if e := l.writes(theGroup); e.Token <= before.Token {
		t.Errorf("%v, then %v", before, e)
	}
	history := l.history(ask)
	if len(history.Operations) == 0 {
		t.Fatal("nothing is remembered")
	}
	for _, o := range history.Operations {
		if o.Node != node {
			t.Errorf("%+v", o)
		}
		for _, a := range o.Attempts {
			if a.Proven {
				t.Errorf("a fencing that never was: %+v", a)
			}
		}
	}
	last := history.Operations[0]
	if last.By == "" || last.Action != api.ActionConfirm || !strings.Contains(last.Reason+last.Proof, "unplugged both cords") {
		t.Errorf("the word is recorded as %+v", last)
	}
	t.Logf("%+v", last)

	l.device.silence(node, false)
	l.device.stick(node, false)
	l.powerOn(node)
	l.settled("whole again", l.names...)
	l.judge()
}
