package consensus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/hamgr/hamgr/cluster/link"
)

// TestStartOnAFullDisk: however much or little room there is at a start, the node starts, or says what it needs; with room
// it then starts as what it was.
func TestStartOnAFullDisk(t *testing.T) {
	d := smallDisk(t, "tmpfs", 2*logReserve+(4<<20))
	refused, started := 0, 0
	for _, free := range []uint64{0, 4, 12, 20, 28, 36, 64, 1024, logReserve >> 10, logReserve>>10 + 64} {
		dir := filepath.Join(d.dir, "hamgr")
		for _, used := range []bool{false, true} {
			if used { // a voter with data, whose disk was filled while it was down
				_ = prepareOn(t, dir)
			}
			d.fill(free << 10)
			var before []byte
			if used {
				before = fileBytes(t, filepath.Join(dir, "identity"))
			}
			err := tryStart(dir)
			if err == nil {
				started++
			} else {
				refused++
				if used {
					t.Errorf("the old reserve has room for the new file, and %d KiB more: %v", free, err)
				}
				if !errors.Is(err, ErrStoreFull) || errors.Is(err, ErrStoreHung) || !strings.Contains(err.Error(), "free in "+dir) || !strings.Contains(err.Error(), "16.0 MiB") {
					t.Errorf("%d KiB free, used %v: %v", free, used, err)
				}
			}
			d.empty()
			if err := tryStart(dir); err != nil {
				t.Errorf("with room again, after %d KiB, used %v: %v", free, used, err)
			}
			if after := fileBytes(t, filepath.Join(dir, "identity")); used && string(after) != string(before) {
				t.Errorf("another identity: %s, was %s", after, before)
			}
			if used {
				s, err := openDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				if c := mustContent(t, s.log); c.last != 191 || c.term != 8 || c.vote != "alpha/1" {
					t.Errorf("it holds %s", c.brief())
				}
				_ = s.close()
			}
			removeAll(t, dir, ".")
		}
	}
	t.Logf("%d starts, %d refused", started, refused)
	if refused == 0 || started == 0 {
		t.Error("the test does not test")
	}
}

func prepareOn(t *testing.T, dir string) *Stores {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return prepare(t, dir)
}

// onDisk starts a cluster of three, one of whose nodes has its data on a small disk.
func onDisk(t *testing.T, c *cluster, d *disk, leads bool) *node {
	t.Helper()
	victim := c.nodes[c.names[0]]
	victim.stores, victim.dir = nil, filepath.Join(d.dir, "hamgr")
	c.startAll()
	leader := c.coordinator(20 * c.detection)
	c.allVote(20 * c.detection)
	if leads != (leader == victim) {
		to := victim
		if !leads {
			to = c.others(victim)[0]
		}
		c.lead(to)
	}
	return victim
}

// lead moves leadership to a node.
func (c *cluster) lead(to *node) {
	c.t.Helper()
	c.within(20*c.detection, to.name+" leads", func() bool {
		if all := c.coordinators(); len(all) == 1 && all[0] != to {
			_ = all[0].log.raft.LeadershipTransferToServer(raft.ServerID(to.log.id.String()), raft.ServerAddress(to.log.id.String())).Error()
		} else if len(all) == 1 {
			return true
		}
		return false
	})
}

// TestFullDiskStopsOneVote: the disk under one node is full. It goes on in the room that it has reserved, without new
// snapshots. When that is used up, the node stops voting, and says so; its link and its process stay; the others go
// on; with room it is back as what it was.
func TestFullDiskStopsOneVote(t *testing.T) {
	for _, on := range []struct {
		fstype string
		leads  bool
	}{{"tmpfs", true}, {"tmpfs", false}, {"ext4", true}} {
		t.Run(fmt.Sprintf("%s, leads %v", on.fstype, on.leads), func(t *testing.T) {
			d := smallDisk(t, on.fstype, 40<<20)
			synctest.Test(t, func(t *testing.T) { fullDisk(t, d, on.leads) })
		})
	}
}

