package redfishsim

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// MachineVariable is the environment variable that marks the processes of a machine by its
// boot ID, so that those which left its session are found as well. hamgr itself gives
// it to what it starts, whose environment is otherwise not the daemon's.
const MachineVariable = "HAMGR_BOOT"

// ProcessPower is a Power whose machine is a tree of real processes: a command, started
// as the leader of a new session, and everything that descends from it. It needs no
// root, and Linux.
//
// Power is not life: if all processes of the machine died, it is still on, as a host whose
// kernel hangs. Only Off ends it. All methods are safe for concurrent use.
type ProcessPower struct {
	command func(boot string) *exec.Cmd
	turn    chan struct{} // held by who changes the processes

	mu   sync.Mutex
	run  *run // nil = off
	boot string
}

// run is the machine from one power-on to the next power-off.
type run struct {
	cmd    *exec.Cmd
	leader process
	marker string // MachineVariable=...
}

// NewProcessPower makes a machine that is off. At each power-on, command builds what is
// to be started for a fresh boot ID; it must not start it.
func NewProcessPower(command func(boot string) *exec.Cmd) *ProcessPower {
	return &ProcessPower{command: command, turn: make(chan struct{}, 1)}
}

// State implements Power. It turns to off only when no process of the machine is alive.
func (p *ProcessPower) State() bool { return p.current() != nil }

// Boot is the boot ID of the present run, empty when off.
func (p *ProcessPower) Boot() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.boot
}

func (p *ProcessPower) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

func (p *ProcessPower) set(r *run, boot string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run, p.boot = r, boot
}

// take waits for the turn; the returned function gives it back.
func (p *ProcessPower) take(ctx context.Context) (func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case p.turn <- struct{}{}:
		return func() { <-p.turn }, nil
	}
}

// On implements Power. On a machine that is on it does nothing.
func (p *ProcessPower) On(ctx context.Context) error {
	give, err := p.take(ctx)
	if err != nil {
		return fmt.Errorf("machine power on: %w", err)
	}
	defer give()
	if p.current() != nil {
		return nil
	}
	boot := newBoot()
	r := &run{cmd: p.command(boot), marker: MachineVariable + "=" + boot}
	if r.cmd.Env == nil {
		r.cmd.Env = os.Environ()
	}
	r.cmd.Env = append(r.cmd.Env, r.marker)
	if r.cmd.SysProcAttr == nil {
		r.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	r.cmd.SysProcAttr.Setsid = true
	if r.cmd.WaitDelay == 0 {
		r.cmd.WaitDelay = time.Second // somebody else may hold its pipes open
	}
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("machine power on: %w", err)
	}
	if r.leader, err = readProcess(r.cmd.Process.Pid); err != nil { // it is there, at least as a zombie
		r.cmd.Process.Kill()
		return fmt.Errorf("machine power on: %w", errors.Join(err, r.cmd.Wait()))
	}
	p.set(r, boot)
	return nil
}

// Off implements Power: it kills every process of the machine, and returns when none is
// left. If ctx ends before, the machine is still on.
func (p *ProcessPower) Off(ctx context.Context) error {
	give, err := p.take(ctx)
	if err != nil {
		return fmt.Errorf("machine power off: %w", err)
	}
	defer give()
	r := p.current()
	if r == nil {
		return nil
	}
	if err := r.kill(ctx); err != nil {
		return fmt.Errorf("machine power off: %w", err)
	}
	// The leader is reaped only now: as a zombie it kept its number, which is the
	// session's, from being given to a stranger. That it was killed is no error.
	var exit *exec.ExitError
	err = r.cmd.Wait()
	p.set(nil, "")
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("machine power off: reaping: %w", err)
	}
	return nil
}

