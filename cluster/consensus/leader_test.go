package consensus

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

func TestNewLeaderInTimeAndNeverTwo(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			var worst float64
			for trial := range 20 {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, 3*time.Second, n)
					for _, n := range c.nodes {
						n.stores.Delay(5 * time.Millisecond)
					}
					c.startAll()
					old := c.coordinator(6 * time.Second)
					time.Sleep(time.Duration(trial) * 91 * time.Millisecond)
					old.mustPropose("before")
					cut := time.Now()
					c.network.Isolate(old.name)
					c.within(c.detection*6/5, "a new coordinator", func() bool {
						all := c.coordinators()
						if len(all) > 1 {
							t.Fatalf("%s and %s coordinate", all[0].name, all[1].name)
						}
						return len(all) == 1 && all[0] != old
					})
					worst = max(worst, float64(time.Since(cut))/float64(c.detection))
					if _, err := old.propose("lost"); !errors.Is(err, ErrNotCoordinator) {
						t.Errorf("the old one: %v", err)
					}
					c.coordinators()[0].mustPropose("after")
				})
			}
			t.Logf("worst: %.2f detection times", worst)
		})
	}
}

func TestReturningNodeDoesNotDisturb(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		c.startAll()
		leader := c.coordinator(2 * time.Second)
		term := leader.log.Status().Term
		away := c.others(leader)[0]
		for _, length := range []time.Duration{2 * time.Second, 14 * time.Second, 45 * time.Second} {
			c.network.Isolate(away.name)
			time.Sleep(length)
			if _, ok := away.log.Coordinator(); ok || away.log.Status().Waiting == "" {
				t.Errorf("%s, cut off, says %+v", away.name, away.log.Status())
			}
			command := length.String()
			leader.mustPropose(command)
			c.network.HealAll()
			took := c.within(c.detection/2, "caught up", func() bool { return away.fsm.has(command) })
			t.Logf("after a cut of %s caught up in %s", length, took)
			time.Sleep(5 * time.Second)
			if s := leader.log.Status(); s.Term != term || s.Role != RoleCoordinator {
				t.Fatalf("disturbed after a cut of %s: %+v", length, s)
			}
			c.within(c.detection, "no more waiting", func() bool { return away.log.Status().Waiting == "" })
		}
		c.mustAgree()
	})
}

func TestCatchesUpAfterManyEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		c.startAll()
		leader := c.coordinator(2 * time.Second)
		away := c.others(leader)[0]
		away.stop()
		for i := range snapshotThreshold + trailingLogs + 100 {
			leader.mustPropose(fmt.Sprint(i))
		}
		c.within(3*snapshotInterval, "a snapshot that cut the log", func() bool {
			first, err := leader.stores.log.FirstIndex()
			return err == nil && first > 1
		})
		index := leader.mustPropose("last")
		away.start()
		// The leader tries a follower that was away again after up to 10 s (raft v1.8.0, replication.go: failureWait
		// doubled maxFailureScale times).
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		if err := away.log.WaitApplied(ctx, index); err != nil {
			c.dump()
			t.Fatal(err)
		}
		c.mustAgree()
		away.stop() // and once more, from the snapshot that it received
		away.start()
		if err := away.log.WaitApplied(ctx, index); err != nil {
			t.Fatal(err)
		}
		c.mustAgree()
	})
}

func TestWipedNodeReturnsAsANewVoter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		c.startAll()
		leader := c.coordinator(2 * time.Second)
		index := leader.mustPropose("kept")
		wiped := c.others(leader)[0]
		old := wiped.log.Status().ID
		wiped.stop()
		wiped.wipe()
		wiped.start()
		roles := map[Role]bool{}
		c.within(4*time.Second, "votes again", func() bool {
			s := wiped.log.Status()
			roles[s.Role] = true
			return s.Role == RoleVoter
		})
		if id := wiped.log.Status().ID; id == old || !roles[RoleNonVoter] {
			t.Errorf("returned as %s, was %s, by way of %v", id, old, roles)
		}
		if err := wiped.log.WaitApplied(t.Context(), index); err != nil {
			t.Error(err)
		}
		for _, v := range leader.log.Status().Voters {
			if v.ID == old {
				t.Errorf("%+v is still listed", v)
			}
		}
		c.allVote(time.Second)
		if s := leader.log.Status(); s.Role != RoleCoordinator || s.Term != 2 {
			t.Errorf("disturbed: %+v", s)
		}
		other := c.others(leader)[1] // its vote is worth something
		other.stop()
		time.Sleep(2 * c.detection)
		leader.mustPropose("with the new one")
	})
}

