package node

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/resources"
)

// TestCopyElsewhere: what is found dead after a maintenance is not started again where another node has it active; nor
// when the maintenance ended while the daemon was away. What fails later asks nobody.
func TestCopyElsewhere(t *testing.T) {
	for _, active := range []bool{true, false} {
		for _, restarted := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				p := &script{}
				s := newStage(t, config.OnFailRestart, p)
				s.n.Config.Groups[0].Restarts = 2
				if active {
					s.copies = map[string]string{"beta": "part0 is active"}
				}
				s.begin(t, state.Granted)
				time.Sleep(time.Minute)
				s.r.maintained.set("somebody works on it")
				time.Sleep(time.Second)
				p.set(false)
				if restarted {
					s.cancel()
					s.begin(t, state.Started)
				} else {
					s.r.maintained.set("")
				}
				time.Sleep(10 * time.Second)
				f := s.failed()
				if stopped := len(f) == 1 && strings.Contains(f[0].Error, "found active on beta"); stopped != active || p.is() == active || s.asked != 1 {
					t.Fatalf("active elsewhere %t, restarted %t: asked %d times, failures %v, calls %v", active, restarted, s.asked, f, p.all())
				}
				if active {
					return
				}
				time.Sleep(time.Minute)
				p.set(false)
				time.Sleep(20 * time.Second)
				if !p.is() || s.asked != 1 {
					t.Errorf("asked %d times, calls %v", s.asked, p.all())
				}
			})
		}
	}
}

// TestCopyKnown: nothing is started while the cluster knows of a copy on another node.
func TestCopyKnown(t *testing.T) {
	for node, want := range map[string]bool{"beta": false, "alpha": true} {
		synctest.Test(t, func(t *testing.T) {
			p := &script{}
			s := newStage(t, config.OnFailRestart, p)
			b, err := state.Command{Join: &state.Join{Node: node, Boot: "x1", Found: map[string]string{"db": "part0 is active"}}}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			s.n.replica.Apply(2, b)
			s.begin(t, state.Granted)
			time.Sleep(time.Second)
			if started := p.count("start") > 0; started != want || len(s.failed()) > 0 == want {
				t.Errorf("found on %s: started %t, failures %v", node, started, s.failed())
			}
			if err := s.r.copyKnown(); !want && !errors.Is(err, resources.ErrElsewhere) {
				t.Error(err)
			}
		})
	}
}

// TestActive: a node tells of its own groups alone, and the cluster hears of what it finds.
func TestActive(t *testing.T) {
	p := &script{}
	s := newStage(t, config.OnFailMove, p)
	s.n.probes = newProbes(s.n)
	b := backend{s.n}
	for group, active := range map[string]bool{"db": true, "../db": false, "other": false} {
		p.set(active)
		if a := b.active(t.Context(), activeRequest{group}); (a.Found != "") != active {
			t.Errorf("%s: %+v", group, a)
		}
	}
	p.set(false)
	if a := b.active(t.Context(), activeRequest{"db"}); a.Found != "" || len(s.n.probes.again) != 1 {
		t.Errorf("%+v, looks again: %d", a, len(s.n.probes.again))
	}
}

// TestLettingGoIsFound: what is let go of without a grant that the log knows, after a forced quorum maybe, is found until it is
// gone; what is driven by a grant is not.
func TestLettingGoIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{}
		s := newStage(t, config.OnFailMove, p)
		s.n.probes = newProbes(s.n)
		p.set(true)
		for _, recalled := range []bool{false, true} {
			s.n.groups.runners["db"] = &runner{recalled: recalled}
			s.n.probes.lookOnce(t.Context())
			if found := s.n.probes.found()["db"] != ""; found != recalled {
				t.Errorf("recalled %t: found %t", recalled, found)
			}
		}
		p.set(false)
		s.n.probes.lookOnce(t.Context())
		if f := s.n.probes.found(); len(f) > 0 {
			t.Errorf("it is gone, and found: %v", f)
		}
		delete(s.n.groups.runners, "db")
	})
}
