package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/cluster/api"
)

// memory gives a host a disk of that many bytes.
func (l *lab) memory(node string, size int) {
	l.t.Helper()
	dir := l.hosts[node].data()
	err := errors.Join(os.Mkdir(dir, 0o700), unix.Mount("disk", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)))
	if err != nil {
		l.t.Fatal(err)
	}
	l.mounts = append(l.mounts, dir)
}

// ext4 gives a host a disk with a real file system.
func (l *lab) ext4(node string) {
	l.t.Helper()
	dir, image := l.hosts[node].data(), l.file(node+".image")
	err := errors.Join(
		os.Mkdir(dir, 0o700),
		command("", "truncate", "-s", "64M", image),
		command("", "mkfs.ext4", "-q", "-F", image),
		command("", "mount", "-o", "loop", image, dir),
	)
	if err != nil {
		l.t.Fatal(err)
	}
	l.mounts = append(l.mounts, dir)
}

// From linux/fs.h: FIFREEZE, FITHAW; and fs/ext4/ext4.h: EXT4_IOC_SHUTDOWN, which is for tests of what an application does
// when its disk is gone.
const (
	freezeDisk   = 0xC0045877
	thawDisk     = 0xC0045878
	shutdownDisk = 0x8004587d
	notFlushed   = 2
)

func (h *host) disk(request uint, arg int) error {
	dir, err := os.Open(h.data())
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.IoctlSetPointerInt(int(dir.Fd()), request, arg)
}

// TestDiskFull: the disk of the node that holds the group and coordinates is full. It has its log's room in reserve, so
// that nothing happens, not even when its daemon is killed and comes back.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	l := newLab(t, shape{members: 3})
	for _, name := range []string{"n1", "n2"} {
		l.memory(name, 64<<20)
	}
	l.powerOn(l.names...)
	l.settled("the cluster forms", l.names...)
	before := l.writes(theGroup)
	for _, name := range []string{"n1", "n2"} {
		full := filepath.Join(l.hosts[name].data(), "full")
		if err := command("", "dd", "if=/dev/zero", "of="+full, "bs=4k"); err == nil || !strings.Contains(err.Error(), "No space left") {
			t.Fatalf("the disk is not full: %v", err)
		}
	}
	l.commits(10)
	for _, name := range []string{"n1", "n2"} {
		if err := errors.Join(l.hosts[name].kill(), l.hosts[name].restart()); err != nil {
			t.Fatal(err)
		}
		l.settled(name+" is back", l.names...)
	}
	if after := l.writes(theGroup); after.PID != before.PID || after.Token != before.Token {
		t.Errorf("not the same process writes: %v, then %v", before, after)
	}
	l.noShot()
	l.judge()
}

// TestDiskFails: the disk below the log of the node that holds the group refuses everything. Its daemon lives on to say
// so; the group goes elsewhere in order, without a shot.
func TestDiskFails(t *testing.T) {
	for _, role := range []string{"coordinator", "follower"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			l, bad := onRealDisks(t, role == "coordinator")
			before := l.writes(theGroup)
			if err := l.hosts[bad].disk(shutdownDisk, notFlushed); err != nil {
				t.Fatal(err)
			}
			other := l.others(bad)[0]
			l.until(patience, "the group goes elsewhere", func(ctx context.Context) error {
				s, err := l.status(ctx, other)
				if g := groupOf(s, theGroup); err == nil && (g.State != api.GroupRunning || g.Node == bad) {
					err = fmt.Errorf("%+v", g)
				}
				return err
			})
			if after := l.writes(theGroup); after.Token <= before.Token {
				t.Errorf("%v, then %v", before, after)
			}
			l.let(2 * detection)
			l.noShot()
			if pid, err := l.hosts[bad].pid(); err != nil || pid == 0 {
				t.Errorf("its daemon has ended: %v", err)
			}
			if all := l.events(func(e event) bool {
				return e.on == bad && strings.HasPrefix(e.Msg, "the disk refuses the replicated log")
			}); len(all) != 1 {
				t.Errorf("it says %v", all)
			}
			l.says(bad, "NO QUORUM", "replace it, and this node returns as a new voter")
			l.says(other, "tolerates no failure", "the vote of "+bad+" does not count")
			l.judge()
		})
	}
}

// onRealDisks makes a cluster whose nodes that may hold the group have file systems of their own, and tells who holds it.
func onRealDisks(t *testing.T, coordinates bool) (l *lab, holder string) {
	t.Helper()
	l = newLab(t, shape{members: 3})
	for _, name := range l.names {
		l.ext4(name)
	}
	l.powerOn(l.names...)
	s := l.settled("the cluster forms", l.names...)
	if coordinates != (groupOf(s, theGroup).Node == s.Coordinator) {
		to := s.Coordinator
		if !coordinates {
			to = l.others(s.Coordinator)[0]
		}
		if out, status := l.hamgr(to, "group", "move", theGroup, to, "--wait"); status != 0 {
			t.Fatalf("move: status %d: %s", status, out)
		}
	}
	s = l.settled("steady", l.names...)
	return l, groupOf(s, theGroup).Node
}

// TestDiskHangs: the disk below the log of the node that holds the group hangs. The others take the group over, after it
// was proven off; what was to be written lands when the power goes, and changes nothing.
func TestDiskHangs(t *testing.T) {
	for _, role := range []string{"coordinator", "follower"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			l, bad := onRealDisks(t, role == "coordinator")
			before := l.writes(theGroup)
			h := l.hosts[bad]
			// A process that waits for a disk cannot die: without power neither of them is there.
			thaw := func() error {
				if err := h.disk(thawDisk, 0); err != nil && !errors.Is(err, unix.EINVAL) {
					return err
				}
				return nil
			}
			l.device.hook(func(c call) {
				if c.action == "off" && c.node == bad {
					if err := thaw(); err != nil {
						t.Errorf("thaw: %v", err)
					}
				}
			}, nil)
			t.Cleanup(func() { thaw() })
			if err := h.disk(freezeDisk, 0); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			l.until(patience, "the group is taken over", func(context.Context) error {
				if e := l.last(theGroup); e.Token <= before.Token {
					return fmt.Errorf("the last write is %v", e)
				}
				return nil
			})
			t.Logf("taken over after %v", time.Since(began).Round(time.Millisecond))
			l.settled("whole again", l.names...)
			if shots := l.shots(); len(shots) != 1 || shots[0].Node != bad || shots[0].Boot != before.Boot {
				t.Errorf("shots: %v", shots)
			}
			l.judge()
		})
	}
}
