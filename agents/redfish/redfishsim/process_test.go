package redfishsim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// machine starts a shell script as a machine, and waits until it says that it is ready
// by making the file ready in its folder.
func machine(t *testing.T, script string) (*ProcessPower, string) {
	t.Helper()
	dir := t.TempDir()
	p := NewProcessPower(func(boot string) *exec.Cmd {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "BOOT="+boot)
		return cmd
	})
	t.Cleanup(func() {
		if err := p.Off(within(t, 10*time.Second)); err != nil {
			t.Error(err)
		}
	})
	powerOn(t, p, dir)
	return p, dir
}

func powerOn(t *testing.T, p *ProcessPower, dir string) {
	t.Helper()
	if err := p.On(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the machine is ready", func() bool {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err == nil
	})
}

// processes gives the living processes of a machine.
func processes(t *testing.T, p *ProcessPower) []int {
	t.Helper()
	pids, err := p.Processes()
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

// writes reports how long the file is that a machine writes to all the time.
func writes(t *testing.T, dir string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func wrote(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "log"))
	return err == nil
}

const writer = `while :; do echo x >>log; sleep 0.01; done`

// escapes are the ways in which a process leaves its machine's session or defends itself.
var escapes = map[string]string{
	"plain":          writer + ` & touch ready; wait`,
	"tree":           `(( ` + writer + ` ) & wait) & touch ready; wait`,
	"own session":    `setsid sh -c '` + writer + `' & touch ready; wait`,
	"daemon":         `( setsid sh -c '` + writer + `' & ) ; touch ready; exec sleep 1000`,
	"leader left":    `setsid sh -c '` + writer + `' & touch ready`,
	"no environment": `env -i PATH="$PATH" setsid sh -c '` + writer + `' & touch ready; wait`,
	"resource":       `env -i PATH="$PATH" HAMGR_BOOT="$BOOT" setsid sh -c '` + writer + `' & touch ready`,
	"ignores":        `trap "" TERM INT HUP QUIT; setsid sh -c 'trap "" TERM INT HUP; ` + writer + `' & touch ready; while :; do sleep 1; done`,
	"stopped":        writer + ` & setsid sh -c 'kill -STOP $$; ` + writer + `' & touch ready; wait`,
	"forks":          writer + ` & f() { while :; do sh -c 'sleep 0.02 & setsid sleep 0.02' & sleep 0.005; done; }; f & f & touch ready; wait`,
}

// TestOffKillsAll: after Off nothing of the machine runs, however it tried to get away.
func TestOffKillsAll(t *testing.T) {
	for name, script := range escapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, dir := machine(t, script)
			eventually(t, "the machine writes", func() bool { return wrote(dir) })
			r := p.current()
			if err := p.Off(within(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
			if p.State() || p.Boot() != "" {
				t.Error("still on after Off")
			}
			if left, err := r.alive(); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			before := writes(t, dir)
			time.Sleep(50 * time.Millisecond)
			if after := writes(t, dir); after != before {
				t.Errorf("something still writes: %d bytes, then %d", before, after)
			}
		})
	}
}

