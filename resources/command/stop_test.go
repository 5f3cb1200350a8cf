package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

func TestOlderTokenIsFoundAndEnded(t *testing.T) {
	dir := t.TempDir()
	rec := mustStart(t, tracked(t, dir, 1, "sleep", "60"))
	c := tracked(t, dir, 2, "sleep", "60")
	wantState(t, c, resources.Failed)
	if err := c.Start(deadline(t, 10*time.Second)); err == nil {
		t.Error("a second copy was started")
	}
	mustStop(t, c)
	if runs(t, fmt.Sprint(rec.PID)) {
		t.Error("the old process still runs")
	}
	mustStart(t, c)
}

// Descendants are ended wherever they went; who only looks like one is not.
func TestStopEndsAllDescendants(t *testing.T) {
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	c := tracked(t, dir, 1, "sh", "-c", `
		sh -c 'echo $$ >> `+pids+`; trap "" TERM; while :; do sleep 0.02; done' &
		setsid sh -c 'echo $$ >> `+pids+`; exec sleep 60' &
		env -i /bin/sh -c 'echo $$ >> `+pids+`; exec sleep 60' &
		env -i /usr/bin/setsid /bin/sh -c 'echo $$ >> `+pids+`; exec sleep 60' &
		(setsid sh -c 'echo $$ >> `+pids+`; exec sleep 60' &)
		wait`)
	c.opts.KillAfter = 200 * time.Millisecond
	stranger := exec.Command("sleep", "60")
	stranger.Env = append(os.Environ(), "HAMGR_GROUP=web", "HAMGR_RESOURCE=app", "HAMGR_NODE=alpha", dirVariable+dir+"/x")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Process.Kill(); _ = stranger.Wait() }()
	mustStart(t, c)
	all := awaitFile(t, pids, 5)
	mustStop(t, c)
	for _, pid := range all {
		if runs(t, pid) {
			t.Errorf("PID %s still runs", pid)
		}
	}
	if !runs(t, fmt.Sprint(stranger.Process.Pid)) {
		t.Error("a process of another resource was ended")
	}
}

func TestLeftOversAfterTheLeadersDeath(t *testing.T) {
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	c := tracked(t, dir, 1, "sh", "-c", "sleep 60 & echo $! > "+pids+"; env -i /bin/sleep 60 & echo $! >> "+pids+"; exit 1")
	mustStart(t, c)
	if err := c.Died(deadline(t, 10*time.Second)); err == nil {
		t.Error("no reason")
	}
	all := awaitFile(t, pids, 2)
	wantState(t, c, resources.Failed)
	mustStop(t, c)
	for _, pid := range all {
		if runs(t, pid) {
			t.Errorf("PID %s still runs", pid)
		}
	}
}

// The daemon died after it made the process and before it noted the PID; or the kernel
// lost the note's content.
func TestFoundWithoutPID(t *testing.T) {
	for _, content := range []string{`{"boot":"boot-1","token":1}`, "", `{"boot":`, `{"boot":"boot-0","token":1,"pid":99,"start":5}`} {
		dir := t.TempDir()
		c := tracked(t, dir, 1, "sleep", "60")
		rec := mustStart(t, c)
		if err := os.WriteFile(filepath.Join(dir, recordFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		wantState(t, c, resources.Failed)
		if err := c.Start(deadline(t, 10*time.Second)); err == nil {
			t.Error("a second copy was started")
		}
		mustStop(t, c)
		if runs(t, fmt.Sprint(rec.PID)) {
			t.Error("still runs")
		}
	}
}

func TestReusedPIDIsAStranger(t *testing.T) {
	stranger := exec.Command("sleep", "60")
	stranger.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Process.Kill(); _ = stranger.Wait() }()
	p, err := process.Look(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := tracked(t, dir, 1, "sleep", "60")
	if err := writeRecord(dir, record{Boot: "boot-1", Token: 1, PID: p.PID, Start: p.Start - 1}); err != nil {
		t.Fatal(err)
	}
	wantState(t, c, resources.Inactive)
	if err := c.Died(deadline(t, 10*time.Second)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("died: %v", err)
	}
	mustStop(t, c)
	if !runs(t, fmt.Sprint(p.PID)) {
		t.Error("the stranger was ended")
	}
}

func TestStopLetsTheProgramShutDown(t *testing.T) {
	dir := t.TempDir()
	up, done := filepath.Join(dir, "up"), filepath.Join(dir, "done")
	c := tracked(t, dir, 1, "sh", "-c", "trap 'sleep 0.2; echo y > "+done+"; exit 0' TERM; echo y > "+up+"; while :; do sleep 0.02; done")
	mustStart(t, c)
	awaitFile(t, up, 1)
	mustStop(t, c)
	if _, err := os.Stat(done); err != nil {
		t.Errorf("the shutdown was cut short: %v", err)
	}
}

// SIGKILL must come early enough to help before the context ends.
func TestStopKillsBeforeItsDeadline(t *testing.T) {
	dir := t.TempDir()
	up := filepath.Join(dir, "up")
	c := tracked(t, dir, 1, "sh", "-c", "trap '' TERM; echo y > "+up+"; while :; do sleep 0.02; done")
	mustStart(t, c)
	awaitFile(t, up, 1)
	if err := c.Stop(deadline(t, 2*time.Second)); err != nil {
		t.Error(err)
	}
}
