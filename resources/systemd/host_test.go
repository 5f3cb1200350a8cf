//go:build systemdhost

package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
)

// Tests with a real systemd.

const unitDir = "/etc/systemd/system"

func systemctl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemctl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func property(t testing.TB, unit, name string) string {
	t.Helper()
	return systemctl(t, "show", "-P", name, unit)
}

// writeUnit gives the host a unit, and takes it away after the test, with all that it left.
func writeUnit(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(unitDir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, args := range [][]string{{"kill", "--signal=KILL", name}, {"stop", name}, {"disable", "--no-reload", name}, {"disable", "--no-reload", "--runtime", name}, {"reset-failed", name}} {
			_ = exec.Command("systemctl", args...).Run() // whatever applies
		}
		os.Remove(filepath.Join(unitDir, name))
		os.RemoveAll(filepath.Join(runtimeUnits, name+".d"))
		systemctl(t, "daemon-reload")
	})
	systemctl(t, "daemon-reload")
}

// within fails if the call takes longer than the bound.
func within(t testing.TB, what string, bound time.Duration, call func()) {
	t.Helper()
	begun := time.Now()
	call()
	if took := time.Since(begun); took > bound {
		t.Errorf("%s took %s, more than %s", what, took, bound)
	}
}

func noJobs(t testing.TB) {
	t.Helper()
	if jobs := systemctl(t, "list-jobs", "--no-legend"); !strings.Contains(jobs, "No jobs") && jobs != "" {
		t.Errorf("jobs are left: %s", jobs)
	}
}

func mainPID(t testing.TB, unit string) int {
	t.Helper()
	pid, err := strconv.Atoi(property(t, unit, "MainPID"))
	if err != nil || pid == 0 {
		t.Fatalf("main PID of %s: %d %v", unit, pid, err)
	}
	return pid
}

func environ(t testing.TB, pid int) []string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(b), "\x00")
}

func TestLife(t *testing.T) {
	for _, unit := range []string{"life.service", "life@.service"} {
		t.Run(unit, func(t *testing.T) {
			writeUnit(t, unit, "[Service]\nType=exec\nExecStart=sleep 1d\nRestart=always\n")
			name := strings.Replace(unit, "@", "@one", 1)
			s := newService(t, name, 7)
			wantState(t, s, resources.Inactive)
			if err := s.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			mustStart(t, s)
			wantState(t, s, resources.Active)
			pid := mainPID(t, name)
			for _, v := range envOf(7).Environ() {
				if !slices.Contains(environ(t, pid), v) {
					t.Errorf("the service lacks %s", v)
				}
			}
			if before := property(t, name, "Before"); !slices.Contains(strings.Fields(before), groupsTarget) {
				t.Errorf("at shutdown hamgr is not stopped first: Before=%s", before)
			}
			if restart := property(t, name, "Restart"); restart != "no" {
				t.Errorf("Restart=%s", restart)
			}
			mustStart(t, s)                      // it is active already
			mustStart(t, newService(t, name, 7)) // the daemon was restarted
			if mainPID(t, name) != pid {
				t.Error("it was started again")
			}
			other := newService(t, name, 8)
			if detail := wantState(t, other, resources.Failed); !strings.Contains(detail, "token 7") {
				t.Errorf("detail %q", detail)
			}
			wantError(t, other.Start(t.Context()), "token 7", "must be stopped first")
			mustStop(t, other)
			mustStop(t, other)
			if _, err := os.Stat(other.dropInPath(name)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the drop-in is left: %v", err)
			}
			mustStart(t, other)
			if pid := mainPID(t, name); !slices.Contains(environ(t, pid), "HAMGR_TOKEN=8") {
				t.Errorf("environment %q", environ(t, pid))
			}
			mustStop(t, other)
			noJobs(t)
		})
	}
}

