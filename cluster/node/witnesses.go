package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// WitnessOptions are what the command line says of a witness of several clusters.
type WitnessOptions struct {
	Dir     string            // NAME.toml is the configuration of one cluster, NAME.key its key
	DataDir string            // NAME in it keeps what this voter remembers; empty: $STATE_DIRECTORY, else /var/lib/hamgr-witness
	RunDir  string            // NAME in it has the operator's socket; empty: $RUNTIME_DIRECTORY, else DefaultWitnessRunDir
	Nodes   map[string]string // which node this host is, by NAME; that of "" is for all others
	BootID  string            // empty: the kernel's. Only for tests and demonstrations
	Version string
	Look    <-chan os.Signal // has the folder looked at now; may be nil
	Log     *slog.Logger
}

// DefaultWitnessRunDir is where the sockets of a witness are.
const DefaultWitnessRunDir = "/run/hamgr-witness"

const (
	// lookEvery is the time between two looks at the folder.
	lookEvery = 5 * time.Second
	// remindEvery is the time between two lines in the log about the same trouble.
	remindEvery = time.Minute
	// stopPatience is how long the end of a cluster's node is waited for; more than finish allows at the longest
	// detection time would be more than the service manager waits.
	stopPatience = 75 * time.Second
)

// serving is how a witness serves one cluster; tests have their own.
type serving func(ctx context.Context, o Options, running func(*Node), beat func()) error

// witnesses serves every cluster of a folder, each by itself.
type witnesses struct {
	o     WitnessOptions
	serve serving
	every time.Duration

	clusters map[string]*witness
	broken   map[string]*reminder // what is wrong with a file, by name
	folder   reminder
	report   string // as last written
	changed  chan struct{}
}

// RunWitnesses votes for every cluster of the folder until ctx ends. It returns early only if nothing is left that it
// could serve in this process.
func RunWitnesses(ctx context.Context, o WitnessOptions) error {
	o.DataDir = folder(o.DataDir, "STATE_DIRECTORY", "/var/lib/hamgr-witness")
	o.RunDir = folder(o.RunDir, "RUNTIME_DIRECTORY", DefaultWitnessRunDir)
	if _, err := os.ReadDir(o.Dir); err != nil {
		return fmt.Errorf("folder of the witness: %w", err)
	}
	for _, dir := range []string{o.DataDir, o.RunDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("folder of the witness: %w", err)
		}
	}
	lock, err := lockWitness(o.RunDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	lockMemory(o.Log)
	realTime(o.Log)
	return newWitnesses(o, serveWitness).run(ctx)
}

// lockWitness keeps a second process out of a run directory.
func lockWitness(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("folder of the witness: %w", err)
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s, which another witness seems to hold: %w", path, err)
	}
	return f, nil
}

func newWitnesses(o WitnessOptions, serve serving) *witnesses {
	return &witnesses{
		o: o, serve: serve, every: lookEvery,
		clusters: map[string]*witness{}, broken: map[string]*reminder{}, changed: make(chan struct{}, 1),
	}
}

// run looks at the folder again and again. A look may hang with its disk; nothing else waits for it.
func (w *witnesses) run(ctx context.Context) error {
	defer w.end()
	seen := make(chan looked, 1)
	looking := false
	look := func() {
		if !looking {
			looking = true
			go func() {
				all, err := w.o.look()
				seen <- looked{all, err}
			}()
		}
	}
	look()
	ready := false
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	beats := beatInterval(w.o.Log)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			look()
		case <-w.o.Look:
			w.o.Log.Info("looking at the folder", "dir", w.o.Dir)
			look()
		case s := <-seen:
			looking = false
			w.follow(ctx, s)
			if !ready {
				ready = true
				notify(w.o.Log, daemon.SdNotifyReady)
			}
		case <-w.changed:
			if w.reap() {
				look() // for what waited for its end
			}
		case <-beats:
			if w.beating() {
				notify(w.o.Log, daemon.SdNotifyWatchdog)
			}
		}
		w.write()
		if err := w.allLost(); err != nil {
			return err
		}
	}
}

type looked struct {
	all []candidate
	err error
}

