package consensus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/hamgr/hamgr/cluster/link"
)

func serverOf(id identity) (raft.ServerID, raft.ServerAddress) {
	return raft.ServerID(id.String()), raft.ServerAddress(id.String())
}

func configurationOf(ids ...identity) (c raft.Configuration) {
	for _, id := range ids {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(id.String()), Address: raft.ServerAddress(id.String())})
	}
	return c
}

// goAlone makes a node the only voter, and waits until it leads as that.
func (n *node) goAlone(a Alone) {
	n.cluster.t.Helper()
	if err := n.log.Alone(context.Background(), a); err != nil {
		n.cluster.t.Fatal(err)
	}
	n.stop()
	n.start()
	n.cluster.within(3*n.cluster.detection, n.name+" leads alone", n.log.IsCoordinator)
	if s := n.log.Status(); len(s.Voters) != 1 || s.Alone != a.Reason {
		n.cluster.t.Fatalf("%s: %+v", n.name, s)
	}
}

func TestAloneAndTheOtherReturnsAsANewcomer(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{false, true} { // the other was off, or only cut off and runs still
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, time.Second, 2)
			c.startAll()
			c.allVote(3 * time.Second)
			a, b := c.nodes["alpha"], c.nodes["blpha"]
			c.coordinator(0).mustPropose("both")
			old := b.log.Status()
			cluster := old.Cluster
			if running {
				c.network.Isolate(b.name)
			} else {
				b.stop()
			}
			time.Sleep(3 * time.Second)
			id := a.log.Status().ID
			a.goAlone(Alone{Reason: "its plugs are off"})
			if s := a.log.Status(); s.ID != id || s.Cluster != cluster {
				t.Errorf("another identity or cluster: %+v", s)
			}
			a.mustPropose("alone")
			reasons := make(chan string, 10)
			tell := func(cfg *Config) { cfg.Dismissed = func(reason string) { reasons <- reason } }
			if running { // it has to be told while it runs
				b.stop()
				b.start(tell)
				time.Sleep(2 * time.Second)
				if s := b.log.Status(); s.Role != RoleVoter || s.ID != old.ID || !strings.Contains(s.Waiting, "waits for a coordinator; alpha does not answer") {
					t.Errorf("cut off: %+v", s)
				}
				c.network.HealAll()
				c.within(2*time.Second, "told", func() bool { return len(reasons) == 1 })
				if r := <-reasons; r != "alpha went on as the only voter by proof: its plugs are off" {
					t.Error(r)
				}
				time.Sleep(5 * time.Second)
				if s := b.log.Status(); s.Role != RoleNone || !strings.Contains(s.Waiting, "dismissed") || len(reasons) > 0 {
					t.Errorf("after it was told: %+v, told %d times more", s, len(reasons))
				}
				b.stop()
			}
			term := a.log.Status().Term
			b.start(tell)
			if s := b.log.Status(); s.ID == old.ID || s.Returned == "" {
				t.Errorf("returned as %+v", s)
			}
			c.allVote(5 * time.Second)
			c.within(time.Second, "it has all", func() bool { return b.fsm.has("both") && b.fsm.has("alone") })
			if s := a.log.Status(); s.Term != term || s.Alone != "" || s.Role != RoleCoordinator {
				t.Errorf("disturbed: %+v", s)
			}
			for _, n := range c.nodes { // and it stays so
				n.stop()
				n.start()
			}
			c.coordinator(3 * time.Second).mustPropose("after")
			c.allVote(time.Second)
			c.mustAgree()
			if b.log.fsm.line() != a.log.fsm.line() || a.log.fsm.line() == "" {
				t.Error("not on one line")
			}
			if len(reasons) > 0 {
				t.Errorf("told again: %s", <-reasons)
			}
		})
	}
}

// A dismissed voter with a much higher term neither deposes anybody nor gets its old identity in.
func TestDismissedWithAHigherTermDisturbsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, a, b := twoVoters(t)
		old := b.log.id
		b.stop()
		if err := b.stores.log.SetUint64([]byte(keyCurrentTerm), 1000); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		a.goAlone(Alone{Reason: "off"})
		// Its words do not reach it: it cannot be told, and goes on as what it was.
		b.start(func(cfg *Config) { cfg.Link = noJoins{cfg.Link} })
		term := a.log.Status().Term
		for range 200 {
			time.Sleep(50 * time.Millisecond)
			s := a.log.Status()
			if s.Role != RoleCoordinator || s.Term != term || term > 100 || len(s.Voters) != 1 {
				t.Fatalf("disturbed: %+v", s)
			}
		}
		// It can be asked who it is, and still is not let in.
		if voices := a.log.Voices(t.Context()); !voices["blpha"].Answers || voices["blpha"].Voter || voices["blpha"].ID != old.ID {
			t.Errorf("%+v", voices)
		}
		b.stop()
		b.start()
		c.within(5*time.Second, "is back", func() bool { return b.log.Status().Role == RoleVoter && b.log.id != old })
		if s := a.log.Status(); s.Role != RoleCoordinator || s.Term != term {
			t.Errorf("disturbed: %+v", s)
		}
	})
}