// systemd remembers a unit that has failed, and with it the token of the grant before.
func TestTokenOfNextGrant(t *testing.T) {
	writeUnit(t, "again.service", "[Service]\nType=exec\nExecStart=sleep 1d\n")
	for token := range uint64(3) {
		s := newService(t, "again.service", token+1)
		mustStart(t, s)
		pid := mainPID(t, "again.service")
		if want := fmt.Sprintf("HAMGR_TOKEN=%d", token+1); !slices.Contains(environ(t, pid), want) {
			t.Errorf("environment %q lacks %s", environ(t, pid), want)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for begun := time.Now(); property(t, "again.service", "ActiveState") != "failed"; time.Sleep(10 * time.Millisecond) {
			if time.Since(begun) > 5*time.Second {
				t.Fatal("it does not fail")
			}
		}
		mustStop(t, s)
	}
}

func TestStartedBySomebodyElse(t *testing.T) {
	writeUnit(t, "foreign.service", "[Service]\nExecStart=sleep 1d\n")
	systemctl(t, "start", "foreign.service")
	s := newService(t, "foreign.service", 1)
	wantState(t, s, resources.Failed)
	wantError(t, s.Start(t.Context()), "without a grant", "must be stopped first")
	mustStop(t, s)
	mustStart(t, s)
	mustStop(t, s)
}

func TestSlowStart(t *testing.T) {
	writeUnit(t, "slow.service", "[Service]\nType=notify\nNotifyAccess=all\nExecStart=sh -c 'sleep 0.5; systemd-notify --ready; sleep 1d'\n")
	s := newService(t, "slow.service", 1)
	begun := time.Now()
	mustStart(t, s)
	if took := time.Since(begun); took < 500*time.Millisecond {
		t.Errorf("the start did not wait: %s", took)
	}
	mustStop(t, s)

	const bound = 150 * time.Millisecond
	within(t, "a start with a deadline", bound+300*time.Millisecond, func() {
		err := s.Start(deadline(t, bound))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("start: %v", err)
		}
	})
	mustStop(t, s)
	noJobs(t)
}

