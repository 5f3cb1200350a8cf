package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources/internal/process"
)

const (
	// killTime is how long killing an action is tried. What hangs in the kernel dies later.
	killTime = 2 * time.Second
	// lastWords is how long the output of a command that has ended is waited for: something may hold it open.
	lastWords = 20 * time.Millisecond
	// mostOutput is how much of its end is kept.
	mostOutput = 500
)

// ending is how an action ended.
type ending struct {
	status int    // -1: by a signal
	words  string // for operators
}

// act runs a command that looks or stops, and leaves nothing of it behind. It is called with the lock held.
func (c *command) act(ctx context.Context, argv []string) (ending, error) {
	if err := c.endEarlier(ctx); err != nil {
		return ending{}, err
	}
	p, err := c.prepare(ctx, argv, actionVariable)
	if err != nil {
		return ending{}, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return ending{}, err
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return ending{}, err
	}
	defer r.Close()
	child, leader, err := c.fork(ctx, p, null, w)
	w.Close()
	if err != nil {
		if child != nil {
			_, _ = reap(child)
		}
		return ending{}, err
	}
	output := make(chan string, 1)
	go func() { output <- tail(r) }()
	k := kin{mark: actionVariable + c.dir, leader: leader}
	state, why, err := k.wait(ctx, child)
	if errors.Is(err, errHangs) {
		return ending{}, errors.Join(fmt.Errorf("%s: %w", argv[0], err), why)
	}
	_ = r.SetReadDeadline(time.Now().Add(lastWords))
	said := <-output
	switch {
	case why != nil:
		return ending{}, fmt.Errorf("%s did not end in time and was killed%s: %w", argv[0], said, why)
	case err != nil:
		return ending{}, fmt.Errorf("wait for %s: %w", argv[0], err)
	}
	return ending{state.ExitCode(), fmt.Sprintf("%s ended with %s%s", argv[0], state, said)}, nil
}

// reap waits for the end of a child.
func reap(child *os.Process) (state *os.ProcessState, err error) {
	err = process.Reap(func() (err error) {
		state, err = child.Wait()
		return err
	})
	return state, err
}

// errHangs says that something of an action is left although it was killed.
var errHangs = errors.New("it was killed, and something of it hangs in the kernel")

// wait returns when the leader has ended and nothing else is left, by force where it must. why is set when ctx ended first.
func (k kin) wait(ctx context.Context, child *os.Process) (state *os.ProcessState, why, err error) {
	if why = k.leader.Wait(ctx); why != nil {
		if err := k.kill(); err != nil {
			go func() { _, _ = reap(child) }() // whenever it ends
			return nil, why, fmt.Errorf("%w: %w", errHangs, err)
		}
	}
	state, err = reap(child)
	if err == nil && why == nil && unix.Kill(-k.leader.PID, 0) == nil { // its process group outlives it
		if err := k.kill(); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errHangs, err)
		}
	}
	return state, why, err
}

// endEarlier kills what an action of a daemon that died has left. There is one action at a time, so this daemon has to look once.
func (c *command) endEarlier(ctx context.Context) error {
	if c.alone.Load() {
		return nil
	}
	k := kin{mark: actionVariable + c.dir}
	left, err := k.find(ctx)
	if err == nil && len(left) > 0 {
		err = k.kill()
	}
	if err != nil {
		return fmt.Errorf("end an earlier action: %w", err)
	}
	c.alone.Store(true)
	return ctx.Err()
}

// kill does not wait for ever for what hangs in the kernel.
func (k kin) kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	return process.Ending{
		Find:   k.find,
		Signal: unix.SIGKILL,
		Grace:  10 * time.Millisecond, // to wait costs less than to look again
	}.End(ctx)
}

// tail keeps the end of what it reads, as an addition to a sentence.
func tail(r *os.File) string {
	var kept []byte
	b := make([]byte, 4096)
	for {
		n, err := r.Read(b)
		kept = append(kept, b[:n]...)
		if more := len(kept) - mostOutput; more > 0 {
			kept = append(kept[:0], kept[more:]...)
		}
		if err != nil {
			break
		}
	}
	words := strings.Join(strings.Fields(strings.ToValidUTF8(string(kept), "?")), " ")
	if words == "" {
		return ""
	}
	return ": " + words
}
