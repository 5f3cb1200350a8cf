package netns

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// TestWallClockSteps: the wall clock of a node is set, by hand or by a time server, whichever part the node has: nothing that
// decides looks at it, so nobody is shot, nothing stops, and moves work as before.
func TestWallClockSteps(t *testing.T) {
	t.Parallel() // with other tests, too: most of its time it waits
	for _, role := range []string{"coordinator", "follower", "witness"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			node := "n1"
			if role == "witness" {
				node = witness
			}
			l := newLab(t, shape{members: 2, witness: true, guest: node, prefer: map[string][]string{theGroup: {"n1"}}})
			if role != "coordinator" {
				l.powerOn(l.others(node)...)
				l.coordinated(l.others(node)...) // one of them is
			}
			l.powerOn(l.names...)
			l.booted(l.hosts[node])
			if s := l.settled("the cluster forms", l.names...); groupOf(s, theGroup).Node != "n1" {
				l.moves("n2", "n1") // it was the last one to be there
			}
			for _, by := range []time.Duration{-time.Hour, 30 * time.Second, 24 * time.Hour} {
				l.steps(role, node, by)
				l.moves(node, "n2")
				l.moves(node, "n1")
				l.steps(role, node, -by)
			}
			l.judge()
		})
	}
}

// coordinated waits until a coordinator is seen by these nodes.
func (l *lab) coordinated(names ...string) (coordinator string) {
	l.t.Helper()
	l.until(patience, "a coordinator", func(ctx context.Context) error {
		for _, name := range names {
			s, err := l.status(ctx, name)
			if err != nil {
				return err
			}
			if coordinator = s.Coordinator; coordinator == "" {
				return errors.New("there is none")
			}
		}
		return nil
	})
	return coordinator
}

// coordinates makes a node the coordinator: the daemon of whoever is is killed, until the others elect that node.
func (l *lab) coordinates(node string) {
	l.t.Helper()
	for range 20 {
		s := l.settled("all are well", l.names...)
		if s.Coordinator == node {
			return
		}
		h := l.hosts[s.Coordinator]
		if err := errors.Join(h.kill(), h.restart()); err != nil {
			l.t.Fatal(err)
		}
		l.let(detection / 2)
	}
	l.t.Fatalf("%s is never elected", node)
}

// stepLogged is what a daemon says of it.
const stepLogged = "wall clock stepped"

// takes gives a node a role.
func (l *lab) takes(role, node string) {
	l.t.Helper()
	switch {
	case role == "coordinator":
		l.coordinates(node)
	case l.coordinated(node) == node:
		l.pause(node, shortPause)
		l.settled("another one coordinates", l.names...)
	}
}

// steps steps a node's wall clock, which changes nothing. A busy machine has elections now and then; one that comes of the
// step comes each time.
func (l *lab) steps(role, node string, by time.Duration) {
	l.t.Helper()
	const tries = 5
	what := fmt.Sprintf("the wall clock of the %s %s stepped by %v", role, node, by)
	for try := 1; ; try++ {
		l.takes(role, node)
		before := len(l.events(changes))
		coordinator := l.coordinated(node)
		l.bearsStep(what, node, by)
		after := l.events(changes)
		if l.t.Failed() {
			l.t.Fatal(what)
		}
		if len(after) == before && l.coordinated(node) == coordinator && (coordinator == node) == (role == "coordinator") {
			return
		}
		if try == tries {
			l.t.Fatalf("%s, for the %d. time, and each time the cluster changed, from %d: %v", what, try, before, after)
		}
		l.t.Logf("%s, and the cluster changed, as it may when the machine is busy: %v", what, after[before:])
		l.stepped(l.hosts[node], -by)
	}
}

// changes are what a cluster does that misses somebody.
func changes(e event) bool {
	return e.Msg == "became coordinator" || e.Msg == "node dead" || e.Msg == "node left"
}

// bearsStep steps a node's wall clock: whatever a busy machine may do, nothing stops, nobody is shot, and it is told of.
func (l *lab) bearsStep(what, node string, by time.Duration) {
	l.t.Helper()
	logged, wrote := len(l.said(stepLogged)), l.writes(theGroup)
	l.stepped(l.hosts[node], by)
	l.let(detection * 3 / 2)
	l.settled(what, l.names...)
	l.steady(wrote, detection)
	l.noShot()
	l.until(patience, what+" is told of", func(context.Context) error {
		if now := l.said(stepLogged); len(now) == logged {
			return errors.New("it is not")
		}
		return nil
	})
}

// moves has the group move, by the word of a node.
func (l *lab) moves(ask, to string) {
	l.t.Helper()
	before := l.writes(theGroup)
	l.until(patience, "moved to "+to, func(ctx context.Context) error {
		s, err := l.status(ctx, ask)
		if g := groupOf(s, theGroup); err != nil || g.Node == to && g.State == api.GroupRunning {
			return err
		}
		out, status := l.hamgr(ask, "group", "move", theGroup, to, "--wait")
		return fmt.Errorf("group move ended with status %d: %s", status, out) // the status shows whether it did
	})
	l.settled("moved to "+to, l.names...)
	if after := l.writes(theGroup); after.Node != to || after.Token <= before.Token {
		l.t.Fatalf("moved to %s: %v, then %v", to, before, after)
	}
}
