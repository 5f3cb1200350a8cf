package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/consensus"
)

// flock are nodes that do nothing, by the name of their cluster.
type flock struct {
	mu    sync.Mutex
	runs  map[string]int
	began []string
	fails map[string]error // at once
	stuck map[string]bool  // do not end
	free  chan struct{}
}

func newFlock() *flock {
	return &flock{runs: map[string]int{}, fails: map[string]error{}, stuck: map[string]bool{}}
}

func (c *flock) serve(ctx context.Context, o Options, running func(*Node), beat func()) error {
	name := filepath.Base(o.DataDir)
	c.mu.Lock()
	c.began = append(c.began, name)
	fails, stuck := c.fails[name], c.stuck[name]
	c.runs[name]++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.runs[name]--
	}()
	if fails != nil {
		return fails
	}
	running(&Node{})
	beat()
	<-ctx.Done()
	if stuck {
		<-c.free
	}
	return nil
}

// running lists what runs; twice would be two voters.
func (c *flock) running(t *testing.T) string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for name, n := range c.runs {
		if n > 1 {
			t.Errorf("%s runs %d times", name, n)
		}
		if n > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (c *flock) starts(name string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.began {
		if b == name {
			n++
		}
	}
	return n
}

func (c *flock) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// watching runs a witness over the folder, in virtual time, until the test ends.
func watching(t *testing.T, f *folderOf, c *flock, test func(end func() error)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f.now, c.free = make(chan os.Signal, 1), make(chan struct{}) // of this bubble
		f.Look = f.now
		done := make(chan error, 1)
		go func() { done <- newWitnesses(f.WitnessOptions, c.serve).run(ctx) }()
		ended := false
		end := func() error {
			ended = true
			return <-done
		}
		time.Sleep(time.Second)
		test(end)
		cancel()
		if !ended {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if left := c.running(t); left != "" && len(c.stuck) == 0 {
			t.Errorf("still running: %s", left)
		}
		close(c.free)
		time.Sleep(time.Minute)
	})
}

func (f *folderOf) shown(name string) WitnessCluster {
	f.t.Helper()
	lock, err := lockWitness(f.RunDir) // as RunWitnesses does
	if err != nil {
		f.t.Fatal(err)
	}
	defer lock.Close()
	all, err := ReadWitness(f.RunDir)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, c := range all {
		if c.Name == name {
			return c
		}
	}
	return WitnessCluster{}
}

func TestFolderIsFollowed(t *testing.T) {
	f, c := newFolder(t), newFlock()
	f.put("one", "one", "192.0.2.3", 7846)
	f.put("two", "two", "192.0.2.4", 7846)
	f.write("three.toml", "[cluster\n", 0o644)
	watching(t, f, c, func(func() error) {
		expect := func(what, want string) {
			t.Helper()
			time.Sleep(2 * lookEvery)
			if got := c.running(t); got != want {
				t.Errorf("%s: %q runs, want %q", what, got, want)
			}
		}
		expect("at first", "one two")
		if s := f.shown("three"); s.State != WitnessRefused || !strings.Contains(s.Error, "three.toml") {
			t.Errorf("the broken file is shown as %+v", s)
		}
		f.put("three", "three", "192.0.2.5", 7846)
		expect("mended", "one three two")
		f.write("two.toml", "[cluster\n", 0o644)
		expect("broken while it runs", "one three two")
		if s := f.shown("two"); s.State != WitnessServing || s.Error == "" {
			t.Errorf("it is shown as %+v", s)
		}
		f.put("two", "two", "192.0.2.4", 7846)
		expect("mended as it was", "one three two")
		if n := c.starts("two"); n != 1 {
			t.Errorf("a file that was broken for a while cost %d starts", n)
		}
		f.put("two", "two", "192.0.2.4", 7000)
		expect("changed", "one three two")
		if n := c.starts("two"); n != 2 {
			t.Errorf("a changed file led to %d starts, want 2", n)
		}
		f.put("four", "four", "192.0.2.3", 7846)
		expect("in the way of one", "one three two")
		f.remove("one.toml")
		expect("out of the way", "four three two")
		f.remove("two.key")
		expect("without its key", "four three two")
		if n := c.starts("three"); n != 1 {
			t.Errorf("the others cost three %d starts", n)
		}
	})
}

