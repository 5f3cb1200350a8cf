package consensus

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/hamgr/hamgr/cluster/link"
)

// nobody is a link on which no other node is.
type nobody struct{}

func (nobody) Dial(context.Context, string, link.Protocol) (net.Conn, error) {
	return nil, errors.New("nobody is there")
}

func (nobody) Listener(link.Protocol) net.Listener { return &silence{done: make(chan struct{})} }

type silence struct {
	once sync.Once
	done chan struct{}
}

func (s *silence) Accept() (net.Conn, error) { <-s.done; return nil, net.ErrClosed }
func (s *silence) Close() error              { s.once.Do(func() { close(s.done) }); return nil }
func (s *silence) Addr() net.Addr            { return identityAddr{} }

const pairEntries = 300

// pair makes the folder of a voter of two, with entries that no majority has.
func pair(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s, err := openDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	id, err := loadIdentity(s, "alpha")
	if err != nil {
		t.Fatal(err)
	}
	var c raft.Configuration
	for _, id := range []identity{id, {"beta", "b1"}} {
		sid, at := serverOf(id)
		c.Servers = append(c.Servers, raft.Server{ID: sid, Address: at})
	}
	entries := []*raft.Log{
		{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(c)},
		{Index: 2, Term: 2, Type: raft.LogCommand, Extensions: []byte{internalFound}, Data: []byte("c1")},
	}
	for i := uint64(3); i < 3+pairEntries; i++ {
		entries = append(entries, &raft.Log{Index: i, Term: 2, Type: raft.LogCommand, Data: fmt.Appendf(nil, "entry%d", i)})
	}
	if err := errors.Join(s.log.SetUint64([]byte(keyCurrentTerm), 2), s.log.StoreLogs(entries), s.close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func startPair(dir string) (*Log, *history, error) {
	h := &history{}
	l, err := Start(context.Background(), Config{
		Self: "alpha", Voters: []string{"alpha", "beta"}, Dir: dir, Link: nobody{}, FSM: h,
		Scratch: func() FSM { return &history{} }, DetectionTime: 2 * time.Second,
	})
	return l, h, err
}

func stopLog(l *Log) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return l.Stop(ctx)
}

// mustComeAlone starts what a crash left, makes it the only voter if it is not, and looks whether all is there.
// It tells whether the crash had come before the deed. It waits for an election only if told to.
func mustComeAlone(t *testing.T, dir string, elect bool) (before bool) {
	t.Helper()
	var l *Log
	var h *history
	for range 2 {
		var err error
		if l, h, err = startPair(dir); err != nil {
			t.Fatalf("after the crash: %v", err)
		}
		switch n := len(l.Status().Voters); n {
		case 2:
			if before || l.fsm.line() != "" {
				t.Fatalf("two voters: %+v", l.Status())
			}
			before = true
			if err := l.Alone(t.Context(), Alone{Reason: "again"}); err != nil {
				t.Fatal(err)
			}
			if err := stopLog(l); err != nil {
				t.Fatal(err)
			}
			continue
		case 1:
		default:
			t.Fatalf("%d voters", n)
		}
		defer func() {
			if err := stopLog(l); err != nil {
				t.Error(err)
			}
		}()
		for end := time.Now().Add(time.Minute); elect && !l.IsCoordinator(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("does not lead: %+v", l.Status())
			}
		}
		break
	}
	if first, err := l.stores.log.FirstIndex(); err != nil || first != 0 && first < pairEntries+3 {
		t.Fatalf("the log still has entry %d, from before the fork; %v", first, err)
	}
	p, err := dirPast(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(h.entries()); got != pairEntries || len(p.forks) != 1 || len(p.forks[0].Dismissed) != 1 || p.forks[0].Dismissed[0] != (identity{"beta", "b1"}) {
		t.Fatalf("%d entries, forks %+v", got, p.forks)
	}
	return before
}

// dirPast reads the forks of the newest snapshot beside a log in use.
func dirPast(dir string) (p past, err error) {
	s, err := openSnapshots(filepath.Join(dir, "raft", "snapshots"))
	if err != nil {
		return p, err
	}
	list, err := s.List()
	if err != nil || len(list) == 0 {
		return p, errors.Join(err, errors.New("no snapshot"))
	}
	image, err := (&Stores{snapshots: s}).newestImage(list[0].ID)
	return past{forks: image.forks}, err
}

var errCrash = errors.New("crash")

// crashing counts what is written, and from one write on nothing is. That one happens, or not.
type crashing struct {
	left *int
	late bool // the write happens, and its answer is lost
}

func (c crashing) step(f func() error) error {
	*c.left--
	if *c.left > 0 || *c.left == 0 && c.late {
		if err := f(); err != nil || *c.left > 0 {
			return err
		}
	}
	return errCrash
}

type crashingLog struct {
	logStore
	crashing
}

func (c crashingLog) StoreLogs(e []*raft.Log) error {
	return c.step(func() error { return c.logStore.StoreLogs(e) })
}
func (c crashingLog) DeleteRange(a, b uint64) error {
	return c.step(func() error { return c.logStore.DeleteRange(a, b) })
}

type crashingRecords struct {
	records
	crashing
}

func (c crashingRecords) save(name string, b []byte) error {
	return c.step(func() error { return c.records.save(name, b) })
}

type crashingSnapshots struct {
	raft.SnapshotStore
	crashing
}

func (c crashingSnapshots) Create(v raft.SnapshotVersion, i, term uint64, conf raft.Configuration, ci uint64, tr raft.Transport) (raft.SnapshotSink, error) {
	sink, err := c.SnapshotStore.Create(v, i, term, conf, ci, tr)
	return crashingSink{sink, c.crashing}, err
}

type crashingSink struct {
	raft.SnapshotSink
	crashing
}

func (c crashingSink) Close() error { return c.step(c.SnapshotSink.Close) }

// TestAloneCutAtEveryStep: whatever was the last thing written on the way, all ends well.
func TestAloneCutAtEveryStep(t *testing.T) {
	t.Parallel()
	befores, afters, whole := 0, 0, false
	for n := 1; !whole; n++ {
		for _, late := range []bool{false, true} {
			dir := pair(t)
			l, _, err := startPair(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(l.Alone(t.Context(), Alone{Reason: "off"}), stopLog(l)); err != nil {
				t.Fatal(err)
			}
			s, err := openDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			left := n
			c := crashing{&left, late}
			frail := &Stores{log: crashingLog{s.log, c}, records: crashingRecords{s.records, c}, snapshots: crashingSnapshots{s.snapshots, c}}
			half := &Log{cfg: Config{Self: "alpha", FSM: &history{}}, log: slog.New(slog.DiscardHandler), stores: frail, guard: newGuard(time.Minute, func(error) {}), timing: DeriveTiming(time.Second)}
			half.id, err = loadIdentity(s, "alpha")
			if err != nil {
				t.Fatal(err)
			}
			if half.past, err = s.past(); err != nil {
				t.Fatal(err)
			}
			_, err = half.finishAlone()
			whole = err == nil
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			if left < 0 && !errors.Is(err, errCrash) {
				t.Errorf("step %d: %v", n, err)
			}
			if mustComeAlone(t, dir, n == 1) {
				befores++
			} else {
				afters++
			}
		}
	}
	t.Logf("%d ended as they were, %d alone", befores, afters)
	if befores > 0 || afters < 6 {
		t.Error("a decision was forgotten, or the test does not test")
	}
}

const killedDir = "HAMGR_TEST_KILLED_DIR"

// TestKilledChild is the process that TestKilledOnTheWayAlone kills.
func TestKilledChild(t *testing.T) {
	dir := os.Getenv(killedDir)
	if dir == "" {
		return
	}
	l, _, err := startPair(dir)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("begins")
	if err := errors.Join(l.Alone(t.Context(), Alone{Reason: "off"}), stopLog(l)); err != nil {
		t.Fatal(err)
	}
	if _, _, err = startPair(dir); err != nil {
		t.Fatal(err)
	}
	fmt.Println("ends")
	time.Sleep(time.Minute) // until it is killed
}

// TestKilledOnTheWayAlone kills the process at random on its way to being the only voter.
func TestKilledOnTheWayAlone(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	way := 20 * time.Millisecond // how long it takes, as it turns out
	befores, afters := 0, 0
	for i := range 50 {
		dir := pair(t)
		child := exec.Command(os.Args[0], "-test.run=^TestKilledChild$", "-test.timeout=2m")
		child.Env = append(os.Environ(), killedDir+"="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		if !lines.Scan() || lines.Text() != "begins" {
			t.Errorf("it says %q", lines.Text())
		}
		began := time.Now()
		kill := time.AfterFunc(time.Duration(random.Int64N(int64(way))), func() { _ = child.Process.Kill() })
		if lines.Scan() && lines.Text() == "ends" {
			way = max(time.Millisecond, time.Since(began))
		} else if time.Since(began) > 2*time.Minute {
			t.Error("it hangs")
		}
		kill.Stop()
		_ = child.Process.Kill()
		_ = child.Wait()
		if mustComeAlone(t, dir, i%10 == 0) {
			befores++
		} else {
			afters++
		}
	}
	t.Logf("killed before the decision was stored %d times, after it %d times", befores, afters)
}