// A voter is lost when it has the first entry and not yet the cluster's ID.
func TestDismissedBeforeItKnewItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 2)
		c.startAll()
		a, b := c.nodes["alpha"], c.nodes["blpha"]
		c.within(2*time.Second, "the first entry", func() bool { return b.log.formed() })
		old := b.log.id
		b.stop()
		if err := b.stores.log.DeleteRange(2, 100); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		a.goAlone(Alone{Reason: "off"})
		b.start()
		c.allVote(5 * time.Second)
		if b.log.id == old {
			t.Error("the old identity is back")
		}
	})
}

// noJoins asks nobody.
// twoVoters starts two nodes, and waits until both vote.
func twoVoters(t *testing.T) (c *cluster, a, b *node) {
	t.Helper()
	c = newCluster(t, time.Second, 2)
	c.startAll()
	c.allVote(3 * time.Second)
	return c, c.nodes["alpha"], c.nodes["blpha"]
}

type noJoins struct{ Link }

func (n noJoins) Dial(ctx context.Context, node string, p link.Protocol) (net.Conn, error) {
	if p == link.Join {
		return nil, errors.New("asks nobody")
	}
	return n.Link.Dial(ctx, node, p)
}

func TestBackWhileTheOnlyVoterIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, a, b := twoVoters(t)
		b.stop()
		time.Sleep(2 * time.Second)
		a.goAlone(Alone{Reason: "off"})
		a.mustPropose("alone")
		a.stop()
		b.start()
		time.Sleep(time.Hour)
		if s := b.log.Status(); s.Role != RoleVoter || s.Waiting != "waits for a coordinator; alpha does not answer" {
			t.Errorf("%+v", s)
		}
		a.start()
		c.within(2*time.Second, "told", func() bool { return b.log.Status().Role == RoleNone })
		b.stop()
		b.start()
		c.allVote(5 * time.Second)
		c.mustAgree()
	})
}

func TestAloneRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		refused := func(n *node, a Alone, want error) {
			t.Helper()
			if err := n.log.Alone(t.Context(), a); !errors.Is(err, want) {
				t.Errorf("%s %+v: %v, not %v", n.name, a, err, want)
			}
		}
		c.nodes["alpha"].start()
		refused(c.nodes["alpha"], Alone{Forced: true}, ErrNeverMember)
		c.nodes["alpha"].stop()
		c.startAll()
		c.allVote(4 * time.Second)
		leader := c.coordinator(0)
		refused(leader, Alone{}, ErrNotTwoVoters)
		sick := c.others(leader)[1]
		release := sick.stores.Hang()
		_, _ = leader.propose("hangs there")
		c.within(2*time.Second, "failed", func() bool { return sick.failedWith() != nil })
		refused(sick, Alone{Forced: true}, ErrStoreFailed)
		release()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := leader.log.Alone(ended, Alone{}); err == nil {
			t.Error("no error")
		}
		if err := leader.stopped().Alone(t.Context(), Alone{Forced: true}); !errors.Is(err, ErrStopped) {
			t.Errorf("stopped: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 1)
		c.startAll()
		a := c.coordinator(2 * time.Second)
		if err := a.log.Alone(t.Context(), Alone{Forced: true}); !errors.Is(err, ErrOnlyVoter) {
			t.Error(err)
		}
	})
}

// stopped stops the node and returns its log.
func (n *node) stopped() *Log {
	l := n.log
	n.stop()
	return l
}

// Three nodes, forced: those who are dismissed come back one by one, and together.
func TestForcedAlone(t *testing.T) {
	t.Parallel()
	for _, together := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, time.Second, 3)
			c.startAll()
			c.allVote(4 * time.Second)
			a, b, d := c.nodes["alpha"], c.nodes["blpha"], c.nodes["clpha"]
			c.coordinator(0).mustPropose("all")
			b.stop()
			d.stop()
			time.Sleep(2 * time.Second)
			a.goAlone(Alone{Reason: "operator", Forced: true})
			a.mustPropose("alone")
			b.start()
			if !together {
				c.within(6*time.Second, "the first is back", func() bool { return b.log.Status().Role == RoleVoter })
			}
			d.start()
			c.allVote(8 * time.Second)
			c.within(time.Second, "all have all", func() bool { return b.fsm.has("alone") && d.fsm.has("alone") })
			c.mustAgree()
		})
	}
}