// Signal sends sig to every process of the machine. SIGSTOP freezes it like a paused
// host, SIGCONT lets it go on, SIGKILL crashes all of it; the power stays on. It
// returns when the machine has stopped or died.
func (p *ProcessPower) Signal(ctx context.Context, sig syscall.Signal) error {
	give, err := p.take(ctx)
	if err != nil {
		return fmt.Errorf("machine signal %v: %w", sig, err)
	}
	defer give()
	r := p.current()
	if r == nil {
		return fmt.Errorf("machine signal %v: %w", sig, ErrOff)
	}
	switch sig {
	case syscall.SIGSTOP:
		err = r.freeze(ctx)
	case syscall.SIGKILL:
		err = r.kill(ctx)
	default:
		var alive []process
		if alive, err = r.alive(); err == nil {
			err = r.signal(alive, sig)
		}
	}
	if err != nil {
		return fmt.Errorf("machine signal %v: %w", sig, err)
	}
	return nil
}

// ErrOff is returned by Signal on a machine that is off.
var ErrOff = errors.New("the machine is off")

// Processes lists the processes of the machine that are alive, in rising order.
func (p *ProcessPower) Processes() ([]int, error) {
	r := p.current()
	if r == nil {
		return nil, nil
	}
	alive, err := r.alive()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, x := range alive {
		pids = append(pids, x.pid)
	}
	slices.Sort(pids)
	return pids, nil
}

// alive gives the processes of the machine, without those that are dead already.
func (r *run) alive() ([]process, error) {
	all, err := readProcesses()
	if err != nil {
		return nil, err
	}
	return members(all, r.leader, r.marker), nil
}

// signal reaches the given processes, and none that took over the number of one of them.
func (r *run) signal(to []process, sig syscall.Signal) error {
	for _, x := range to {
		handle, err := os.FindProcess(x.pid) // a pidfd: from here on the number cannot pass to another
		if err != nil {
			continue
		}
		now, err := readProcess(x.pid)
		if err == nil && now.started == x.started {
			err = handle.Signal(sig)
		}
		handle.Release()
		if err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("process %d: %w", x.pid, err)
		}
	}
	return nil
}

// scanPause is how long the kernel is given between two looks at the processes.
const scanPause = time.Millisecond

// freeze stops every process. It ends when two looks in a row show only stopped ones: a
// process that was just being born is in the second look. One that waits in the kernel
// stops before it gets out of there; the parent in a vfork waits for ever, for a
// child that is stopped itself.
func (r *run) freeze(ctx context.Context) error {
	told := map[process]bool{}
	return r.until(ctx, func(alive []process) (bool, error) {
		running := slices.DeleteFunc(alive, func(p process) bool {
			return p.stopped() || p.waiting() && told[p]
		})
		for _, p := range running {
			told[p] = true
		}
		return len(running) == 0, r.signal(running, syscall.SIGSTOP)
	})
}

// kill ends every process. All are stopped first, so that none can start another while
// its relatives die; one that cannot be stopped just now is killed all the same.
func (r *run) kill(ctx context.Context) error {
	const freezeTime = 200 * time.Millisecond
	short, cancel := context.WithTimeout(ctx, freezeTime)
	err := r.freeze(short)
	cancel()
	if err != nil && short.Err() == nil {
		return err
	}
	return r.until(ctx, func(alive []process) (bool, error) {
		return len(alive) == 0, r.signal(alive, syscall.SIGKILL)
	})
}

// until repeats step until it reports twice in a row that it is done.
func (r *run) until(ctx context.Context, step func([]process) (bool, error)) error {
	for done := 0; done < 2; {
		alive, err := r.alive()
		if err != nil {
			return err
		}
		ok, err := step(alive)
		if err != nil {
			return err
		}
		if ok {
			done++
		} else {
			done = 0
		}
		if err := wait(ctx, scanPause); err != nil {
			return fmt.Errorf("%d processes left: %w", len(alive), err)
		}
	}
	return nil
}

// newBoot makes a random ID in the form of the kernel's boot_id.
func newBoot() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
