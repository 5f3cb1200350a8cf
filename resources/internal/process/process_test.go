package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a program. It stays a zombie until reap, which may be called more than once.
func start(t *testing.T, argv ...string) (p Process, reap func()) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reap = sync.OnceFunc(func() { _ = cmd.Wait() })
	t.Cleanup(func() { _ = p.Signal(unix.SIGKILL); reap() })
	p, err := Look(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p, reap
}

func TestLook(t *testing.T) {
	p, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	if p.PID != os.Getpid() || p.Parent != os.Getppid() || p.Group != unix.Getpgrp() || p.Start == 0 || p.Threads < 2 || p.Ended() {
		t.Errorf("self: %+v", p)
	}
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, q := range all {
		found = found || q.Same(p)
	}
	if !found {
		t.Error("self is not among all")
	}
}

func TestParseStat(t *testing.T) {
	tail := " S 1 7 8 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 4096 9 18446744073709551615\n"
	for in, want := range map[string]Process{
		"42 (sh)" + tail:            {PID: 42, Start: 12345, Name: "sh", State: 'S', Parent: 1, Group: 7, Session: 8, Threads: 3},
		"42 (a) R 0 (b)" + tail:     {PID: 42, Start: 12345, Name: "a) R 0 (b", State: 'S', Parent: 1, Group: 7, Session: 8, Threads: 3},
		"42 (\n 1 (Z) \xff)" + tail: {PID: 42, Start: 12345, Name: "\n 1 (Z) \xff", State: 'S', Parent: 1, Group: 7, Session: 8, Threads: 3},
		"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 10 0 0": {PID: 2, Start: 10, Name: "kthreadd", State: 'S', Threads: 1, Kernel: true},
	} {
		if got, err := parseStat([]byte(in)); err != nil || got != want {
			t.Errorf("%q: %+v %v, want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "42", "42 (sh", "42 sh)", ")42(", "42 (sh) S 1 2", "x (sh)" + tail, strings.Replace("42 (sh)"+tail, "12345", "-1", 1)} {
		if p, err := parseStat([]byte(in)); err == nil {
			t.Errorf("%q is taken for %+v", in, p)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (sh) S 1 7 8 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 4096 9 1844\n"))
	f.Add([]byte("42 (a) b) Z 1 7 8 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parseStat(b); err == nil && !strings.Contains(string(b), "("+p.Name+")") {
			t.Errorf("%q: name %q", b, p.Name)
		}
	})
}

func TestWait(t *testing.T) {
	p, reap := start(t, "sleep", "60")
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait for a process that runs: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Wait(t.Context()) }()
	if err := p.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if now, err := Look(p.PID); err != nil || !now.Ended() {
		t.Errorf("before it is reaped: %+v %v", now, err)
	}
	reap()
	if _, err := Look(p.PID); !errors.Is(err, ErrGone) {
		t.Errorf("after it was reaped: %v", err)
	}
	if err := p.Wait(t.Context()); err != nil {
		t.Errorf("wait for one that is gone: %v", err)
	}
}

// A process whose PID went to another one is gone, and the other one is left alone.
func TestStrangerIsNeverHit(t *testing.T) {
	p, _ := start(t, "sleep", "60")
	former := p
	former.Start--
	if err := former.Signal(unix.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("signal: %v", err)
	}
	if err := former.Wait(t.Context()); err != nil {
		t.Errorf("wait: %v", err)
	}
	if now, err := Look(p.PID); err != nil || now.Ended() {
		t.Errorf("the stranger: %+v %v", now, err)
	}
}

// The first thread may end while others go on: such a process looks like a zombie and is none.
func TestFirstThreadEnded(t *testing.T) {
	p := Process{State: 'Z', Threads: 3}
	if p.Ended() {
		t.Error("taken for ended")
	}
	p.Threads = 1
	if !p.Ended() {
		t.Error("a zombie is taken for running")
	}
}

func TestEnd(t *testing.T) {
	pp, reapP := start(t, "sleep", "60")
	sp, reapS := start(t, "sh", "-c", "trap '' TERM; while :; do sleep 0.02; done")
	fp, reapF := start(t, "sleep", "60")
	if err := unix.Kill(fp.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, reap := range []func(){reapP, reapS, reapF} {
		go reap()
	}
	time.Sleep(50 * time.Millisecond) // lets the shell set its trap
	err := Ending{
		Find: func(context.Context) ([]Process, error) {
			var left []Process
			for _, p := range []Process{pp, sp, fp} {
				if now, err := Look(p.PID); err == nil && now.Same(p) && !now.Ended() {
					left = append(left, now)
				}
			}
			return left, nil
		},
		Signal: unix.SIGTERM, Grace: 100 * time.Millisecond,
	}.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Process{pp, sp, fp} {
		if now, err := Look(p.PID); err == nil && now.Same(p) && !now.Ended() {
			t.Errorf("still there: %s", now)
		}
	}
}

// Who was found once is waited for, even if it shows no mark any more.
func TestEndRemembersWhomItFound(t *testing.T) {
	p, reap := start(t, "sh", "-c", "trap 'sleep 0.3; exit' TERM; while :; do sleep 0.02; done")
	go reap()
	time.Sleep(50 * time.Millisecond) // lets the shell set its trap
	looks := 0
	err := Ending{
		Find: func(context.Context) ([]Process, error) {
			if looks++; looks == 1 {
				return []Process{p}, nil
			}
			return nil, nil
		},
		Signal: unix.SIGTERM, Grace: 0,
	}.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if now, err := Look(p.PID); err == nil && now.Same(p) && !now.Ended() {
		t.Errorf("still there: %s", now)
	}
}

func TestEndGivesUpWithTheContext(t *testing.T) {
	p, _ := start(t, "sh", "-c", "trap '' TERM; while :; do sleep 0.02; done")
	time.Sleep(50 * time.Millisecond) // lets the shell set its trap
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	err := Ending{
		Find:   func(context.Context) ([]Process, error) { return []Process{p}, nil },
		Signal: unix.SIGTERM, Grace: time.Hour,
	}.End(ctx)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), fmt.Sprintf("PID %d", p.PID)) {
		t.Errorf("error: %v", err)
	}
}
