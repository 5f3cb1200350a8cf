package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/consensus"
)

// The states of a cluster that a witness serves.
const (
	WitnessStarting = "starting"
	WitnessServing  = "serving"
	WitnessFailed   = "failed"  // and tried again
	WitnessLost     = "lost"    // not tried again by this process
	WitnessRefused  = "refused" // its file cannot be used
)

const (
	// The pauses between two attempts to serve a cluster that fails.
	shortestRetry = time.Second
	longestRetry  = time.Minute
	// steady is how long a node must have run for its next failure to be a first one again.
	steady = 10 * time.Minute
)

// witness serves one cluster. What fails there ends there, and is tried again after growing pauses.
type witness struct {
	spec    candidate
	options Options
	serve   serving
	change  func()
	cancel  context.CancelFunc
	done    chan struct{}

	// Of the one who calls end:
	ending bool
	ended  chan struct{}

	mu    sync.Mutex
	state string
	since time.Time
	err   error
	node  *Node
	beat  time.Time
}

func newWitness(c candidate, o Options, serve serving, change func()) *witness {
	return &witness{spec: c, options: o, serve: serve, change: change, done: make(chan struct{}), state: WitnessStarting, since: time.Now()}
}

func (w *witness) start(ctx context.Context) {
	ctx, w.cancel = context.WithCancel(ctx)
	go func() {
		defer close(w.done)
		w.run(ctx)
	}()
}

func (w *witness) run(ctx context.Context) {
	pause := shortestRetry
	for {
		began := time.Now()
		err := w.serve(ctx, w.options, w.running, w.beats)
		switch {
		case errors.Is(err, consensus.ErrStoreHung), errors.Is(err, errStuck):
			// What hangs may come back at any time: its files, its locks and maybe its sockets are still held. It
			// has been cut off the network, and a second one beside it in this process would be a second voter.
			w.set(WitnessLost, err)
			w.options.Log.Error("this cluster is not served by this process any more; restart it when the disk is well", "err", err)
			return
		case ctx.Err() != nil:
			if err != nil {
				w.options.Log.Warn("not all ended in order", "err", err)
			}
			return
		case err == nil:
			err = errors.New("its node ended by itself")
		}
		if time.Since(began) > steady {
			pause = shortestRetry
		}
		w.set(WitnessFailed, err)
		w.options.Log.Error("this cluster is not served now", "again_in", pause, "err", err)
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, longestRetry)
	}
}

// end has it end in order, and gives a func that waits for that. What does not end within patience is lost to this
// process.
func (w *witness) end(patience time.Duration) (wait func()) {
	if !w.ending {
		w.ending, w.ended = true, make(chan struct{})
		w.cancel()
		go func() {
			defer w.change()
			defer close(w.ended)
			timer := time.NewTimer(patience)
			defer timer.Stop()
			select {
			case <-w.done:
			case <-timer.C:
				w.set(WitnessLost, errStuck)
				w.options.Log.Error("this cluster does not end", "waited", patience)
			}
		}()
	}
	return func() { <-w.ended }
}

func (w *witness) hasEnded() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

func (w *witness) running(n *Node) {
	w.mu.Lock()
	w.node, w.beat = n, time.Now()
	w.mu.Unlock()
	w.set(WitnessServing, nil)
}

func (w *witness) beats() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beat = time.Now()
}

func (w *witness) set(state string, err error) {
	w.mu.Lock()
	if w.state != state {
		w.since = time.Now()
	}
	w.state, w.err = state, err
	if state != WitnessServing {
		w.node = nil
	}
	w.mu.Unlock()
	w.change()
}

func (w *witness) now() (state string, since time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state, w.since, w.err
}

func (w *witness) isLost() bool {
	state, _, _ := w.now()
	return state == WitnessLost
}

// sinceBeat is how long ago the parts of the node answered.
func (w *witness) sinceBeat() (age time.Duration, serves bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.beat), w.state == WitnessServing
}

// same reports whether the candidate is what is served already. A file that follows the cluster's configuration, with
// which the node runs, is no change.
func (w *witness) same(c candidate) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.print != w.spec.print && w.node != nil && c.text != "" && c.text == w.node.Text && c.keyed == w.spec.keyed && c.node == w.spec.node {
		w.spec = c
	}
	return c.print == w.spec.print
}

// rekey lets the node go on with a changed key file, which it follows itself, where nothing else has changed.
func (w *witness) rekey(c candidate) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.node == nil || c.text != w.spec.text || c.node != w.spec.node || c.key != w.spec.key {
		return false
	}
	w.node.keys.hint()
	w.spec = c
	return true
}
