package process

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const threadVariable = "PROCESS_TEST_FIRST_THREAD"

// A child that is this binary ends its first thread, on which init functions run, and goes on with the others.
func init() {
	if os.Getenv(threadVariable) == "" {
		return
	}
	go func() { time.Sleep(time.Minute); os.Exit(0) }()
	runtime.LockOSThread()
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

func TestEnvironWithoutFirstThread(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), threadVariable+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var p Process
	for end := time.Now().Add(20 * time.Second); p.State != 'Z'; time.Sleep(time.Millisecond) {
		var err error
		if p, err = Look(cmd.Process.Pid); err != nil || time.Now().After(end) {
			t.Fatalf("%+v: %v", p, err)
		}
	}
	if p.Ended() || p.Leaving() || !p.Exiting {
		t.Errorf("%+v", p)
	}
	if env, err := p.Environ(); err != nil || !strings.Contains(string(env), threadVariable+"=1\x00") {
		t.Errorf("environment %q: %v", env, err)
	}
}

// Who was seen before is waited for, even if nothing leads to him any more.
func TestEndKnown(t *testing.T) {
	p, reap := start(t, "sleep", "60")
	err := Ending{
		Find:   func(context.Context) ([]Process, error) { return nil, nil },
		Known:  []Process{p},
		Signal: unix.SIGTERM, Grace: time.Minute,
	}.End(within(t, 20*time.Second))
	if now, lookErr := Look(p.PID); err != nil || lookErr != nil || !now.Ended() {
		t.Errorf("%v: %+v %v", err, now, lookErr)
	}
	reap()
}

func TestAwaitLeaving(t *testing.T) {
	p, _ := start(t, "sleep", "60")
	begun := time.Now()
	if err := AwaitLeaving(t.Context(), []Process{p}); err != nil || time.Since(begun) < leavingTime {
		t.Errorf("one that stays was waited for %s: %v", time.Since(begun), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := AwaitLeaving(ctx, []Process{p}); err != context.Canceled {
		t.Errorf("%v", err)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
