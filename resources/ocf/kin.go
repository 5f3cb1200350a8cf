package ocf

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources/internal/process"
)

// markVariable names a run in the environment of all its processes.
const markVariable = "HAMGR_RUN="

// kin are the processes of one run: those that bear its mark, those in the sessions of others of them, and the
// children of any. (su and timeout, which agents use, make sessions and process groups of their own.)
type kin struct {
	leader   process.Process // zero if it is not known; not reaped while it is
	mark     string
	sessions map[int]bool
}

// find lists those that run now.
func (k *kin) find() ([]process.Process, error) {
	all, err := process.All()
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	if k.sessions == nil {
		k.sessions = map[int]bool{}
	}
	if k.leader.PID != 0 {
		k.sessions[k.leader.PID] = true
	}
	ours := map[int]bool{}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if ours[p.PID] || k.exempt(p) || !(k.sessions[p.Session] || ours[p.Parent] || k.marked(p)) {
				continue
			}
			ours[p.PID], grown = true, true
			if p.Session == p.PID { // one that none but its descendants can be in
				k.sessions[p.Session] = true
			}
		}
	}
	var running []process.Process
	for _, p := range all {
		if ours[p.PID] && !p.Ended() {
			running = append(running, p)
		}
	}
	return running, nil
}

// exempt are those that are never killed, whatever marks they bear, and those that were there before.
func (k *kin) exempt(p process.Process) bool {
	return p.Kernel || p.PID <= 1 || p.PID == os.Getpid() || p.Start < k.leader.Start
}

func (k *kin) marked(p process.Process) bool {
	if k.mark == "" || p.Ended() {
		return false
	}
	env, err := p.Environ()
	if err != nil {
		return false // gone, or a stranger's that may not be read
	}
	mark := []byte(markVariable + k.mark)
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(entry, mark) {
			return true
		}
	}
	return false
}

// killWithin returns nil when none is left.
func (k *kin) killWithin(ctx context.Context) error {
	return process.Ending{
		Find:   func(context.Context) ([]process.Process, error) { return k.find() },
		Signal: unix.SIGKILL,
	}.End(ctx)
}

// kill does not wait for what hangs in the kernel.
func (k *kin) kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	return k.killWithin(ctx)
}
