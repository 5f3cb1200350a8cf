package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/cluster/link"
)

// Options are what the command line says of a daemon.
type Options struct {
	ConfigPath string
	KeyFile    string // empty: the configuration's
	Node       string // this node's name; empty: the host name
	DataDir    string // empty: the configuration's
	RunDir     string // empty: $RUNTIME_DIRECTORY, else "run" in the data directory
	Socket     string // empty: no operator's socket
	BootID     string // empty: the kernel's. Only for tests and demonstrations
	Unarmed    bool   // this host only votes: what devices and resources need is not looked for
	Version    string
	Reload     <-chan os.Signal // has the file of the cluster key read again now; may be nil
	Log        *slog.Logger
}

// singleMarker in the data directory is made by `hamgr init --single`: it allows this node, once, to
// form a cluster alone.
const singleMarker = "form-single"

// Run runs a daemon until ctx ends, or until it must not go on.
func Run(ctx context.Context, o Options) error {
	setup, err := prepare(o)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	setup.Fatal = func(err error) { stop(err) }
	again := make(chan Next, 1)
	setup.Again = func(next Next) { again <- next }
	lockMemory(o.Log)
	realTime(o.Log)
	n, err := startWhole(ctx, setup)
	if err != nil {
		return err
	}
	if setup.Single {
		// It is good for once: a data folder that is lost later must not form a second cluster.
		if err := os.Remove(filepath.Join(setup.DataDir, singleMarker)); err != nil {
			return errors.Join(err, n.Stop(context.WithoutCancel(ctx)))
		}
		setup.Single = false
	}
	notify(o.Log, daemon.SdNotifyReady)
	o.Log.Info("node started", "node", setup.Self, "boot", setup.Boot, "version", o.Version)
	for {
		beating, rest := context.WithCancel(ctx)
		var beats sync.WaitGroup
		beats.Go(func() { n.keepAlive(beating) })
		next := n.until(ctx, again, o.Reload)
		rest()
		beats.Wait()
		if ctx.Err() != nil {
			break
		}
		if n, err = beginAnew(ctx, n, setup, next); err != nil {
			return err
		}
		setup = n.Setup
	}
	err = end(context.WithoutCancel(ctx), n, ctx)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return errors.Join(cause, err)
	}
	return err
}

// startLimit bounds a start that goes on after the end of its context.
const startLimit = time.Minute

func startWhole(ctx context.Context, s Setup) (*Node, error) {
	ctx, cancel := startContext(ctx, s.RunDir)
	defer cancel()
	return Start(ctx, s)
}

// startContext is that of a start. Where groups run, it goes on when ctx ends: to empty the node takes a whole daemon.
func startContext(ctx context.Context, runDir string) (context.Context, context.CancelFunc) {
	if held, err := os.ReadDir(filepath.Join(runDir, heldFolder)); err == nil && len(held) > 0 {
		return context.WithTimeout(context.WithoutCancel(ctx), startLimit)
	}
	return context.WithCancel(ctx)
}

// until waits for the end of ctx, or for what the daemon is to begin anew with.
func (n *Node) until(ctx context.Context, again <-chan Next, reload <-chan os.Signal) Next {
	for {
		select {
		case <-ctx.Done():
			return Next{}
		case next := <-again:
			return next
		case <-reload:
			n.Log.Info("the cluster key is read again", "node", n.Self, "file", n.KeyFile)
			n.keys.hint()
		}
	}
}

// beginAnew is a restart of the daemon within the process. Where the new configuration cannot be used here, the one
// before is.
func beginAnew(ctx context.Context, n *Node, setup Setup, next Next) (*Node, error) {
	setup.Log.Info("beginning anew", "node", setup.Self, "reason", next.Reason)
	if err := n.Restart(context.WithoutCancel(ctx), next.Reason); err != nil {
		setup.Log.Warn("not all ended in order", "node", setup.Self, "err", err)
	}
	setup.Keys, _, _ = n.keys.now()
	setup.Pace = n.Pace
	old := setup
	if next.Config != nil {
		if setup.KeyFile == setup.Config.Cluster.KeyFile {
			setup.KeyFile = next.Config.Cluster.KeyFile
		}
		setup.Config, setup.Text = next.Config, next.Text
		n.keepRemoved(setup)
	}
	began, err := startWhole(ctx, setup)
	if err == nil {
		keepText(old, setup)
		return began, nil
	}
	if next.Config == nil || ctx.Err() != nil || !MayBlameText(err) {
		return nil, err
	}
	reason := err
	if began, err = Start(ctx, old); err != nil {
		return nil, errors.Join(reason, err)
	}
	began.Refuse(next.Text, reason)
	return began, nil
}

