package netns

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/hamgr/hamgr/cluster/api"
)

// twoGroups have an owner each; n3 holds nothing.
var twoGroups = map[string][]string{"east": {"n1", "n3"}, "west": {"n2", "n3"}}

// TestAllDaemonsKilled: all daemons are killed at once, and started again in any order. The groups run on, and nobody is
// shot: it is the same boots.
func TestAllDaemonsKilled(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 3, prefer: twoGroups})
	east, west := l.writes("east"), l.writes("west")
	for _, order := range [][]string{{"n1", "n2", "n3"}, {"n3", "n1", "n2"}, {"n2", "n3", "n1"}} {
		var errs [3]error
		var killed sync.WaitGroup
		for i, name := range order {
			killed.Go(func() { errs[i] = l.hosts[name].kill() })
		}
		killed.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		for _, name := range order {
			if err := l.hosts[name].restart(); err != nil {
				t.Fatal(err)
			}
		}
		l.settled(fmt.Sprintf("restarted in the order %v", order), l.names...)
		if e := l.writes("east"); e.PID != east.PID || e.Token != east.Token {
			t.Errorf("east: %v, then %v", east, e)
		}
		if e := l.writes("west"); e.PID != west.PID || e.Token != west.Token {
			t.Errorf("west: %v, then %v", west, e)
		}
	}
	l.noShot()
	l.judge()
}

// blackout is the end of the power of all hosts at once.
func (l *lab) blackout() {
	l.t.Helper()
	for _, name := range l.names {
		l.wires.plug(name, false) // nobody sees another one die
	}
	errs := make([]error, len(l.names))
	var all sync.WaitGroup
	for i, name := range l.names {
		all.Go(func() { errs[i] = l.hosts[name].off() })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		l.t.Fatal(err)
	}
}

// TestBlackout: all hosts lose power. When all come back, the former owners run their groups again, and nobody is shot.
func TestBlackout(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 3, prefer: twoGroups})
	for _, order := range [][]string{{"n1", "n2", "n3"}, {"n3", "n2", "n1"}} {
		east, west := l.writes("east"), l.writes("west")
		l.blackout()
		l.powerOn(order...)
		l.settled("all are back", l.names...)
		for group, before := range map[string]struct {
			node  string
			token uint64
		}{"east": {east.Node, east.Token}, "west": {west.Node, west.Token}} {
			if e := l.writes(group); e.Node != before.node || e.Token <= before.token {
				t.Errorf("%s: %+v, then %v", group, before, e)
			}
		}
	}
	l.noShot()
	l.judge()
}

// TestBlackoutOneStaysAway: not all come back. One that held nothing is not shot; one that held something is, before
// others take it.
func TestBlackoutOneStaysAway(t *testing.T) {
	for _, c := range []struct {
		away  string
		shots int
	}{{"n3", 0}, {"n1", 1}} {
		t.Run(c.away, func(t *testing.T) {
			t.Parallel()
			l := newCluster(t, shape{members: 3, prefer: twoGroups})
			east, west := l.writes("east"), l.writes("west")
			l.blackout()
			// What fences a node that has no power powers it on again; here that is in vain.
			l.device.hook(func(d call) {
				if d.action == "on" {
					l.hosts[c.away].retire()
				}
			}, nil)
			l.powerOn(l.others(c.away)...)
			l.until(patience, "both groups run", func(ctx context.Context) error {
				s, err := l.status(ctx, "n2")
				for _, g := range l.groups {
					if g := groupOf(s, g); err == nil && (g.State != api.GroupRunning || g.Node == c.away) {
						err = fmt.Errorf("%+v", g)
					}
				}
				return err
			})
			if e := l.writes("east"); e.Token <= east.Token {
				t.Errorf("east: %v, then %v", east, e)
			}
			if e := l.writes("west"); e.Token <= west.Token || e.Node != "n2" {
				t.Errorf("west: %v, then %v", west, e)
			}
			l.let(2 * detection)
			shots := l.shots()
			for _, s := range shots {
				if s.Node != c.away {
					t.Errorf("%v", s)
				}
			}
			if len(shots) != c.shots {
				t.Errorf("shots: %v", shots)
			}
			l.judge()
		})
	}
}
