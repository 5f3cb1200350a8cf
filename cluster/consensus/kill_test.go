package consensus

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

var kills = flag.Int("kills", 60, "how often the process that writes the log is killed")

// killedVariable makes the test binary the process that is killed: a voter whose log is overwritten by new leaders.
const killedVariable = "CONSENSUS_TEST_KILLED"

func init() {
	var dir string
	var seed uint64
	if n, _ := fmt.Sscanf(os.Getenv(killedVariable), "%d %s", &seed, &dir); n == 2 {
		fmt.Fprintln(os.Stderr, overwriteUntilKilled(dir, seed))
		os.Exit(1)
	}
}

// overwriteUntilKilled tells of each call that returned.
func overwriteUntilKilled(dir string, seed uint64) error {
	s, err := openDir(dir)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(seed, 1))
	for n := 1; ; n++ {
		if err := overwritten(random, s.log); err != nil {
			return err
		}
		if _, err := os.Stdout.WriteString(strconv.Itoa(n) + "\n"); err != nil {
			return err
		}
	}
}

// overwritten is the next call of a follower whose leaders change: entries, then a new term, the end of the log deleted, often
// all of it and often to where a former leader began, and others in its place.
func overwritten(random *rand.Rand, s logStore) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	term, err := s.GetUint64([]byte(keyCurrentTerm))
	if err != nil && !errors.Is(err, errNotFound) {
		return err
	}
	switch what := random.IntN(10); {
	case what == 0:
		return s.SetUint64([]byte(keyCurrentTerm), term%100+1)
	case what == 1:
		return s.SetUint64([]byte(keyVoteTerm), term)
	case what == 2:
		return s.Set([]byte(keyVoteCandidate), fmt.Appendf(nil, "node/%d", random.IntN(100)))
	case what < 5 && last != 0:
		return s.DeleteRange(last-min(last-first, uint64(random.IntN(40))), last)
	case what == 5 && last-first > 100:
		return s.DeleteRange(first, first+50)
	}
	entries := someEntries(last+1, last+1+uint64(random.IntN(20)))
	for _, e := range entries {
		e.Term, e.Data = term, make([]byte, random.IntN(400))
	}
	return s.StoreLogs(entries)
}

// TestKilledWhileItsLogIsOverwritten: a process is killed, again and again, while a new leader overwrites its log. Each
// time it starts again, with every call that had returned, and at most the one that had not.
func TestKilledWhileItsLogIsOverwritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openDir(dir)
	if err == nil {
		_, err = loadIdentity(s, "alpha")
	}
	if err = errors.Join(err, s.close()); err != nil {
		t.Fatal(err)
	}
	var state content
	calls, late := 0, 0
	for seed := range uint64(*kills) {
		returned := killed(t, dir, seed)
		s, err := openDir(dir)
		if err != nil {
			t.Fatalf("killed after %d calls, round %d: %v", returned, seed, err)
		}
		got := mustContent(t, s.log)
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		model, random := MemoryStores().log, rand.New(rand.NewPCG(seed, 1))
		state.put(t, model)
		for range returned {
			if err := overwritten(random, model); err != nil {
				t.Fatal(err)
			}
		}
		want := mustContent(t, model)
		if !reflect.DeepEqual(got, want) {
			late++
			if err := overwritten(random, model); err != nil {
				t.Fatal(err)
			}
			if next := mustContent(t, model); !reflect.DeepEqual(got, next) {
				t.Fatalf("round %d: %d calls had returned, and it holds %s; it should be %s or %s", seed, returned, got.brief(), want.brief(), next.brief())
			}
		}
		state = got
		calls += returned
	}
	t.Logf("killed %d times in %d calls; of the last call there was all in %d, nothing in the rest", *kills, calls, late)
	if calls < *kills/2 {
		t.Error("hardly a call returned: the test does not test")
	}
}

// put gives a store that content.
func (c content) put(t *testing.T, s logStore) {
	t.Helper()
	var entries []*raft.Log
	for i := range c.entries {
		entries = append(entries, &c.entries[i])
	}
	err := errors.Join(s.SetUint64([]byte(keyCurrentTerm), c.term), s.SetUint64([]byte(keyVoteTerm), c.voteTerm))
	if c.vote != "" {
		err = errors.Join(err, s.Set([]byte(keyVoteCandidate), []byte(c.vote)))
	}
	if len(entries) > 0 {
		err = errors.Join(err, s.StoreLogs(entries))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// killed runs a process on the folder, kills it, and returns how many of its calls had returned.
func killed(t *testing.T, dir string, seed uint64) (returned int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", killedVariable, seed, dir))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed, 2))
	lines := bufio.NewScanner(out)
	if seed%5 != 0 { // else it is killed in its start
		if !lines.Scan() {
			t.Error("the process ended by itself")
		}
		returned = 1
	}
	time.AfterFunc(time.Duration(random.IntN(20_000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
	for lines.Scan() {
		if n, err := strconv.Atoi(lines.Text()); err == nil {
			returned = n
		}
	}
	var end *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &end) || end.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the process ended with %v", err)
	}
	return returned
}
