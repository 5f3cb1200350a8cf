package ocf

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources/internal/process"
)

const (
	// markVariable names a run in the environment of all its processes.
	markVariable = "HAMGR_RUN="
	// dirVariable names the resource: no other one on this host has its private directory.
	dirVariable = "HAMGR_DIR="
)

// kin are the processes of one run: those that bear its mark, those in the sessions of others of them, and the
// children of any. (su and timeout, which agents use, make sessions and process groups of their own.)
type kin struct {
	leader   process.Process // zero if it is not known; not reaped while it is
	mark     string
	sessions map[int]bool
}

// find lists those that run now. Of what is just ending nobody can tell whose it was, so its end is waited for.
func (k *kin) find(ctx context.Context) ([]process.Process, error) {
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
	ours, marked := map[int]bool{}, map[int]bool{}
	all = slices.DeleteFunc(all, k.exempt)
	var leaving []process.Process
	for _, p := range all {
		var unknown bool
		if k.mark == "" {
			break
		}
		if marked[p.PID], unknown = p.Bears(markVariable + k.mark); unknown {
			leaving = append(leaving, p)
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if ours[p.PID] || !(k.sessions[p.Session] || ours[p.Parent] || marked[p.PID]) {
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
	if len(running) > 0 {
		return running, nil // to be looked for again, and not to be let slip away meanwhile
	}
	leaving = slices.DeleteFunc(leaving, func(p process.Process) bool { return ours[p.PID] })
	if err := process.AwaitLeaving(ctx, leaving); err != nil {
		return nil, fmt.Errorf("wait for processes that are ending: %w", err)
	}
	return running, nil
}

// exempt are those that are never killed, whatever marks they bear, and those that were there before.
func (k *kin) exempt(p process.Process) bool {
	return p.Kernel || p.PID <= 1 || p.PID == os.Getpid() || p.Start < k.leader.Start
}

// offspring are the processes that runs of this resource have left, of whatever token: its service.
func (o *ocf) offspring(ctx context.Context) ([]process.Process, error) {
	all, err := process.All()
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	var ours, leaving []process.Process
	for _, p := range all {
		if p.Kernel || p.PID == os.Getpid() {
			continue
		}
		switch bears, unknown := p.Bears(dirVariable + o.env.Dir); {
		case bears:
			ours = append(ours, p)
		case unknown:
			leaving = append(leaving, p)
		}
	}
	return ours, process.AwaitLeaving(ctx, leaving)
}

// killWithin returns nil when none is left.
func (k *kin) killWithin(ctx context.Context) error {
	return process.Ending{
		Find:   k.find,
		Signal: unix.SIGKILL,
		Grace:  10 * time.Millisecond, // to wait costs less than to look again
	}.End(ctx)
}

// kill does not wait for ever for what hangs in the kernel.
func (k *kin) kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	return k.killWithin(ctx)
}