// A job that waits for another one is taken back when nobody waits for it any more.
func TestQueuedStartIsCancelled(t *testing.T) {
	writeUnit(t, "first.service", "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=sleep 3\n")
	writeUnit(t, "second.service", "[Unit]\nRequires=first.service\nAfter=first.service\n[Service]\nExecStart=sleep 1d\n")
	s := newService(t, "second.service", 1)
	if err := s.Start(deadline(t, 300*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("start: %v", err)
	}
	if err := s.starts.settled(t.Context(), "second.service"); err != nil {
		t.Fatal(err)
	}
	if jobs := systemctl(t, "list-jobs", "--no-legend"); strings.Contains(jobs, "second.service") {
		t.Errorf("jobs: %s", jobs)
	}
	mustStop(t, s)
	systemctl(t, "stop", "first.service")
}

// A stop takes a start along that somebody else has queued.
func TestStopEndsQueuedStart(t *testing.T) {
	writeUnit(t, "first.service", "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=sleep 3\n")
	writeUnit(t, "second.service", "[Unit]\nRequires=first.service\nAfter=first.service\n[Service]\nExecStart=sleep 1d\n")
	systemctl(t, "start", "--no-block", "second.service")
	s := newService(t, "second.service", 1)
	if detail := wantState(t, s, resources.Failed); !strings.Contains(detail, "queued") {
		t.Errorf("detail %q", detail)
	}
	mustStop(t, s)
	if jobs := systemctl(t, "list-jobs", "--no-legend"); strings.Contains(jobs, "second.service") {
		t.Errorf("jobs: %s", jobs)
	}
	systemctl(t, "stop", "first.service")
}

func TestFailedStart(t *testing.T) {
	writeUnit(t, "broken.service", "[Service]\nType=oneshot\nExecStart=false\nRemainAfterExit=yes\n")
	for name, c := range map[string]struct {
		unit  string
		words []string
	}{
		"status":     {"[Service]\nType=notify\nExecStart=sh -c 'exit 3'\n", []string{"job failed", "Result", "status 3", "journalctl -u bad.service"}},
		"signal":     {"[Service]\nType=notify\nExecStart=sh -c 'kill -SEGV $$$$'\n", []string{"job failed", "SIGSEGV"}},
		"timeout":    {"[Service]\nType=notify\nTimeoutStartSec=200ms\nExecStart=sleep 1d\n", []string{"job failed", "Result timeout"}},
		"job":        {"[Unit]\nJobTimeoutSec=200ms\n[Service]\nType=notify\nExecStart=sleep 1d\n", []string{"took longer than systemd allows"}},
		"dependency": {"[Unit]\nRequires=broken.service\nAfter=broken.service\n[Service]\nExecStart=sleep 1d\n", []string{"something that the unit needs did not start"}},
		"condition":  {"[Unit]\nConditionPathExists=/nowhere\n[Service]\nExecStart=sleep 1d\n", []string{"condition"}},
		"assertion":  {"[Unit]\nAssertPathExists=/nowhere\n[Service]\nExecStart=sleep 1d\n", []string{"assertion"}},
		"program":    {"[Service]\nType=exec\nExecStart=/nowhere\n", []string{"job failed", "status 203"}},
	} {
		t.Run(name, func(t *testing.T) {
			writeUnit(t, "bad.service", c.unit)
			s := newService(t, "bad.service", 1)
			err := s.Start(deadline(t, 10*time.Second))
			wantError(t, err, c.words...)
			t.Log(err)
			mustStop(t, s)
			noJobs(t)
		})
	}
}

func TestReadyAfter(t *testing.T) {
	writeUnit(t, "short.service", "[Service]\nType=exec\nExecStart=sleep 0.2\n")
	o := Options{Unit: "short.service", ReadyAfter: 2 * time.Second}
	r, err := o.New(envOf(1))
	if err != nil {
		t.Fatal(err)
	}
	within(t, "the start", time.Second, func() { wantError(t, r.Start(t.Context()), "inactive", "journalctl") })
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestStop(t *testing.T) {
	const stubborn = "[Service]\nType=notify\nNotifyAccess=all\nExecStart=sh -c 'trap \"\" TERM; systemd-notify --ready; while :; do sleep 0.1; done'\n"
	t.Run("killed by its unit", func(t *testing.T) {
		writeUnit(t, "stubborn.service", stubborn+"TimeoutStopSec=300ms\n")
		s := newService(t, "stubborn.service", 1)
		mustStart(t, s)
		mustStop(t, s)
		wantState(t, s, resources.Inactive)
	})
	t.Run("never killed", func(t *testing.T) {
		writeUnit(t, "stubborn.service", stubborn+"SendSIGKILL=no\nTimeoutStopSec=200ms\n")
		s := newService(t, "stubborn.service", 1)
		mustStart(t, s)
		pid := mainPID(t, "stubborn.service")
		within(t, "the stop", 1100*time.Millisecond, func() {
			err := s.Stop(deadline(t, 800*time.Millisecond))
			wantError(t, err, "stubborn.service", "journalctl")
			t.Log(err)
		})
		if err := syscall.Kill(pid, 0); err != nil {
			t.Errorf("it was killed although its unit forbids it: %v", err)
		}
		if state, _, _ := s.Probe(t.Context()); state == resources.Inactive {
			t.Error("it is taken for inactive")
		}
		systemctl(t, "kill", "--signal=KILL", "stubborn.service")
		mustStop(t, s)
	})
	t.Run("slow", func(t *testing.T) {
		writeUnit(t, "stubborn.service", stubborn+"TimeoutStopSec=1s\n")
		s := newService(t, "stubborn.service", 1)
		mustStart(t, s)
		wantError(t, s.Stop(deadline(t, 500*time.Millisecond)), "stubborn.service")
		wantState(t, s, resources.Failed)
		mustStop(t, s)
	})
	t.Run("processes left", func(t *testing.T) {
		writeUnit(t, "leaver.service", "[Service]\nType=exec\nKillMode=process\nExecStart=sh -c 'sleep 86397 & exec sleep 86396'\n")
		s := newService(t, "leaver.service", 1)
		mustStart(t, s)
		err := s.Stop(deadline(t, 2*time.Second))
		wantError(t, err, "sleep 86397")
		t.Log(err)
		if detail := wantState(t, s, resources.Failed); !strings.Contains(detail, "sleep 86397") {
			t.Errorf("detail %q", detail)
		}
		systemctl(t, "kill", "--signal=KILL", "leaver.service")
		mustStop(t, s)
	})
}
