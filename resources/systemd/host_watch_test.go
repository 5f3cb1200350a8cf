//go:build systemdhost

package systemd

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
)

// soon is how quickly a death is noticed, on a machine that is busy with other things, too. There is no look that finds it later.
const soon = 600 * time.Millisecond

const sleeper = "[Service]\nType=exec\nExecStart=sleep 1d\n"

func TestDied(t *testing.T) {
	for name, c := range map[string]struct {
		unit  string
		how   func(t *testing.T, unit string)
		words []string
		left  bool
	}{
		"killed":                   {sleeper, func(t *testing.T, unit string) { syscall.Kill(mainPID(t, unit), syscall.SIGKILL) }, []string{"failed", "SIGKILL", "journalctl -u watched.service"}, false},
		"ended":                    {sleeper + "SuccessExitStatus=TERM\n", func(t *testing.T, unit string) { syscall.Kill(mainPID(t, unit), syscall.SIGTERM) }, []string{"inactive"}, false},
		"its own restarts are off": {sleeper + "Restart=always\nRestartSec=0\n", func(t *testing.T, unit string) { syscall.Kill(mainPID(t, unit), syscall.SIGKILL) }, []string{"failed", "SIGKILL"}, false},
		"stopped by hand":          {sleeper, func(t *testing.T, unit string) { systemctl(t, "stop", "--no-block", unit) }, nil, false},
		"restarted by hand":        {sleeper, func(t *testing.T, unit string) { systemctl(t, "restart", "--no-block", unit) }, nil, true},
		"restarted by systemd": {"[Service]\nType=exec\nExecStart=sh -c 'sleep 1; exit 9'\nRestartForceExitStatus=9\nRestartSec=0\n",
			func(t *testing.T, unit string) { time.Sleep(time.Second) }, []string{"restart"}, true},
		"stops for long": {"[Service]\nType=exec\nExecStart=sh -c 'trap \"sleep 1; exit\" TERM; sleep 86394'\nExecStopPost=sleep 0.5\n",
			func(t *testing.T, unit string) { syscall.Kill(mainPID(t, unit), syscall.SIGKILL) }, []string{"deactivating"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			writeUnit(t, "watched.service", c.unit)
			s := newService(t, "watched.service", 1)
			mustStart(t, s)
			reason := died(t, s)
			c.how(t, "watched.service")
			bound := soon
			if name == "restarted by systemd" {
				bound = time.Second // it ends about then
			}
			wantDeath(t, reason, bound, c.words...)
			if state, detail, err := s.Probe(t.Context()); state == resources.Active || err != nil {
				t.Errorf("the monitor finds it %s (%s), %v", state, detail, err)
			}
			mustStop(t, s)
			mustStart(t, s) // it has not lost its way
			mustStop(t, s)
		})
	}
}

// A restart that is over when somebody looks is found all the same.
func TestRestartIsFoundByMonitor(t *testing.T) {
	writeUnit(t, "watched.service", sleeper)
	s := newService(t, "watched.service", 1)
	mustStart(t, s)
	systemctl(t, "restart", "watched.service")
	if detail := wantState(t, s, resources.Failed); !strings.Contains(detail, "restarted") {
		t.Errorf("detail %q", detail)
	}
	mustStop(t, s)
}