// The majority runs on while one is forced alone, cut off. When they meet, the majority must not
// overwrite what was forced; all come together on its line.
func TestForcedBesideAMajority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		c.startAll()
		c.allVote(4 * time.Second)
		a := c.nodes["alpha"]
		var mu sync.Mutex
		told := map[string]int{}
		for _, n := range c.others(a) {
			n.stop()
			n.start(func(cfg *Config) {
				cfg.Dismissed = func(string) {
					mu.Lock()
					defer mu.Unlock()
					told[n.name]++
				}
			})
		}
		c.network.Isolate(a.name)
		c.within(4*time.Second, "the majority goes on", func() bool {
			all := c.coordinators()
			return len(all) == 1 && all[0] != a
		})
		majority := c.coordinators()[0]
		majority.mustPropose("lost")
		a.goAlone(Alone{Reason: "operator", Forced: true})
		a.mustPropose("forced")
		time.Sleep(5 * time.Second)
		c.network.HealAll()
		c.within(5*time.Second, "both are told", func() bool {
			if !a.log.IsCoordinator() || a.fsm.has("lost") {
				t.Fatalf("the forced one was overwritten: %+v", a.log.Status())
			}
			mu.Lock()
			defer mu.Unlock()
			return len(told) == 2
		})
		for _, n := range c.others(a) {
			n.stop()
			n.start()
		}
		c.allVote(8 * time.Second)
		for _, n := range c.nodes {
			c.within(time.Second, "the forced line", func() bool { return n.fsm.has("forced") && !n.fsm.has("lost") })
			if told[n.name] > 1 {
				t.Errorf("%s was told %d times", n.name, told[n.name])
			}
		}
	})
}

// Alpha goes on alone; blpha returns as a newcomer, and later goes on alone itself. Alpha comes
// back with its old data, in which it had dismissed a blpha: it convinces nobody.
func TestDismissedCannotDismiss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, a, b := twoVoters(t)
		b.stop()
		time.Sleep(2 * time.Second)
		a.goAlone(Alone{Reason: "first"})
		b.start()
		c.allVote(5 * time.Second)
		a.stop()
		time.Sleep(2 * time.Second)
		b.goAlone(Alone{Reason: "second"})
		b.mustPropose("of b")
		id, former := b.log.id, a.stores
		a.start()
		if s := a.log.Status(); s.Returned != "blpha went on as the only voter by proof: second" || a.stores != former {
			t.Errorf("%+v", s)
		}
		c.allVote(5 * time.Second)
		if b.log.id != id || !b.log.IsCoordinator() || !a.fsm.has("of b") {
			t.Errorf("%+v", b.log.Status())
		}
	})
}

// Both were made the only voter, by mistake, and meet: neither gives way by itself, neither takes
// the other's entries, and each says what is wrong. One that starts then is not let in.
func TestTwoLinesBesideEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, a, b := twoVoters(t)
		c.within(2*time.Second, "the cluster has an ID", func() bool { return a.log.Status().Cluster != "" && b.log.Status().Cluster != "" })
		c.network.Isolate(a.name)
		time.Sleep(2 * time.Second)
		a.goAlone(Alone{Reason: "a", Forced: true})
		b.goAlone(Alone{Reason: "b", Forced: true})
		a.mustPropose("a")
		b.mustPropose("b")
		c.network.HealAll()
		time.Sleep(30 * time.Second)
		if !a.log.IsCoordinator() || !b.log.IsCoordinator() || a.fsm.has("b") || b.fsm.has("a") {
			t.Errorf("%+v, %+v", a.log.Status(), b.log.Status())
		}
		for _, n := range c.nodes {
			if why := n.log.Status().Outside[c.others(n)[0].name]; !strings.Contains(why, "another line") && !strings.Contains(why, "dismissed") {
				t.Errorf("%s says %q", n.name, why)
			}
		}
		b.stop()
		if err := b.try(); !errors.Is(err, ErrForked) {
			t.Fatalf("it started: %v", err)
		}
		b.wipe() // the operator decides
		b.start()
		c.allVote(5 * time.Second)
		c.within(time.Second, "the right line", func() bool { return b.fsm.has("a") && !b.fsm.has("b") })
	})
}