// TestPowerIsNotLife: a machine whose processes died is on, and goes off like any other.
func TestPowerIsNotLife(t *testing.T) {
	p, _ := machine(t, escapes["own session"])
	if err := p.Signal(within(t, 10*time.Second), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if pids := processes(t, p); len(pids) > 0 {
		t.Errorf("survived the crash: %v", pids)
	}
	if !p.State() {
		t.Error("a crash turned the power off")
	}
}

// TestFreeze: SIGSTOP holds the whole machine, SIGCONT lets it go on; a frozen one dies.
func TestFreeze(t *testing.T) {
	p, dir := machine(t, escapes["tree"])
	eventually(t, "the machine writes", func() bool { return wrote(dir) })
	ctx := within(t, 10*time.Second)
	if err := p.Signal(ctx, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	before := writes(t, dir)
	time.Sleep(50 * time.Millisecond)
	if writes(t, dir) != before {
		t.Error("a frozen machine writes")
	}
	if err := p.Signal(ctx, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it writes again", func() bool { return writes(t, dir) > before })
	if err := p.Signal(ctx, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := p.Off(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestBoots: each power-on is a new boot, told to the command; On on a running machine is none.
func TestBoots(t *testing.T) {
	p, dir := machine(t, `printf %s "$BOOT" >boot; touch ready; exec sleep 1000`)
	seen := map[string]bool{}
	for range 3 {
		boot := p.Boot()
		if !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(boot) || seen[boot] {
			t.Fatalf("boot %q after %v", boot, seen)
		}
		seen[boot] = true
		if told, err := os.ReadFile(filepath.Join(dir, "boot")); err != nil || string(told) != boot {
			t.Fatalf("the command was told %q, %v, want %q", told, err, boot)
		}
		if err := p.On(within(t, time.Second)); err != nil || p.Boot() != boot {
			t.Fatalf("On while on: %v, boot %q", err, p.Boot())
		}
		if err := p.Off(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		os.Remove(filepath.Join(dir, "ready"))
		powerOn(t, p, dir)
	}
}

// TestTwoMachines: switching one off leaves the other, and this test, alone.
func TestTwoMachines(t *testing.T) {
	a, _ := machine(t, escapes["own session"])
	b, dir := machine(t, escapes["own session"])
	other := processes(t, b)
	if err := a.Off(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	now := processes(t, b)
	for _, pid := range other[:1] {
		if !slices.Contains(now, pid) {
			t.Errorf("process %d of the other machine is gone", pid)
		}
	}
	eventually(t, "the other machine goes on", func() bool { return wrote(dir) })
	before := writes(t, dir)
	eventually(t, "the other machine goes on", func() bool { return writes(t, dir) > before })
}

// TestOffGivesUp: with its context ended, Off neither kills nor reports off.
func TestOffGivesUp(t *testing.T) {
	p, _ := machine(t, escapes["plain"])
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Off(ctx); !errors.Is(err, context.Canceled) || !p.State() {
		t.Errorf("Off: %v, state %v", err, p.State())
	}
	if err := NewProcessPower(nil).Signal(within(t, time.Second), syscall.SIGTERM); !errors.Is(err, ErrOff) {
		t.Errorf("signal to a machine that is off: %v", err)
	}
}

// TestStartFails: a command that cannot be started leaves the power off.
func TestStartFails(t *testing.T) {
	p := NewProcessPower(func(string) *exec.Cmd { return exec.Command("/nonexistent/daemon") })
	if err := p.On(within(t, time.Second)); err == nil || p.State() {
		t.Errorf("On: %v, state %v", err, p.State())
	}
}

func TestParseStat(t *testing.T) {
	good := `42 (a) b (c) S 7 42 41 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 2` + strings.Repeat(" 0", 28)
	p, err := parseStat(good)
	if err != nil || p.state != 'S' || p.parent != 7 || p.session != 41 || p.started != 98765 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", "42", "42 (x", "42 (x) S", "42 (x) SS 1 2 3" + strings.Repeat(" 0", 30), "42 (x) S y 2 z" + strings.Repeat(" 0", 30)} {
		if p, err := parseStat(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, p)
		}
	}
}

// FuzzParseStat: a process calls itself whatever it likes, and changes nothing but its name.
func FuzzParseStat(f *testing.F) {
	f.Add("a b) Z 1 2 3 (", 41)
	f.Add("", 0)
	f.Add("x) T 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", 7)
	f.Fuzz(func(t *testing.T, name string, session int) {
		p, err := parseStat(fmt.Sprintf("42 (%s) S 7 42 %d 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 2", name, session))
		if err != nil || p.state != 'S' || p.parent != 7 || p.session != session || p.started != 98765 {
			t.Errorf("%+v, %v", p, err)
		}
		parseStat(name) // must not panic
	})
}