func TestSignalHasTheFolderLookedAt(t *testing.T) {
	f, c := newFolder(t), newFlock()
	watching(t, f, c, func(func() error) {
		f.put("one", "one", "192.0.2.3", 7846)
		time.Sleep(time.Second)
		if got := c.running(t); got != "" {
			t.Fatalf("%q runs although nobody looked", got)
		}
		f.now <- syscall.SIGHUP
		synctest.Wait()
		time.Sleep(time.Millisecond)
		if got := c.running(t); got != "one" {
			t.Errorf("%q runs", got)
		}
	})
}

// A cluster that fails is tried again, less and less often, and disturbs no other.
func TestFailureEndsOneClusterAlone(t *testing.T) {
	f, c := newFolder(t), newFlock()
	f.put("ill", "ill", "192.0.2.3", 7846)
	f.put("well", "well", "192.0.2.4", 7846)
	c.fails["ill"] = fmt.Errorf("log store: %w", consensus.ErrStoreFull)
	watching(t, f, c, func(func() error) {
		time.Sleep(10 * time.Minute)
		if n := c.starts("ill"); n < 10 || n > 20 {
			t.Errorf("%d attempts in ten minutes, want about one a minute", n)
		}
		if n := c.starts("well"); n != 1 || c.running(t) != "well" {
			t.Errorf("%d starts of the other one, and %q runs", n, c.running(t))
		}
		if s := f.shown("ill"); s.State != WitnessFailed || !strings.Contains(s.Error, "full") {
			t.Errorf("shown as %+v", s)
		}
		c.set(func() { delete(c.fails, "ill") })
		time.Sleep(longestRetry)
		if got := c.running(t); got != "ill well" {
			t.Errorf("%q runs after it was mended", got)
		}
	})
}

// A disk that hangs may write at any time: the cluster is not served again in this process, whatever becomes of its
// file, and the others go on.
func TestHungIsNotServedAgain(t *testing.T) {
	f, c := newFolder(t), newFlock()
	f.put("hung", "hung", "192.0.2.3", 7846)
	f.put("well", "well", "192.0.2.4", 7846)
	c.fails["hung"] = fmt.Errorf("log store: %w", consensus.ErrStoreHung)
	watching(t, f, c, func(func() error) {
		time.Sleep(2 * longestRetry)
		c.set(func() { delete(c.fails, "hung") })
		f.put("hung", "hung", "192.0.2.3", 7000)
		time.Sleep(2 * longestRetry)
		f.remove("hung.toml")
		time.Sleep(2 * longestRetry)
		f.put("hung", "hung", "192.0.2.3", 7846)
		time.Sleep(2 * longestRetry)
		if n := c.starts("hung"); n != 1 || c.running(t) != "well" {
			t.Errorf("started %d times; %q runs", n, c.running(t))
		}
		if s := f.shown("hung"); s.State != WitnessLost || !strings.Contains(s.Error, "hangs") {
			t.Errorf("shown as %+v", s)
		}
	})
}

// Where every cluster is lost, the process is of no use: the next one may have more luck.
func TestAllLostEndsTheProcess(t *testing.T) {
	f, c := newFolder(t), newFlock()
	f.put("one", "one", "192.0.2.3", 7846)
	f.put("two", "two", "192.0.2.4", 7846)
	c.fails["one"], c.fails["two"] = consensus.ErrStoreHung, consensus.ErrStoreHung
	watching(t, f, c, func(end func() error) {
		if err := end(); !errors.Is(err, errAllLost) || !errors.Is(err, consensus.ErrStoreHung) {
			t.Errorf("ended with %v", err)
		}
	})
}

// What does not end is not started beside itself.
func TestStuckIsNotServedTwice(t *testing.T) {
	f, c := newFolder(t), newFlock()
	f.put("one", "one", "192.0.2.3", 7846)
	f.put("two", "two", "192.0.2.4", 7846)
	c.stuck["one"] = true
	watching(t, f, c, func(func() error) {
		f.put("one", "one", "192.0.2.3", 7000)
		f.put("two", "two", "192.0.2.4", 7000)
		time.Sleep(3 * lookEvery)
		if n := c.starts("two"); n != 2 {
			t.Errorf("the other one was held up: %d starts", n)
		}
		time.Sleep(2 * longestRetry)
		if n := c.starts("one"); n != 1 || c.running(t) != "one two" {
			t.Errorf("started %d times; %q runs", n, c.running(t))
		}
		if s := f.shown("one"); s.State != WitnessLost {
			t.Errorf("shown as %+v", s)
		}
	})
}
