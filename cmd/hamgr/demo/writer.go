package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources/guard"
)

// writeEvery is the pace of the service: about 50 writes a second.
const writeEvery = 20 * time.Millisecond

// Writer is the service that the demo's group runs: it appends to the ledger through the
// token guard, and does nothing else. What it may do it learns as every resource does,
// from its environment.
type Writer struct {
	Ledger  string // file to append to
	Refused string // file for the writes that the guard refused, in the ledger's format
	Guard   string // folder of the guard's records
	// Stubborn goes on after a refusal, where a well-behaved service ends.
	Stubborn bool
}

// Run writes until ctx ends, which is success, or until a write fails or is refused.
func (w Writer) Run(ctx context.Context) error {
	token, err := strconv.ParseUint(os.Getenv("HAMGR_TOKEN"), 10, 64)
	if err != nil {
		return fmt.Errorf("HAMGR_TOKEN: %w", err)
	}
	entry := Entry{Node: os.Getenv("HAMGR_NODE"), Boot: os.Getenv("HAMGR_BOOT"), Token: token, PID: os.Getpid(), Seq: 1}
	if entry.Node == "" || entry.Boot == "" {
		return errors.New("HAMGR_NODE and HAMGR_BOOT are not set: this is started by a demo's daemon")
	}
	g, err := guard.Open(w.Guard)
	if err != nil {
		return err
	}
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for {
		err := g.Do(ctx, groupName, token, func() error { return appendEntry(w.Ledger, &entry) })
		refused := (*guard.Refused)(nil)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &refused):
			if err := errors.Join(refused, appendEntry(w.Refused, &entry)); !w.Stubborn {
				return err
			}
		case err != nil:
			return err
		default:
			entry.Seq++
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// appendEntry writes one line by one system call, so that lines of several processes never
// mix, and stamps it immediately before.
func appendEntry(path string, e *Entry) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return errors.Join(err, f.Close())
	}
	e.Mono = uint64(now.Nano())
	_, err = f.WriteString(e.String() + "\n")
	return errors.Join(err, f.Close())
}
