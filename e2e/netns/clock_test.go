package netns

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
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
			if role == "coordinator" {
				l.coordinates(node)
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

// steps steps a node's wall clock, which changes nothing.
func (l *lab) steps(role, node string, by time.Duration) {
	l.t.Helper()
	what := fmt.Sprintf("the wall clock of the %s %s stepped by %v", role, node, by)
	changes := func(e event) bool {
		return e.Msg == "became coordinator" || e.Msg == "node dead" || e.Msg == "node left"
	}
	before, changed, logged := l.coordinated(node), len(l.events(changes)), len(l.said(stepLogged))
	if (role == "coordinator") != (before == node) {
		l.t.Fatalf("%s: %s coordinates", what, before)
	}
	wrote := l.writes(theGroup)
	l.stepped(l.hosts[node], by)
	l.let(detection * 3 / 2)
	if s := l.settled(what, l.names...); s.Coordinator != before {
		l.t.Errorf("%s: %s was the coordinator, now it is %s", what, before, s.Coordinator)
	}
	if now := l.events(changes); len(now) != changed {
		l.t.Errorf("%s: %d changes before, now %v", what, changed, now)
	}
	l.steady(wrote, detection)
	l.noShot()
	l.until(patience, what+" is told of once", func(context.Context) error {
		if now := l.said(stepLogged); len(now) != logged+1 {
			return fmt.Errorf("%d were told of, now %v", logged, now)
		}
		return nil
	})
	if l.t.Failed() {
		l.t.Fatal(what)
	}
}

// moves has the group move, by the word of a node.
func (l *lab) moves(ask, to string) {
	l.t.Helper()
	before := l.writes(theGroup)
	if out, status := l.hamgr(ask, "group", "move", theGroup, to, "--wait"); status != 0 {
		l.t.Fatalf("group move to %s: status %d: %s", to, status, out)
	}
	l.settled("moved to "+to, l.names...)
	if after := l.writes(theGroup); after.Node != to || after.Token <= before.Token {
		l.t.Fatalf("moved to %s: %v, then %v", to, before, after)
	}
}