// follow brings what runs in line with the folder. What runs goes on while its file is wrong: a slip of the pen costs no
// vote.
func (w *witnesses) follow(ctx context.Context, s looked) {
	if s.err != nil {
		w.folder.tell(w.o.Log, s.err, "the folder of the witness cannot be looked at; what runs goes on", "dir", w.o.Dir)
		return
	}
	w.folder = reminder{}
	settle(s.all, func(name string) bool { return w.clusters[name] != nil })
	there := map[string]bool{}
	for _, c := range s.all {
		there[c.name] = true
	}
	for name, wit := range w.clusters {
		if !there[name] && !wit.isLost() {
			wit.end(stopPatience)
		}
	}
	maps.DeleteFunc(w.broken, func(name string, _ *reminder) bool { return !there[name] })
	for _, c := range s.all {
		if c.err != nil {
			w.refuse(c)
			continue
		}
		delete(w.broken, c.name)
		switch was := w.clusters[c.name]; {
		case was == nil:
			w.begin(ctx, c)
		case was.isLost() || was.ending || was.same(c):
		case was.rekey(c):
		default:
			w.o.Log.Info("the cluster's file has changed", "cluster", c.name, "file", c.file)
			was.end(stopPatience) // it begins anew after that
		}
	}
}

// refuse notes why a file is not served.
func (w *witnesses) refuse(c candidate) {
	if w.broken[c.name] == nil {
		w.broken[c.name] = &reminder{}
	}
	what := "this cluster is not served"
	if w.clusters[c.name] != nil {
		what = "this cluster is served as its file was before"
	}
	w.broken[c.name].tell(w.o.Log, c.err, what, "cluster", c.name, "file", c.file)
}

func (w *witnesses) begin(ctx context.Context, c candidate) {
	wit := newWitness(c, w.o.options(c), w.serve, w.change)
	w.clusters[c.name] = wit
	w.o.Log.Info("serving a cluster", "cluster", c.name, "file", c.file, "node", c.node)
	wit.start(ctx)
}

// reap forgets those that have ended. It reports whether there was one.
func (w *witnesses) reap() (any bool) {
	for name, wit := range w.clusters {
		if wit.ending && wit.hasEnded() && !wit.isLost() {
			w.o.Log.Info("no longer serving a cluster", "cluster", name)
			delete(w.clusters, name)
			any = true
		}
	}
	return any
}

// end stops all that runs, at once.
func (w *witnesses) end() {
	notify(w.o.Log, daemon.SdNotifyStopping)
	var ending sync.WaitGroup
	for _, wit := range w.clusters {
		ending.Go(wit.end(stopPatience))
	}
	ending.Wait()
	w.reap()
	w.write()
}

// change has the main loop tell of a change.
func (w *witnesses) change() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// errAllLost ends the process.
var errAllLost = errors.New("no cluster can be served by this process any more: it ends, so that a new one can try")

// allLost is an error where every cluster is lost to this process. A hanging disk is no reason to end before that: the
// thread that hangs in the kernel keeps the process alive, and with it every socket and lock, so that no new
// process could serve even those clusters that are well. They lie on another disk, and go on.
func (w *witnesses) allLost() error {
	if len(w.clusters) == 0 {
		return nil
	}
	var first error
	for _, name := range slices.Sorted(maps.Keys(w.clusters)) {
		wit := w.clusters[name]
		if !wit.isLost() {
			return nil
		}
		if _, _, err := wit.now(); first == nil {
			first = err
		}
	}
	return fmt.Errorf("%w: %w", errAllLost, first)
}

// beating reports whether this process makes progress: a part of it that is stuck must not end the others, but if no
// node answers the process is to begin anew.
func (w *witnesses) beating() bool {
	deaf := 0
	for _, wit := range w.clusters {
		switch age, serves := wit.sinceBeat(); {
		case serves && age < 10*pulse:
			return true
		case serves:
			deaf++
			w.o.Log.Error("the node of a cluster does not answer", "cluster", wit.spec.name, "silent", age.Round(time.Second))
		}
	}
	return deaf == 0
}

// beatInterval ticks as often as systemd's watchdog has to be fed; never without one.
func beatInterval(log *slog.Logger) <-chan time.Time {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		log.Warn("systemd's watchdog is not known", "err", err)
	}
	if err != nil || interval == 0 {
		return nil
	}
	return time.Tick(interval / 3)
}

// reminder says the same thing again from time to time.
type reminder struct {
	text string
	said time.Time
}

func (r *reminder) tell(log *slog.Logger, err error, what string, args ...any) {
	if r.text == err.Error() && time.Since(r.said) < remindEvery {
		return
	}
	r.text, r.said = err.Error(), time.Now()
	log.Error(what, append(args, "err", err)...)
}