// A wiped node must not answer for the voter that it was. The leader has an entry that
// only it and the wiped node had; the third node alone cannot make it the past.
func TestWipedNodeDoesNotVoteForItsFormerSelf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		c.startAll()
		leader := c.coordinator(2 * time.Second)
		behind, wiped := c.others(leader)[0], c.others(leader)[1]
		c.network.Isolate(behind.name)
		leader.mustPropose("committed")
		leader.stop()
		wiped.stop()
		wiped.wipe()
		c.network.HealAll()
		wiped.start()
		for range 1000 {
			time.Sleep(20 * time.Millisecond)
			if all := c.coordinators(); len(all) != 0 {
				t.Fatalf("%s coordinates without the committed entry", all[0].name)
			}
		}
		leader.start()
		c.coordinator(3 * time.Second)
		c.within(5*time.Second, "nothing is lost", func() bool { return behind.fsm.has("committed") && wiped.fsm.has("committed") })
		c.mustAgree()
	})
}

func TestLeaderWithHungStoreGivesUp(t *testing.T) {
	t.Parallel()
	for trial := range 10 {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, time.Second, 3)
			c.startAll()
			old := c.coordinator(2 * time.Second)
			old.mustPropose("before")
			time.Sleep(time.Duration(trial) * 33 * time.Millisecond)
			release := old.stores.Hang()
			defer release()
			hung := time.Now()
			_, err := old.propose("hung")
			if !errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("the command that hung: %v", err)
			}
			c.within(c.detection-time.Since(hung), "it gives up", func() bool {
				return !old.log.IsCoordinator() && errors.Is(old.failedWith(), ErrStoreFailed)
			})
			c.within(2*c.detection-time.Since(hung), "another coordinates", func() bool { return len(c.coordinators()) == 1 && c.coordinators()[0] != old })
			c.coordinators()[0].mustPropose("after")
			if s := old.log.Status(); s.Role != RoleFailed || s.Waiting == "" {
				t.Errorf("%+v", s)
			}
			release() // the abandoned write lands, and the log must not go on
			time.Sleep(5 * time.Second)
			if _, err := old.propose("no"); !errors.Is(err, ErrNotCoordinator) || old.fsm.has("no") {
				t.Errorf("went on after it failed: %v", err)
			}
		})
	}
}

func TestStoreErrorIsFinal(t *testing.T) {
	for _, leads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, time.Second, 3)
			c.startAll()
			leader := c.coordinator(2 * time.Second)
			bad := leader
			if !leads {
				bad = c.others(leader)[0]
			}
			full := errors.New("no space left on device")
			bad.stores.Fail(full)
			_, err := leader.propose("x")
			if leads != errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("leads %v: %v", leads, err)
			}
			c.within(c.detection/2, "reported", func() bool { return errors.Is(bad.failedWith(), full) })
			bad.stores.Fail(nil) // it must not go on
			c.within(2*c.detection, "others go on", func() bool { return len(c.coordinators()) == 1 && c.coordinators()[0] != bad })
			c.coordinators()[0].mustPropose("after")
			time.Sleep(2 * c.detection)
			if bad.fsm.has("after") {
				t.Error("went on after it failed")
			}
			bad.stop()
			bad.start() // a new process on a mended disk
			c.within(2*c.detection, "is back", func() bool { return bad.fsm.has("after") })
			c.mustAgree()
		})
	}
}

// Heartbeats go on while the disks of both followers hang. Only commits prove progress.
func TestLeaderWithoutProgressGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		for _, n := range c.nodes {
			n.stores.patience = time.Hour // else the followers would end before
		}
		c.startAll()
		leader := c.coordinator(2 * time.Second)
		term := leader.log.Status().Term
		for _, n := range c.others(leader) {
			defer n.stores.Hang()()
		}
		hung := time.Now()
		c.within(c.detection*11/10, "not coordinator any more", func() bool { return !leader.log.IsCoordinator() })
		if since := time.Since(hung); since < c.detection/2 {
			t.Errorf("gave up after %s already", since)
		}
		c.within(c.detection, "steps down", func() bool { return leader.log.raft.State().String() != "Leader" || leader.log.Status().Term > term })
		if _, err := leader.log.Barrier(shortly(t)); err == nil {
			t.Error("a barrier succeeded without a majority")
		}
	})
}

