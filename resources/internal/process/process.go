// Package process looks at the processes of this host, waits for their end, and
// signals them without ever hitting a stranger.
//
// A process is named by its PID together with its start time: a PID alone may belong
// to another process by the time it is used. Signals and waiting go through pidfds
// (pidfd_open(2)), which stay bound to one process. It knows nothing of resources; who
// is to be ended is the caller's decision.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone says that the process has ended (it may still be a zombie), or that its PID
// belongs to another process by now.
var ErrGone = errors.New("process is gone")

// Process is what /proc/PID/stat said of one process when it was read.
type Process struct {
	PID     int
	Start   uint64 // clock ticks after the kernel's boot; names the process together with PID
	Name    string // the kernel's short name of the program
	State   byte   // as in ps(1): R, S, D, T, Z, ...
	Parent  int
	Group   int
	Session int
	Threads int
	Kernel  bool // a thread of the kernel
	environ bool // it has one, even if that is empty
	Exiting bool // its first thread runs no more of its program: see Leaving
}

// Look reads the process that has this PID now. The error is ErrGone if there is none.
func Look(pid int) (Process, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if gone(err) {
		return Process{}, ErrGone
	}
	if err != nil {
		return Process{}, err
	}
	return parseStat(b)
}

// Self is the calling process.
func Self() (Process, error) { return Look(os.Getpid()) }

// All reads every process that this one can see. The list is not a snapshot of one
// instant: a process that is born while it is read may be missing.
func All() ([]Process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make([]Process, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, err := Look(pid)
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Ended reports whether the process can run no code any more: it is a zombie, and no
// thread outlived its first one. Its files are closed by then.
func (p Process) Ended() bool {
	return (p.State == 'Z' || p.State == 'X') && p.Threads <= 1
}

// Gone reports whether it has ended, as of now. What cannot be told is not gone.
func (p Process) Gone() bool {
	now, err := Look(p.PID)
	return errors.Is(err, ErrGone) || err == nil && (!now.Same(p) || now.Ended())
}

// Same reports whether q is the same process, seen at any time of one kernel's life.
func (p Process) Same(q Process) bool { return p.PID == q.PID && p.Start == q.Start }

// String names the process for operators.
func (p Process) String() string {
	if p.State == 'D' {
		return fmt.Sprintf("PID %d (%s, hangs in the kernel)", p.PID, p.Name)
	}
	return fmt.Sprintf("PID %d (%s)", p.PID, p.Name)
}

// Leaving reports whether the process is on its way out, as of now, with all its threads. Its memory is gone first, and with it
// all that tells whose it is (environment, program); then its files are closed, and that may take long.
func (p Process) Leaving() bool {
	env, err := p.Environ()
	if len(env) > 0 || err != nil && !errors.Is(err, ErrGone) {
		return false
	}
	now, err := Look(p.PID)
	return err == nil && now.Same(p) && now.Exiting && !now.Ended()
}

// Bears reports whether the process was started with an entry in its environment. Of one that is leaving nobody can tell. One
// that is just executing a program has no environment for a moment.
func (p Process) Bears(entry string) (bears, leaving bool) {
	for range 100 {
		env, err := p.Environ()
		if len(env) > 0 {
			return slices.Contains(strings.Split(string(env), "\x00"), entry), false
		}
		if err != nil && !errors.Is(err, ErrGone) {
			return false, false
		}
		now, err := Look(p.PID)
		switch {
		case err != nil || !now.Same(p) || now.Ended() || now.Kernel || now.environ:
			return false, false
		case now.Exiting:
			return false, true
		}
		time.Sleep(time.Millisecond)
	}
	return false, true
}

// leavingTime is how long AwaitLeaving waits for one that waits for something itself: a disk, a server.
const leavingTime = 150 * time.Millisecond

// AwaitLeaving waits for the end of processes that are leaving. Whoever looks for those with a mark has to, as those have lost it;
// but what is not known to be his, and hangs in the kernel, must not keep him for ever.
func AwaitLeaving(ctx context.Context, ps []Process) error {
	for _, p := range ps {
		for gone := false; !gone; {
			within, cancel := context.WithTimeout(ctx, leavingTime)
			err := p.Wait(within)
			cancel()
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil && !errors.Is(err, context.DeadlineExceeded):
				return err
			}
			now, lookErr := Look(p.PID)
			gone = err == nil || lookErr != nil || now.State != 'R' // one that runs has only much to give back, or has to wait for a processor
		}
	}
	return nil
}

// Environ reads the environment that the process was started with, its entries ended
// by NUL. A program may have overwritten it since. A process whose first thread has ended shows it by the others only.
func (p Process) Environ() ([]byte, error) {
	dir := "/proc/" + strconv.Itoa(p.PID)
	b, err := os.ReadFile(dir + "/environ")
	if p.Exiting && p.Threads > 1 && len(b) == 0 {
		threads, _ := os.ReadDir(dir + "/task") // none once it is gone
		for _, thread := range threads {
			if b, err := os.ReadFile(dir + "/task/" + thread.Name() + "/environ"); err == nil && len(b) > 0 {
				return b, nil
			}
		}
	}
	if gone(err) {
		return nil, ErrGone
	}
	return b, err
}

// Signal sends a signal to exactly this process. The error is ErrGone when it has
// ended, even if its PID is in use again.
func (p Process) Signal(sig unix.Signal) error {
	fd, err := p.open()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return ErrGone
		}
		return fmt.Errorf("signal %s to %s: %w", unix.SignalName(sig), p, err)
	}
	return nil
}