func fullDisk(t *testing.T, d *disk, leads bool) {
	c := newCluster(t, time.Second, 3)
	victim := onDisk(t, c, d, leads)
	id := victim.log.Status().ID
	d.fill(0)
	for i := range 50 {
		c.coordinators()[0].mustPropose(fmt.Sprintf("in-the-reserve-%d", i))
	}
	if err := victim.log.raft.Snapshot().Error(); err == nil || !strings.Contains(err.Error(), errNoRoom.Error()) {
		t.Errorf("a snapshot without room: %v", err)
	}
	if s := victim.log.Status(); s.Role == RoleFailed {
		t.Fatalf("failed too early: %+v", s)
	}
	big := strings.Repeat("x", 512<<10)
	acknowledged := uint64(0)
	var failed time.Time
	for i := 0; victim.failedWith() == nil; i++ {
		if i > 3*logReserve/len(big) {
			t.Fatal("the disk is never full")
		}
		failed = time.Now()
		if index, err := c.coordinators()[0].propose(big); err == nil {
			acknowledged = index
		} else if !errors.Is(err, ErrUnknownOutcome) {
			t.Error(err)
		}
		if leads && victim.log.failed() != nil || len(c.coordinators()) == 0 {
			break
		}
	}
	c.within(c.detection/5, "reported", func() bool { return victim.failedWith() != nil })
	if err := victim.failedWith(); !errors.Is(err, ErrStoreFull) || !errors.Is(err, ErrStoreFailed) || errors.Is(err, ErrStoreHung) {
		t.Errorf("reported: %v", err)
	}
	if s := victim.log.Status(); s.Role != RoleFailed || !strings.Contains(s.Waiting, "free in "+filepath.Join(d.dir, "hamgr")) || !strings.Contains(s.Waiting, "make room") {
		t.Errorf("it says %s: %q", s.Role, s.Waiting)
	}
	if victim.log.IsCoordinator() {
		t.Error("still coordinates")
	}
	c.within(c.detection*6/5-time.Since(failed), "another leads", func() bool {
		return len(c.coordinators()) == 1 && c.coordinators()[0] != victim
	})
	if conn, err := victim.link.Dial(shortly(t), c.others(victim)[0].name, link.Join); err != nil {
		t.Errorf("the link was cut: %v", err)
	} else {
		conn.Close()
	}
	after := c.coordinators()[0].mustPropose("after")
	time.Sleep(2 * c.detection)
	if victim.fsm.has("after") {
		t.Error("it goes on without a disk")
	}
	victim.stop()
	if err := tryStart(victim.dir); !errors.Is(err, ErrStoreFull) {
		t.Errorf("a start on the full disk: %v", err)
	}
	d.empty()
	victim.start()
	c.within(15*c.detection, "back with all", func() bool { return victim.fsm.has("after") })
	if got := victim.log.Status().ID; got != id {
		t.Errorf("back as %s, was %s", got, id)
	}
	if err := victim.log.WaitApplied(shortly(t), max(acknowledged, after)); err != nil {
		t.Error(err)
	}
	if n := len(victim.fsm.entries()); n < 51 || !slices.ContainsFunc(victim.fsm.entries(), func(e entry) bool { return e.index == acknowledged }) {
		t.Errorf("entry %d is lost, of %d", acknowledged, n)
	}
	c.mustAgree()
}

// TestReserveIsEnough: a log that is cut as raft cuts it stays below half of its reserve.
func TestReserveIsEnough(t *testing.T) {
	t.Parallel()
	s, path := newBolt(t)
	most := 0
	for first := uint64(1); first < 6000; first += 100 {
		entries := someEntries(first, first+99)
		for _, e := range entries {
			e.Data = make([]byte, 1<<10)
		}
		if err := s.StoreLogs(entries); err != nil {
			t.Fatal(err)
		}
		if low, last := s.tail.First, s.tail.Last; last-low > snapshotThreshold+trailingLogs {
			if err := s.DeleteRange(low, last-trailingLogs); err != nil {
				t.Fatal(err)
			}
		}
		used, err := readUsed(path)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(used))
	}
	t.Logf("%.1f MiB", float64(most)/(1<<20))
	if most > logReserve/2 {
		t.Errorf("the log takes %d bytes of %d", most, logReserve)
	}
}

// TestSnapshotWithoutRoomIsNotTaken: neither an own one nor one that the leader sends. With room, the follower has what it missed.
func TestSnapshotWithoutRoomIsNotTaken(t *testing.T) {
	d := smallDisk(t, "tmpfs", 40<<20)
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 3)
		victim := onDisk(t, c, d, false)
		leader := c.coordinators()[0]
		victim.stop()
		for i := range snapshotThreshold + trailingLogs + 100 {
			leader.mustPropose(fmt.Sprint(i))
		}
		if err := leader.log.raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		leader.mustPropose("last")
		victim.start()
		d.fill(0)
		time.Sleep(15 * c.detection)
		if s := victim.log.Status(); s.Role != RoleVoter || victim.failedWith() != nil || victim.fsm.has("last") {
			t.Errorf("without room for the leader's snapshot: %+v, %v", s, victim.failedWith())
		}
		if left, err := filepath.Glob(filepath.Join(victim.dir, "raft/snapshots/*")); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
		d.empty()
		c.within(15*c.detection, "caught up", func() bool { return victim.fsm.has("last") })
		c.mustAgree()
	})
}

// TestRecordsOnAFullDisk: on a full disk a record is replaced by a new value as often as one likes, and a start, which
// counts itself, is one of those that do so.
func TestRecordsOnAFullDisk(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			d := smallDisk(t, kind, 2*logReserve+(4<<20))
			dir := filepath.Join(d.dir, "hamgr")
			_ = prepareOn(t, dir)
			r := dirRecords(dir)
			if err := r.save(heardRecord, []byte(`{"alpha":[{"id":"1"}]}`)); err != nil {
				t.Fatal(err)
			}
			d.fill(0)
			id := identity{Node: "alpha", ID: "1"}
			for i := range 40 {
				if _, err := beginRun(r, id); err != nil {
					t.Fatalf("start %d: %v", i, err)
				}
				value := fmt.Appendf(nil, `{"alpha":[{"id":"%d"}]}`, i*i)
				err := r.save(heardRecord, value)
				if got, lerr := r.load(heardRecord); err != nil || lerr != nil || string(got) != string(value) {
					t.Fatalf("%s: %v, %v", got, err, lerr)
				}
			}
		})
	}
}