// Neither reading all units again nor a new systemd is a death; what comes after it is noticed.
func TestReloadIsNoDeath(t *testing.T) {
	writeUnit(t, "watched.service", sleeper)
	s := newService(t, "watched.service", 1)
	mustStart(t, s)
	reason := died(t, s)
	for _, verb := range []string{"daemon-reload", "daemon-reexec", "daemon-reload"} {
		systemctl(t, verb)
		for begun := time.Now(); ; {
			state, detail, err := s.Probe(deadline(t, 2*time.Second))
			if state == resources.Active {
				break
			}
			if err == nil || time.Since(begun) > 5*time.Second {
				t.Fatalf("after %s: %s, %q, %v", verb, state, detail, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	select {
	case err := <-reason:
		t.Fatalf("taken for dead: %v", err)
	case <-time.After(2 * reconnectPause):
	}
	syscall.Kill(mainPID(t, "watched.service"), syscall.SIGKILL)
	wantDeath(t, reason, soon, "SIGKILL")
	mustStop(t, s)
}

// A daemon that was restarted follows what it finds.
func TestDiedAfterRestartOfDaemon(t *testing.T) {
	writeUnit(t, "watched.service", sleeper)
	mustStart(t, newService(t, "watched.service", 1))
	s := newService(t, "watched.service", 1)
	wantState(t, s, resources.Active)
	reason := died(t, s)
	syscall.Kill(mainPID(t, "watched.service"), syscall.SIGKILL)
	wantDeath(t, reason, soon, "SIGKILL")
	mustStop(t, s)
}

func TestDiedEndsWithItsContext(t *testing.T) {
	writeUnit(t, "watched.service", sleeper)
	s := newService(t, "watched.service", 1)
	mustStart(t, s)
	ctx := deadline(t, 100*time.Millisecond)
	within(t, "Died", soon, func() {
		if err := s.Died(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("died: %v", err)
		}
	})
	mustStop(t, s)
}

// TestOrderWithDaemon: at shutdown the daemon is stopped before its services, but it need not wait for them
// to come back from a crash.
func TestOrderWithDaemon(t *testing.T) {
	stamps := t.TempDir()
	writeUnit(t, groupsTarget, "[Unit]\n")
	writeUnit(t, "daemon.service", "[Unit]\nWants=hamgr-groups.target\nAfter=hamgr-groups.target\n"+sleeper+
		"Restart=always\nRestartSec=0\nExecStop=sleep 0.3\nExecStopPost=touch "+stamps+"/daemon\n")
	writeUnit(t, "slow.service", "[Service]\nType=notify\nNotifyAccess=all\nExecStart=sh -c 'sleep 2; systemd-notify --ready; sleep 1d'\nExecStopPost=touch "+stamps+"/service\n")
	writeUnit(t, "halt.target", "[Unit]\nConflicts=daemon.service slow.service hamgr-groups.target\n")
	systemctl(t, "start", "daemon.service")
	s := newService(t, "slow.service", 1)
	started := make(chan error, 1)
	go func() { started <- s.Start(t.Context()) }()
	for property(t, "slow.service", "SubState") != "start" {
		time.Sleep(10 * time.Millisecond)
	}
	pid := mainPID(t, "daemon.service")
	syscall.Kill(pid, syscall.SIGKILL)
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if now := property(t, "daemon.service", "MainPID"); now != "0" && now != strconv.Itoa(pid) {
			break
		}
		if time.Since(begun) > time.Second {
			t.Fatal("the daemon has to wait for a service that starts")
		}
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(stamps, "daemon"))
	systemctl(t, "start", "halt.target")
	var times [2]time.Time
	for i, name := range []string{"daemon", "service"} {
		for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			if f, err := os.Stat(filepath.Join(stamps, name)); err == nil {
				times[i] = f.ModTime()
				break
			}
			if time.Since(begun) > 5*time.Second {
				t.Fatalf("%s is not stopped", name)
			}
		}
	}
	if !times[0].Before(times[1]) {
		t.Errorf("the service was stopped %s before the daemon", times[0].Sub(times[1]))
	}
	mustStop(t, s)
}

func openFiles(t testing.TB) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// TestManyStartsAndStops calls off starts and stops at random. Nothing is left of that.
func TestManyStartsAndStops(t *testing.T) {
	writeUnit(t, "busy.service", "[Service]\nType=notify\nNotifyAccess=all\nExecStart=sh -c 'systemd-notify --ready; exec sleep 1d'\n")
	before := openFiles(t)
	begun := time.Now()
	mustStart(t, newService(t, "busy.service", 1))
	undisturbed := time.Since(begun)
	mustStop(t, newService(t, "busy.service", 1))
	started := 0
	for round := range 200 {
		s := newService(t, "busy.service", uint64(round+2))
		err := s.Start(deadline(t, rand.N(undisturbed*3/2)))
		switch {
		case err == nil:
			started++
			wantState(t, s, resources.Active)
		case !errors.Is(err, context.DeadlineExceeded):
			t.Fatalf("round %d: start: %v", round, err)
		}
		if err := s.Stop(deadline(t, time.Duration(rand.IntN(20))*time.Millisecond)); err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("round %d: stop: %v", round, err)
			}
			mustStop(t, newService(t, "busy.service", uint64(round+2)))
		}
		wantState(t, s, resources.Inactive)
	}
	if started == 0 || started == 200 {
		t.Errorf("%d of 200 starts were let through: this tests one thing only", started)
	}
	noJobs(t)
	if after := openFiles(t); after > before {
		t.Errorf("%d open files, before %d", after, before)
	}
	if out, _ := exec.Command("pgrep", "-f", "sleep 1d").Output(); len(out) > 0 {
		t.Errorf("processes are left: %s", out)
	}
	if out := property(t, "busy.service", "ActiveState"); strings.TrimSpace(out) != "inactive" && out != "failed" {
		t.Errorf("it is %s", out)
	}
}

func BenchmarkProbe(b *testing.B) {
	writeUnit(b, "watched.service", sleeper)
	s := newService(b, "watched.service", 1)
	mustStart(b, s)
	m, release, err := s.link.acquire(b.Context()) // as Died does
	if err != nil {
		b.Fatal(err)
	}
	_ = m
	for b.Loop() {
		if state, _, err := s.Probe(b.Context()); err != nil || state != resources.Active {
			b.Fatal(state, err)
		}
	}
	release(true)
	mustStop(b, s)
}

func BenchmarkStartStop(b *testing.B) {
	writeUnit(b, "watched.service", sleeper)
	for b.Loop() {
		s := newService(b, "watched.service", 1)
		mustStart(b, s)
		mustStop(b, s)
	}
}
