package netns

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// TestLinks: with two links, no fault of one of them does anything to the cluster.
func TestLinks(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 3})
	before := l.writes(theGroup)
	began := time.Now()
	for _, c := range []struct {
		name string
		lost func(frame) bool
	}{
		{"the first one lost", func(f frame) bool { return f.link == 0 }},
		{"the second one lost", func(f frame) bool { return f.link == 1 }},
		{"the first one one-way", func(f frame) bool { return f.link == 0 && f.to == "n1" }},
		{"the second one one-way", func(f frame) bool { return f.link == 1 && f.from == "n2" }},
		{"each one lost at another node", func(f frame) bool {
			return f.link == 0 && f.of("n1") && !f.of("n3") || f.link == 1 && f.between("n2", "n3")
		}},
		{"the first one flapping", func(f frame) bool { return f.link == 0 && time.Since(began)/(detection/4)%2 == 0 }},
		{"the second one with a small MTU", func(f frame) bool { return f.link == 1 && f.size > 1300 }},
		{"the first one with a small MTU", func(f frame) bool { return f.link == 0 && f.size > 1300 }},
	} {
		l.wires.set(func(f frame) fate { return fate{lost: c.lost(f)} })
		l.let(3 * detection)
		// A handshake has frames that are long, and a daemon that comes back has many.
		if err := l.hosts["n3"].kill(); err != nil {
			t.Fatal(err)
		}
		if err := l.hosts["n3"].restart(); err != nil {
			t.Fatal(err)
		}
		l.settled(c.name, l.names...)
		l.wires.set(nil)
		if t.Failed() {
			t.Fatalf("with %s", c.name)
		}
	}
	after := l.writes(theGroup)
	if after.PID != before.PID || after.Token != before.Token {
		t.Errorf("not the same process writes: %v, then %v", before, after)
	}
	l.noShot()
	l.judge()
}

// TestLinkIsNamed: a link that is lost is shown as lost, and the other one as well.
func TestLinkIsNamed(t *testing.T) {
	t.Parallel()
	l := newCluster(t, shape{members: 3})
	l.wires.set(func(f frame) fate { return fate{lost: f.link == 1 && f.between("n1", "n2")} })
	fresh := func(age *int64) bool { return age != nil && time.Duration(*age)*time.Millisecond < 2*detection }
	l.until(patience, "the link is shown as lost", func(ctx context.Context) error {
		s, err := l.status(ctx, "n1")
		if err != nil {
			return err
		}
		for _, c := range []struct {
			node string
			well [links]bool
		}{{"n2", [links]bool{true, false}}, {"n3", [links]bool{true, true}}} {
			shown := nodeOf(s, c.node).Links
			if len(shown) != links {
				return fmt.Errorf("links to %s: %+v", c.node, shown)
			}
			for i, link := range shown {
				// TCP is dialled when somebody has something to say: two followers have not.
				if well := fresh(link.UDPAgeMS) && link.Error == ""; well != c.well[i] {
					return fmt.Errorf("link to %s: %+v, well: %v", c.node, link, well)
				}
			}
		}
		return nil
	})
	l.noShot()
	l.judge()
}

// TestB21Pair: two of three nodes do not hear each other, or badly, on any link. All have quorum through the third one:
// nobody is shot, the group runs on, and all is well when it is over.
func TestB21Pair(t *testing.T) {
	const there, back = "n1 -> n3", "n3 -> n1"
	for _, c := range []struct {
		name       string
		rule       func(frame) fate
		onN1, onN3 string // the direction that each of them names; of two dead ones it is the one that it should hear by
	}{
		{"one way", func(f frame) fate { return fate{lost: f.from == "n1" && f.to == "n3"} }, there, there},
		{"other way", func(f frame) fate { return fate{lost: f.from == "n3" && f.to == "n1"} }, back, back},
		{"both ways", func(f frame) fate { return fate{lost: f.between("n1", "n3")} }, back, there},
		{"30 percent lost", func() func(frame) fate {
			random := newRandom()
			return func(f frame) fate { return fate{lost: f.between("n1", "n3") && random() < 0.3} }
		}(), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newCluster(t, shape{members: 3, prefer: map[string][]string{theGroup: {"n2"}}})
			before := l.writes(theGroup)
			l.hearBothWays("n1", "n3") // before that neither could tell what the other one hears
			l.hearBothWays("n3", "n1")
			l.wires.set(c.rule)
			l.let(6 * detection)
			l.until(patience, "stable with quorum on n2", func(ctx context.Context) error {
				s, err := l.status(ctx, "n2")
				if err == nil && (!s.Quorate || groupOf(s, theGroup).State != api.GroupRunning) {
					err = fmt.Errorf("quorate: %v, group: %+v", s.Quorate, groupOf(s, theGroup))
				}
				return err
			})
			l.namesDirection("n1", "n3", c.onN1)
			l.namesDirection("n3", "n1", c.onN3)
			l.namesDirection("n2", "n1", "")
			l.namesDirection("n2", "n3", "")
			if c.onN1 != "" { // all that hold the cluster together goes through n2
				l.tolerates("n2", 0)
				l.says("n2", "tolerates no failure", "n1 and n3 do not reach each other")
			}
			l.wires.set(nil)
			l.settled("whole again", l.names...)
			if after := l.writes(theGroup); after.PID != before.PID || after.Token != before.Token {
				t.Errorf("not the same process writes: %v, then %v", before, after)
			}
			l.noShot()
			l.judge()
		})
	}
}

// hearBothWays waits until a node hears another one on each link, and hears from it that it is heard.
func (l *lab) hearBothWays(ask, other string) {
	l.t.Helper()
	l.until(patience, fmt.Sprintf("%s and %s hear each other on each link", ask, other), func(ctx context.Context) error {
		s, err := l.status(ctx, ask)
		if err != nil {
			return err
		}
		shown := nodeOf(s, other).Links
		for _, link := range shown {
			if link.UDPAgeMS == nil || link.UDPOutAgeMS == nil || len(link.Fails) > 0 {
				return fmt.Errorf("%+v", link)
			}
		}
		if len(shown) != links {
			return fmt.Errorf("%d links", len(shown))
		}
		return nil
	})
}

// namesDirection waits until a node shows that nothing comes through in a direction, on each link to another node, and
// names it among the problems; or, if it is empty, that it shows nothing of that kind.
func (l *lab) namesDirection(ask, other, direction string) {
	l.t.Helper()
	l.until(patience, fmt.Sprintf("%s names the direction %q of its links to %s", ask, direction, other), func(ctx context.Context) error {
		s, err := l.status(ctx, ask)
		if err != nil {
			return err
		}
		shown := nodeOf(s, other).Links
		if len(shown) != links {
			return fmt.Errorf("%d links", len(shown))
		}
		for _, link := range shown {
			if got := strings.Join(link.Fails, ", "); got != direction {
				return fmt.Errorf("%+v", link)
			}
			named := slices.ContainsFunc(s.Problems, func(p api.Problem) bool {
				return strings.Contains(p.Text, link.Address) && strings.Contains(p.Text, "nothing comes through from "+direction)
			})
			if named != (direction != "") {
				return fmt.Errorf("problems: %+v", s.Problems)
			}
		}
		return nil
	})
}