func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestTransferBarrierAndContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		c.startAll()
		old := c.coordinator(2 * time.Second)
		index, err := old.log.Barrier(t.Context())
		if err != nil || index == 0 {
			t.Fatalf("barrier %d: %v", index, err)
		}
		for _, n := range c.nodes {
			if err := n.log.WaitApplied(t.Context(), index); err != nil {
				t.Error(err)
			}
			if n != old {
				if _, err := n.log.Barrier(t.Context()); !errors.Is(err, ErrNotCoordinator) {
					t.Errorf("barrier at %s: %v", n.name, err)
				}
				if err := n.log.Transfer(t.Context()); !errors.Is(err, ErrNotCoordinator) {
					t.Errorf("transfer at %s: %v", n.name, err)
				}
			}
			for len(n.log.Changes()) > 0 {
				<-n.log.Changes()
			}
		}
		if err := old.log.Transfer(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.within(c.detection/2, "another coordinates", func() bool { return len(c.coordinators()) == 1 && c.coordinators()[0] != old })
		synctest.Wait()
		for _, n := range c.nodes {
			if len(n.log.Changes()) != 1 {
				t.Errorf("%s was not told of the change", n.name)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		leader := c.coordinators()[0]
		if _, _, err := leader.log.Propose(ended, []byte("never")); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("ended context: %v", err)
		}
		if err := leader.log.WaitApplied(shortly(t), index+1000); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an index that never comes: %v", err)
		}
		for _, n := range c.others(leader) {
			c.network.Isolate(n.name)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, _, err := leader.log.Propose(ctx, []byte("who knows")); !errors.Is(err, ErrUnknownOutcome) || time.Since(start) > 11*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		if _, err := leader.propose("lost or not"); !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("leadership lost on the way: %v", err)
		}
	})
}

func TestRemovedNodeSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		c.startAll()
		leader := c.coordinator(2 * time.Second)
		away := c.others(leader)[0]
		c.within(time.Second, "it has a log", away.log.formed)
		c.network.Isolate(away.name)
		id := away.log.id.String()
		if err := leader.log.raft.RemoveServer(raft.ServerID(id), 0, time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		// The keeper would add it again, so the leader is gone when it comes back.
		rest := c.others(leader)[1]
		leader.stop()
		c.network.HealAll()
		want := fmt.Sprintf("%s no longer lists this node as %s: it was removed; empty its data folder to let it return", rest.name, id)
		c.within(10*time.Second, want, func() bool { return away.log.Status().Waiting == want })
	})
}

func TestFollowersHearOfACommitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3*time.Second, 3)
		c.startAll()
		leader := c.coordinator(6 * time.Second)
		for i := range 20 {
			time.Sleep(time.Duration(i) * 7 * time.Millisecond)
			start := time.Now()
			index := leader.mustPropose(fmt.Sprint(i))
			for _, n := range c.nodes {
				if err := n.log.WaitApplied(t.Context(), index); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(start); took > 10*time.Millisecond {
				t.Errorf("all applied after %s; a round trip is at most 1 ms", took)
			}
		}
	})
}

func TestThroughput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		c.startAll()
		leader := c.coordinator(2 * time.Second)
		start := time.Now()
		for i := range 200 {
			leader.mustPropose(fmt.Sprint(i))
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("200 entries took %s of virtual time; a round trip is at most 1 ms", took)
		}
		c.within(time.Second, "all have all", func() bool {
			for _, n := range c.nodes {
				if len(n.fsm.entries()) != 200 {
					return false
				}
			}
			return true
		})
		c.mustAgree()
	})
}

// raft panics when it cannot store its term. The process must live on until its caller
// has cut the network.
func TestTermThatCannotBeStoredDoesNotPanic(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, time.Second, 3)
			c.startAll()
			old := c.coordinator(2 * time.Second)
			c.network.Isolate(old.name)
			c.within(2*c.detection, "another coordinates", func() bool { return len(c.coordinators()) == 1 && c.coordinators()[0] != old })
			time.Sleep(c.detection)
			if hangs {
				defer old.stores.Hang()()
			} else {
				old.stores.Fail(errors.New("input/output error"))
			}
			c.network.HealAll() // now it hears of the new term
			c.within(2*c.detection, "reported", func() bool { return errors.Is(old.failedWith(), ErrStoreFailed) })
			c.coordinators()[0].mustPropose("after")
		})
	}
}
