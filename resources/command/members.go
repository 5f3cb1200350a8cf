package command

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources/internal/process"
)

// dirVariable marks every descendant: the private directory is the one name that no
// other resource, node or cluster on this host shares.
const dirVariable = "HAMGR_DIR="

// leader is the recorded process, and whether it still runs.
func (c *command) leader(rec record) (process.Process, bool, error) {
	if rec.PID == 0 || rec.Boot != c.env.Boot {
		return process.Process{}, false, nil
	}
	p, err := process.Look(rec.PID)
	if errors.Is(err, process.ErrGone) {
		return process.Process{}, false, nil
	}
	if err != nil {
		return process.Process{}, false, fmt.Errorf("look at PID %d: %w", rec.PID, err)
	}
	if !p.Same(rec.process()) {
		return process.Process{}, false, nil
	}
	if p.Ended() {
		c.exits.reap(p)
		return process.Process{}, false, nil
	}
	return p, true, nil
}

// members finds every running process of the resource, whatever its token.
func (c *command) members(rec record) ([]process.Process, error) {
	all, err := process.All()
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	if rec.Boot != c.env.Boot {
		rec = record{} // its numbers mean nothing any more
	}
	ours := map[int]bool{}
	for _, p := range all {
		if exempt(p) {
			continue
		}
		if inSession(p, rec, all) || c.marked(p) {
			ours[p.PID] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if !ours[p.PID] && ours[p.Parent] && !exempt(p) {
				ours[p.PID], grown = true, true
			}
		}
	}
	var running []process.Process
	for _, p := range all {
		switch {
		case !ours[p.PID]:
		case p.Ended():
			c.exits.reap(p)
		default:
			running = append(running, p)
		}
	}
	return running, nil
}

// exempt are those that are never ended, whatever marks they bear.
func exempt(p process.Process) bool {
	return p.Kernel || p.PID == 1 || p.PID == os.Getpid()
}

// inSession reports whether p is the recorded process or in its session or group. The
// kernel gives a PID away again only when no session or group bears it, so a younger process
// with that PID means that these are a stranger's.
func inSession(p process.Process, rec record, all []process.Process) bool {
	if rec.PID == 0 || p.Start < rec.Start || (p.Session != rec.PID && p.Group != rec.PID) {
		return false
	}
	for _, q := range all {
		if q.PID == rec.PID {
			return q.Start == rec.Start
		}
	}
	return true
}

// marked looks for the mark in the environment. What this daemon may not read belongs to another
// user, hence not to what it started, unless that changed its user: only a daemon that
// runs as root sees those.
func (c *command) marked(p process.Process) bool {
	env, err := p.Environ()
	if err != nil {
		return false
	}
	mark := []byte(dirVariable + c.dir)
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(entry, mark) {
			return true
		}
	}
	return false
}

// exits collects the dead children of this daemon. One that an earlier daemon started
// is reaped by the init process, and how it ended is not known.
type exits struct {
	mu     sync.Mutex
	last   process.Process // of which status tells
	status unix.WaitStatus
}

// reap collects p if it is an ended child of this daemon. It must only be called for a
// process that was named with its start time, so that no other child is taken.
func (e *exits) reap(p process.Process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, err := process.Look(p.PID)
	if err != nil || !now.Same(p) || !now.Ended() || now.Parent != os.Getpid() {
		return
	}
	var status unix.WaitStatus
	if pid, err := unix.Wait4(p.PID, &status, unix.WNOHANG, nil); err == nil && pid == p.PID {
		e.last, e.status = p, status
	}
}

// reason says how p ended, as far as it is known.
func (e *exits) reason(p process.Process) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case p.PID == 0:
		return "not running"
	case !e.last.Same(p):
		return fmt.Sprintf("PID %d has ended", p.PID)
	case e.status.Signaled():
		return fmt.Sprintf("PID %d was killed by %s", p.PID, unix.SignalName(e.status.Signal()))
	default:
		return fmt.Sprintf("PID %d ended with status %d", p.PID, e.status.ExitStatus())
	}
}
