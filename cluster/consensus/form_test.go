package consensus

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestFormsWithAMajorityAndTheRestJoins(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, time.Second, n)
				late := c.names[quorum(n):]
				for _, name := range c.names[:quorum(n)] {
					c.nodes[name].start()
				}
				leader := c.coordinator(1500 * time.Millisecond)
				index := leader.mustPropose("early")
				for _, v := range leader.log.Status().Voters {
					if isLate := v.Node >= late[0]; v.Absent != isLate || !v.Votes {
						t.Errorf("voter %+v", v)
					}
				}
				time.Sleep(10 * time.Second)
				for _, name := range late {
					c.nodes[name].start()
				}
				fewest := n
				took := c.within(time.Duration(4*len(late))*time.Second, "all vote", func() bool {
					voters, named := 0, 0
					for _, v := range leader.log.Status().Voters {
						if v.Votes {
							voters++
						}
						if v.Votes && !v.Absent {
							named++
						}
					}
					fewest = min(fewest, voters)
					return named == n
				})
				t.Logf("%d joined in %s", len(late), took)
				if fewest < n-1 {
					t.Errorf("%d voters at one time", fewest)
				}
				c.allVote(time.Second)
				for _, n := range c.nodes {
					if err := n.log.WaitApplied(t.Context(), index); err != nil || !n.fsm.has("early") {
						t.Errorf("%s: %v", n.name, err)
					}
				}
				if term := leader.log.Status().Term; term != 2 || !leader.log.IsCoordinator() {
					t.Errorf("joining disturbed: term %d", term)
				}
			})
		})
	}
}

func TestNeverFormsWithoutAMajority(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		voters, started int
		waits           string
	}{
		{2, 1, "waits for 1 more empty voter of alpha, blpha; blpha does not answer"},
		{3, 1, "waits for 1 more empty voter of alpha, blpha, clpha; blpha, clpha do not answer"},
		{5, 2, "waits for 1 more empty voter of alpha, blpha, clpha, dlpha, elpha; clpha, dlpha, elpha do not answer"},
		{5, 1, "waits for 2 more empty voters of alpha, blpha, clpha, dlpha, elpha; blpha, clpha, dlpha, elpha do not answer"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, time.Second, tc.voters)
			for _, name := range c.names[:tc.started] {
				c.nodes[name].start()
			}
			time.Sleep(time.Minute)
			s := c.nodes["alpha"].log.Status()
			if s.Formed || s.Role != RoleNone || s.Waiting != tc.waits {
				t.Errorf("%d of %d: %+v", tc.started, tc.voters, s)
			}
			if c.nodes["alpha"].log.promised != nil {
				t.Error("promised itself for nothing")
			}
		})
	}
}

func TestSingleFormsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		b := c.nodes["blpha"]
		b.start(func(cfg *Config) { cfg.Single = true })
		c.within(time.Second, "coordinator", b.log.IsCoordinator)
		b.mustPropose("alone")
		c.nodes["alpha"].start()
		c.nodes["clpha"].start(func(cfg *Config) { cfg.Single = true }) // too late: there is one
		c.allVote(6 * time.Second)
		c.within(time.Second, "same state", func() bool { return c.nodes["clpha"].fsm.has("alone") && c.nodes["alpha"].fsm.has("alone") })
		if a, b := c.nodes["clpha"].log.Status().Cluster, b.log.Status().Cluster; a != b {
			t.Errorf("clusters %s and %s", a, b)
		}
	})
}

func TestRestartKeepsTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		c.startAll()
		leader := c.coordinator(2 * time.Second)
		for i := range 10 {
			leader.mustPropose(fmt.Sprint(i))
		}
		before := leader.log.Status()
		for _, n := range c.nodes {
			n.stop()
		}
		c.startAll()
		leader = c.coordinator(2 * time.Second)
		index := leader.mustPropose("after")
		for _, n := range c.nodes {
			if err := n.log.WaitApplied(t.Context(), index); err != nil {
				t.Fatal(err)
			}
			if got := n.fsm.entries(); len(got) != 11 || got[0].command != "0" {
				t.Errorf("%s: %v", n.name, got)
			}
			if s := n.log.Status(); s.Cluster != before.Cluster || s.Term <= before.Term {
				t.Errorf("before %+v, after %+v", before, s)
			}
		}
		c.mustAgree()
	})
}

func TestPromiseIsKeptOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		b := c.nodes["blpha"]
		b.start()
		first, second := identity{"alpha", "1"}, identity{"alpha", "2"}
		if refused := b.log.promise(first, c.names); refused != "" {
			t.Fatal(refused)
		}
		b.stop()
		b.start()
		for _, tc := range []struct {
			to     identity
			voters []string
			want   string
		}{
			{first, c.names, ""},
			{second, c.names, "blpha has given its promise to alpha/1"},
			{identity{"clpha", "1"}, c.names, "blpha has given its promise to alpha/1"},
			{b.log.id, c.names, "blpha has given its promise to alpha/1"},
			{first, c.names[:2], "blpha is configured with other voters"},
		} {
			if got := b.log.promise(tc.to, tc.voters); got != tc.want {
				t.Errorf("%s: %q", tc.to, got)
			}
		}
		c.nodes["alpha"].start() // under a third identity
		time.Sleep(time.Minute)
		if c.nodes["alpha"].log.Status().Formed || b.log.Status().Formed {
			t.Error("formed without the promise")
		}
		if w := c.nodes["alpha"].log.Status().Waiting; !strings.Contains(w, "waits for 1 more promise to form the cluster: blpha has given its promise to alpha/1") {
			t.Errorf("alpha %s", w)
		}
		if w := b.log.Status().Waiting; !strings.Contains(w, "alpha came back without its data") {
			t.Errorf("blpha %s", w)
		}
		c.nodes["clpha"].start() // a majority without the old promise
		c.allVote(8 * time.Second)
	})
}

func TestTornFoundingIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		a := c.nodes["alpha"]
		if err := a.stores.log.SetUint64([]byte(keyCurrentTerm), 1); err != nil {
			t.Fatal(err)
		}
		if err := a.stores.records.save(identityRecord, []byte(`{"node":"alpha","id":"x"}`)); err != nil {
			t.Fatal(err)
		}
		c.startAll()
		c.coordinator(2 * time.Second)
		c.allVote(time.Second)
	})
}

// Whatever is cut or killed while a cluster forms: two never do, and one does in the end.
func TestOneClusterWhateverHappensWhileForming(t *testing.T) {
	t.Parallel()
	formed := 0
	for trial := range 20 {
		synctest.Test(t, func(t *testing.T) {
			n := []int{3, 4, 5}[trial%3]
			random := rand.New(rand.NewPCG(uint64(trial), 1))
			c := newCluster(t, time.Second, n)
			c.network.Delay(2*time.Millisecond, 10*time.Millisecond) // so that things happen between the steps
			var founders counter
			count := func(cfg *Config) { cfg.Log = slog.New(slog.NewTextHandler(&founders, nil)) }
			clusters := make(map[string]bool)
			note := func() {
				for _, n := range c.nodes {
					if n.log != nil && n.log.Status().Cluster != "" {
						clusters[n.log.Status().Cluster] = true
					}
				}
			}
			for range 60 {
				a, b := c.names[random.IntN(n)], c.names[random.IntN(n)]
				switch node := c.nodes[a]; random.IntN(6) {
				case 0, 1:
					if node.log == nil {
						node.start(count)
					}
				case 2:
					node.stop()
				case 3:
					c.network.Cut(a, b)
				case 4:
					c.network.Isolate(a)
				case 5:
					c.network.HealAll()
				}
				time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
				note()
			}
			c.network.HealAll()
			for _, n := range c.nodes {
				if n.log == nil {
					n.start(count)
				}
			}
			time.Sleep(10 * time.Second)
			note()
			c.mustAgree()
			if len(clusters) > 1 || founders.Load() > 1 {
				c.dump()
				t.Fatalf("trial %d: %d clusters, founded %d times", trial, len(clusters), founders.Load())
			}
			if len(clusters) == 1 {
				formed++
				c.allVote(0)
			} else {
				c.dump()
			}
		})
	}
	if formed < 20 {
		t.Errorf("only %d of 20 formed, though all came together in the end", formed)
	}
}

// The founder has its promises and its first entry, and is cut off or killed before anybody
// else has the entry. The others, a majority as empty as each other, must not found again.
func TestFounderLostRightAfterFounding(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, time.Second, 3)
			var founders counter
			for _, name := range c.names {
				c.nodes[name].start(func(cfg *Config) { cfg.Log = slog.New(slog.NewTextHandler(&founders, nil)) })
			}
			a := c.nodes["alpha"]
			for !a.log.formed() {
				time.Sleep(time.Microsecond)
			}
			if killed {
				a.stop()
			} else {
				c.network.Isolate(a.name)
			}
			time.Sleep(30 * time.Second)
			for _, n := range c.others(a) {
				if s := n.log.Status(); s.Formed || founders.Load() != 1 || !strings.Contains(s.Waiting, "has given its promise to alpha/") {
					t.Fatalf("%s: %+v", n.name, s)
				}
			}
			if killed {
				a.start()
			}
			c.network.HealAll()
			c.allVote(3 * time.Second)
		})
	}
}

// counter counts the lines that tell of a founding.
type counter struct{ atomic.Int32 }

func (c *counter) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("cluster formed")) {
		c.Add(1)
	}
	return len(line), nil
}

// Once every voter has joined, a wiped minority is not enough for another cluster.
func TestWipedMinorityFormsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 5)
		c.startAll()
		c.allVote(4 * time.Second)
		leader := c.coordinator(0)
		leader.mustPropose("kept")
		cluster := leader.log.Status().Cluster
		for _, n := range c.others(leader)[:2] {
			n.stop()
			n.wipe()
			for _, o := range c.others(n) {
				if o.log != nil {
					c.network.Cut(n.name, o.name)
					c.network.Cut(o.name, n.name)
				}
			}
		}
		for _, n := range c.others(leader)[:2] {
			n.start()
		}
		c.network.Heal(c.others(leader)[0].name, c.others(leader)[1].name)
		c.network.Heal(c.others(leader)[1].name, c.others(leader)[0].name)
		time.Sleep(30 * time.Second)
		for _, n := range c.others(leader)[:2] {
			if n.log.Status().Formed {
				t.Fatalf("%s formed a cluster", n.name)
			}
		}
		c.network.HealAll()
		c.allVote(10 * time.Second)
		for _, n := range c.nodes {
			c.within(time.Second, "the state is there", func() bool { return n.fsm.has("kept") })
			if got := n.log.Status().Cluster; got != cluster {
				t.Errorf("%s is in cluster %s, not %s", n.name, got, cluster)
			}
		}
	})
}
