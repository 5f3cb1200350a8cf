package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/consensus"
)

// kinds are those that the daemon's configuration is read with.
func (o Options) kinds() config.Kinds {
	if o.Unarmed {
		return witnessKinds()
	}
	return Kinds()
}

const (
	// opening bounds the start of a node: the first look at its data.
	opening = 30 * time.Second
	// pulse is how often a node is asked whether its parts answer.
	pulse = time.Second
)

// errStuck: something of a node that was stopped is still there. It may hold sockets and locks.
var errStuck = errors.New("it did not end in order, and may still hold its sockets and files")

// serveWitness is the life of one cluster's node: it returns when ctx ends, or when the node must not go on. Running is
// called with each node that begins, and beat again and again while its parts answer.
func serveWitness(ctx context.Context, o Options, running func(*Node), beat func()) error {
	setup, err := prepare(o)
	if err != nil {
		return err
	}
	// What the cluster had this node run with last may say otherwise than the file.
	if err := asWitness(setup.Config, setup.Self); err != nil {
		return err
	}
	failed, again := make(chan error, 1), make(chan Next, 1)
	setup.Fatal = func(err error) {
		select {
		case failed <- err:
		default: // one is enough
		}
	}
	setup.Again = func(next Next) { again <- next }
	setup.Single = false
	starting, cancel := context.WithTimeout(ctx, opening)
	n, err := Start(starting, setup)
	late := starting.Err() != nil && ctx.Err() == nil
	cancel()
	if err != nil && late {
		return fmt.Errorf("%w: its data was not opened within %s: %w", consensus.ErrStoreHung, opening, err)
	}
	if err != nil {
		return err
	}
	o.Log.Info("node started", "node", setup.Self, "boot", setup.Boot, "version", o.Version)
	running(n)
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return finish(setup, func() error { return n.Stop(context.WithoutCancel(ctx)) })
		case err := <-failed:
			return errors.Join(err, finish(setup, func() error { return n.Halt(context.WithoutCancel(ctx)) }))
		case <-ticker.C:
			n.replicated.Status()
			n.coord.View()
			beat()
		case next := <-again:
			if next.Config != nil {
				if err := asWitness(next.Config, setup.Self); err != nil {
					return errors.Join(err, finish(setup, func() error { return n.Stop(context.WithoutCancel(ctx)) }))
				}
			}
			if n, err = beginAnew(ctx, n, setup, next); err != nil {
				return err
			}
			setup = n.Setup
			running(n)
		}
	}
}

// finish waits for the end of a node, but not for ever.
func finish(s Setup, stop func() error) error {
	done := make(chan error, 1)
	go func() { done <- stop() }()
	patience := time.NewTimer(2*max(s.Config.Cluster.DetectionTime, time.Second) + 5*time.Second)
	defer patience.Stop()
	select {
	case err := <-done:
		return err
	case <-patience.C:
		return fmt.Errorf("node %s: %w", s.Self, errStuck)
	}
}

// options are those of the node for one candidate.
func (o WitnessOptions) options(c candidate) Options {
	run := filepath.Join(o.RunDir, c.name)
	return Options{
		ConfigPath: c.file, KeyFile: c.key, Unarmed: true, Node: c.node, DataDir: c.data, RunDir: run,
		Socket: filepath.Join(run, socketName), BootID: o.BootID, Version: o.Version, Log: o.Log.With("cluster", c.name),
	}
}

// socketName is the operator's socket in the run directory of a cluster.
const socketName = "hamgr.sock"

// folder takes the first of a list of folders, as systemd gives it (systemd.exec(5)).
func folder(given, variable, otherwise string) string {
	if given != "" {
		return given
	}
	if list := filepath.SplitList(os.Getenv(variable)); len(list) > 0 && list[0] != "" {
		return list[0]
	}
	return otherwise
}