// end ends the daemon as its systemd wants it: a stop has the groups leave. A restart leaves them as they are, and so does a
// signal of anybody else's, after which systemd starts the daemon again.
//
// Where that is not known nothing is stopped and nothing is announced. Without a systemd it is the operator who looks after
// the groups; and one that cannot be asked is gone, most likely, because the host is going down without a word: then this
// node should be missed soon.
func end(ctx context.Context, n *Node, signalled context.Context) error {
	notify(n.Log, daemon.SdNotifyStopping)
	if cause := context.Cause(signalled); cause != nil && !errors.Is(cause, context.Canceled) {
		return n.Stop(ctx) // it must not go on
	}
	job, err := serviceJob(ctx)
	switch {
	case errors.Is(err, errNoService):
		return n.Stop(ctx)
	case err != nil:
		n.Log.Warn("it is not known why this daemon is to end: the groups stay here", "node", n.Self, "err", err)
		return n.Stop(ctx)
	case job == jobStop:
		budget := n.DepartureBudget()
		n.Log.Info("the groups leave this node", "node", n.Self, "for_ms", budget.Milliseconds())
		ctx, cancel := context.WithTimeout(ctx, budget)
		defer cancel()
		go extendStop(ctx, n.Log)
		return n.Depart(ctx)
	case job == jobRestart:
		return n.Restart(ctx, "the service is restarted")
	}
	return n.Restart(ctx, "a signal ended the daemon")
}

// prepare reads everything that a daemon needs before it starts.
func prepare(o Options) (Setup, error) {
	c, text, err := loadConfig(o)
	if err != nil {
		return Setup{}, err
	}
	s := Setup{Config: c, Text: text, File: o.ConfigPath, Kinds: o.kinds(), Self: o.Node, Boot: o.BootID, DataDir: o.DataDir, RunDir: o.RunDir, Socket: o.Socket, Version: o.Version, Log: o.Log}
	if s.Self == "" {
		if s.Self, err = hostName(); err != nil {
			return Setup{}, err
		}
	}
	if s.DataDir == "" {
		s.DataDir = c.Cluster.DataDir
	}
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return Setup{}, fmt.Errorf("data directory: %w", err)
	}
	if s.Boot == "" {
		if s.Boot, err = bootID(); err != nil {
			return Setup{}, err
		}
		s.Machine = readMachine(dmiFolder)
	} else {
		// A node of a lab is not the machine that this host's firmware speaks of.
		o.Log.Warn("the boot ID is given on the command line: safe only where a lab makes a new one for each power-on", "boot", s.Boot)
	}
	if s.RunDir, err = runDir(s); err != nil {
		return Setup{}, err
	}
	s.KeyFile = cmp.Or(o.KeyFile, c.Cluster.KeyFile)
	if s.Keys, err = link.ReadKeyRing(s.KeyFile); err != nil {
		return Setup{}, err
	}
	_, err = os.Stat(filepath.Join(s.DataDir, singleMarker))
	s.Single = err == nil
	return s, nil
}

// runDir makes the directory of this boot, and removes those of earlier ones: what they speak of
// died with its kernel.
func runDir(s Setup) (string, error) {
	base := s.RunDir
	if base == "" {
		base = os.Getenv("RUNTIME_DIRECTORY")
	}
	if base == "" {
		base = filepath.Join(s.DataDir, "run")
	}
	base = filepath.Join(base, "boots")
	mine := filepath.Join(base, s.Boot)
	if err := os.MkdirAll(mine, 0o700); err != nil {
		return "", fmt.Errorf("run directory: %w", err)
	}
	old, err := os.ReadDir(base)
	if err != nil {
		return "", fmt.Errorf("run directory: %w", err)
	}
	for _, e := range old {
		if e.Name() == s.Boot {
			continue
		}
		if err := os.RemoveAll(filepath.Join(base, e.Name())); err != nil {
			return "", fmt.Errorf("run directory: %w", err)
		}
	}
	return mine, nil
}

// bootID reads the ID that the kernel made at its start (random(4)).
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot ID: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// hostName is the first label of the host's name.
func hostName() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("host name: %w", err)
	}
	short, _, _ := strings.Cut(name, ".")
	return strings.ToLower(short), nil
}

// lockMemory keeps the daemon out of the swap, where a fenced decision could wait for a disk.
// Pages are locked as they are used, so that it costs no memory.
func lockMemory(log *slog.Logger) {
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		log.Info("memory is not locked", "err", err)
	}
}

// keepAlive tells systemd's watchdog, until ctx ends, that the daemon makes progress: that its parts
// answer, not only that a timer runs.
func (n *Node) keepAlive(ctx context.Context) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		<-ctx.Done()
		return
	}
	ticker := time.NewTicker(interval / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if _, err := (backend{n}).Status(ctx); err == nil {
				notify(n.Log, daemon.SdNotifyWatchdog)
			}
		}
	}
}

// notify tells systemd; without systemd it does nothing.
func notify(log *slog.Logger, what string) {
	if _, err := daemon.SdNotify(false, what); err != nil && !errors.Is(err, net.ErrClosed) {
		log.Warn("systemd not notified", "err", err)
	}
}
