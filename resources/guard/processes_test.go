package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The test binary is its own helper: with this variable set it is one writer.
const roleVariable = "GUARD_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "writer":
		os.Exit(writer(os.Args[1], os.Args[2]))
	case "run":
		os.Exit(runner(os.Args[1], os.Args[2], os.Args[3:]))
	default:
		fmt.Fprintln(os.Stderr, "unknown role", role)
		os.Exit(2)
	}
}

func helper(t *testing.T, role string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

// writer appends "begin TOKEN PID" and "end TOKEN PID" around a while of work, until its token is refused.
func writer(dir, number string) int {
	token, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 2
	}
	g, err := Open(dir)
	if err != nil {
		return 3
	}
	ledger, err := os.OpenFile(filepath.Join(dir, "ledger"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 3
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		err := g.Do(ctx, "db", token, func() error {
			fmt.Fprintf(ledger, "begin %d %d\n", token, os.Getpid())
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
			fmt.Fprintf(ledger, "end %d %d\n", token, os.Getpid())
			return nil
		})
		var r *Refused
		if errors.As(err, &r) {
			return 0
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "writer:", err)
			return 1
		}
	}
}

// Two processes for each of many growing tokens, some killed in the middle of whatever
// they do: the ledger must show no lower token after a higher one, and no write that is
// still open when a higher token's begins.
func TestProcessesRace(t *testing.T) {
	const tokens = 25
	dir := t.TempDir()
	killed := map[int]bool{}
	var writers []*exec.Cmd
	for token := 1; token <= tokens; token++ {
		for range 2 {
			w := helper(t, "writer", dir, strconv.Itoa(token))
			if err := w.Start(); err != nil {
				t.Fatal(err)
			}
			writers = append(writers, w)
		}
		time.Sleep(time.Duration(5+rand.IntN(25)) * time.Millisecond) // a phase of the race, not a wait for anything
		if token%3 == 0 {
			victim := writers[len(writers)-1-rand.IntN(2)]
			killed[victim.Process.Pid] = true
			_ = victim.Process.Kill()
		}
	}
	if err := open(t, dir).Check(t.Context(), "db", tokens+1); err != nil {
		t.Errorf("after the race: %v", err)
	}
	for _, w := range writers {
		if err := w.Wait(); err != nil && !killed[w.Process.Pid] {
			t.Errorf("writer %d: %v", w.Process.Pid, err)
		}
	}
	checkLedger(t, filepath.Join(dir, "ledger"), killed)
}

func checkLedger(t *testing.T, path string, killed map[int]bool) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	highest, seen, open := 0, map[int]bool{}, map[int]int{} // open: PID to token
	for line := range strings.Lines(string(b)) {
		var what string
		var token, pid int
		if _, err := fmt.Sscanf(line, "%s %d %d", &what, &token, &pid); err != nil {
			t.Fatalf("ledger line %q: %v", line, err)
		}
		if token < highest {
			t.Errorf("%q after token %d", strings.TrimSpace(line), highest)
		}
		highest, seen[token] = max(highest, token), true
		if what == "end" {
			delete(open, pid)
			continue
		}
		for other, lower := range open {
			if lower < token && !killed[other] {
				t.Errorf("token %d writes while process %d still writes under %d", token, other, lower)
			}
		}
		open[pid] = token
	}
	if len(seen) < 5 {
		t.Errorf("only %d tokens ever wrote: that was no race", len(seen))
	}
}

// runner is what `hamgr guard` does: it runs a command and exits with its status.
func runner(dir, number string, argv []string) int {
	g, err := Open(dir)
	if err != nil {
		return 120
	}
	token, _ := strconv.ParseUint(number, 10, 64)
	os.Unsetenv(roleVariable)
	status, err := g.Run(context.Background(), "db", token, argv)
	var r *Refused
	switch {
	case errors.As(err, &r):
		return 121
	case err != nil:
		return 122
	}
	return status
}

func TestRunPassesTheStatus(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		token string
		argv  []string
		want  int
	}{
		{"5", []string{"true"}, 0},
		{"5", []string{"sh", "-c", "exit 42"}, 42},
		{"5", []string{"sh", "-c", "kill -9 $$"}, 128 + 9},
		{"5", []string{"no-such-program-at-all"}, 122},
		{"4", []string{"sh", "-c", "touch " + dir + "/written"}, 121},
	} {
		cmd := helper(t, "run", append([]string{dir, test.token}, test.argv...)...)
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != test.want {
			t.Errorf("%v under token %s: status %d, want %d", test.argv, test.token, got, test.want)
		}
	}
	if _, err := os.Stat(dir + "/written"); err == nil {
		t.Error("a refused command ran")
	}
}

// The lock is the command's: killing the process that guards it lets no higher token in.
func TestCommandKeepsTheLockWhenItsGuardIsKilled(t *testing.T) {
	dir := t.TempDir()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := helper(t, "run", dir, "1", "sh", "-c", "echo up; read line")
	up, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if _, err := up.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	g := open(t, dir)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := g.Check(short, "db", 2); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("higher token beside the running command: %v", err)
	}
	out.Close() // ends the command
	long, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := g.Check(long, "db", 2); err != nil {
		t.Errorf("after the command: %v", err)
	}
}

// Whatever moment a raise is killed at, the record is the old or the new one.
func TestKilledWhileRaising(t *testing.T) {
	dir := t.TempDir()
	for round := range 15 {
		token := strconv.Itoa(round + 1)
		w := helper(t, "writer", dir, token)
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(12)) * time.Millisecond) // a random moment
		_ = w.Process.Kill()
		_ = w.Wait()
		b, err := os.ReadFile(filepath.Join(dir, "db.token"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if _, _, perr := parseRecord(b); err != nil || perr != nil || bytes.Count(b, []byte("\n")) != 1 {
			t.Fatalf("record %q: %v %v", b, err, perr)
		}
	}
	if err := open(t, dir).Check(t.Context(), "db", 100); err != nil {
		t.Error(err)
	}
}