// Wait returns nil when the process, child of this one or not, has ended with all its
// threads, or ctx.Err() when ctx ends before. It reaps nothing.
func (p Process) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	fd, err := p.open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	// A non-blocking pidfd is waited for by the runtime's poller: no thread is held.
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for %s: %w", p, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = raw.Read(func(fd uintptr) bool { return readable(int(fd)) })
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("wait for %s: %w", p, err)
	}
	return nil
}

// open gives a pidfd of exactly this process. The PID is compared with the start time
// after the pidfd was bound, so that reuse in between is seen.
func (p Process) open() (int, error) {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return -1, ErrGone
	}
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", p, err)
	}
	now, err := Look(p.PID)
	if err == nil && !now.Same(p) {
		err = ErrGone
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// readable asks a pidfd whether its process has ended.
func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// Flags of include/linux/sched.h.
const (
	exiting      = 0x00000004 // PF_EXITING
	kernelThread = 0x00200000 // PF_KTHREAD
)

// parseStat reads /proc/PID/stat, described in proc_pid_stat(5). The name stands in
// parentheses and may hold anything, parentheses and newlines included.
func parseStat(b []byte) (Process, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return Process{}, errors.New("process state without a name")
	}
	p := Process{Name: string(b[open+1 : end])}
	fields := bytes.Fields(b[end+1:]) // fields[0] is field 3, the state
	if len(fields) < 20 || len(fields[0]) != 1 {
		return Process{}, errors.New("process state is too short")
	}
	p.State = fields[0][0]
	var errs []error
	number := func(field []byte) int {
		n, err := strconv.ParseInt(string(field), 10, 32)
		errs = append(errs, err)
		return int(n)
	}
	p.PID = number(bytes.TrimSpace(b[:open]))
	p.Parent, p.Group, p.Session, p.Threads = number(fields[1]), number(fields[2]), number(fields[3]), number(fields[17])
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	p.Kernel, p.Exiting = flags&kernelThread != 0, flags&exiting != 0
	errs = append(errs, err)
	const envEnd = 51 - 3 // shown to those who may look into its memory
	p.environ = len(fields) > envEnd && string(fields[envEnd]) != "0"
	p.Start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	if err := errors.Join(append(errs, err)...); err != nil {
		return Process{}, fmt.Errorf("process state: %w", err)
	}
	return p, nil
}