func TestJudgeLine(t *testing.T) {
	self, other := identity{"a", "1"}, identity{"b", "2"}
	servers := configurationOf(self, other)
	own := []fork{{Line: "l1", After: ""}, {Line: "l2", After: "l1"}}
	next := &fork{Line: "l3", After: "l2", By: other, Dismissed: []identity{self}}
	for name, tc := range map[string]struct {
		s    standing
		a    answer
		want verdict
	}{
		"dismissed":                 {standing{"c", own, servers}, answer{Cluster: "c", Line: "l3", Fork: next}, leftBehind},
		"dismissed two lines on":    {standing{"c", own, servers}, answer{Cluster: "c", Line: "l9", Fork: next}, leftBehind},
		"other cluster":             {standing{"c", own, servers}, answer{Cluster: "d", Line: "l3", Fork: next}, peaceful},
		"both clusters unknown":     {standing{"", own, servers}, answer{Cluster: "", Line: "l3", Fork: next}, peaceful},
		"own cluster unknown":       {standing{"", own, servers}, answer{Cluster: "c", Line: "l3", Fork: next}, leftBehind},
		"unknown, and not listed":   {standing{"", own, configurationOf(self)}, answer{Cluster: "c", Line: "l3", Fork: next}, peaceful},
		"same line":                 {standing{"c", own, servers}, answer{Cluster: "c", Line: "l2", Fork: next}, peaceful},
		"older line":                {standing{"c", own, servers}, answer{Cluster: "c", Line: "l1", Fork: &fork{Line: "l1", After: "l2", By: other, Dismissed: []identity{self}}}, peaceful},
		"the first line":            {standing{"c", own, servers}, answer{Cluster: "c", Fork: next}, peaceful},
		"beside ours":               {standing{"c", own, servers}, answer{Cluster: "c", Line: "x", Fork: &fork{Line: "x", After: "l1", By: other, Dismissed: []identity{self}}}, besides},
		"of one not listed":         {standing{"c", own, configurationOf(self)}, answer{Cluster: "c", Line: "l3", Fork: next}, besides},
		"of another identity":       {standing{"c", own, servers}, answer{Cluster: "c", Line: "l3", Fork: &fork{Line: "l3", After: "l2", By: other, Dismissed: []identity{{"a", "0"}}}}, besides},
		"ahead, and still listed":   {standing{"c", own, servers}, answer{Cluster: "c", Line: "l3", Listed: true}, peaceful},
		"ahead, and does not know":  {standing{"c", own, servers}, answer{Cluster: "c", Line: "l3"}, besides},
		"never forked, and is told": {standing{"c", nil, servers}, answer{Cluster: "c", Line: "l1", Fork: &fork{Line: "l1", By: other, Dismissed: []identity{self}}}, leftBehind},
	} {
		if got := tc.s.judgeLine(self, tc.a); got != tc.want {
			t.Errorf("%s: %d, not %d", name, got, tc.want)
		}
	}
	forks := []fork{
		{Line: "l1", By: other, Dismissed: []identity{{"a", "1"}}, Reason: "one"},
		{Line: "l2", After: "l1", By: other, Dismissed: []identity{{"c", "3"}}, Reason: "two"},
	}
	for _, tc := range []struct {
		line  string
		asker identity
		want  string
	}{
		{"", self, "l1/one"}, {"", identity{"c", "3"}, "l1/two"}, {"l1", identity{"c", "3"}, "l2/two"},
		{"l1", self, ""}, {"l2", self, ""}, {"x", self, ""}, {"", identity{"d", "4"}, ""},
	} {
		got := ""
		if f := dismissal(forks, tc.line, tc.asker); f != nil {
			got = fmt.Sprint(f.Line, "/", f.Reason)
		}
		if got != tc.want {
			t.Errorf("%s on line %q: %q, not %q", tc.asker, tc.line, got, tc.want)
		}
	}
}

// A node that decided to go on alone loses power before it did. An operator vouches for that, and has the other one go on. What the
// first one decided counts no more when it boots: it is a newcomer to the history that went on.
func TestAloneIsReconsideredInTheNextBoot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, a, b := twoVoters(t)
		old := a.log.Status().ID
		b.stop()
		time.Sleep(2 * time.Second)
		if err := a.log.Alone(t.Context(), Alone{Reason: "its plugs are off"}); err != nil {
			t.Fatal(err)
		}
		a.stop()
		b.start()
		time.Sleep(2 * time.Second)
		b.goAlone(Alone{Reason: "operator", Forced: true})
		b.mustPropose("forced")
		a.start()
		if s := a.log.Status(); s.ID == old || s.Alone != "" || s.Returned == "" {
			t.Errorf("two histories: %+v", s)
		}
		c.allVote(5 * time.Second)
		c.mustAgree()
	})
}
