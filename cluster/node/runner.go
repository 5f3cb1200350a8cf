package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/resources"
)

// runner drives one group under one grant, from its start to its certain stop.
type runner struct {
	n     *Node
	group config.Group
	grant state.Grant
	log   *slog.Logger
	out   *outbox
	ended chan struct{}

	maintained *maintenance
	recalled   bool     // it only lets go of what an earlier daemon started: no grant that this one knows says so
	adopted    bool     // an earlier daemon of this boot started all of it
	begun      bool     // an earlier one began to, and may have died in the middle
	restarted  restarts // under this grant
	left       bool     // it is recorded that the group is left alone, in maintenance
	unsure     bool     // a maintenance is over, and the group was not seen to be well since
	copies     func(context.Context) map[string]string

	mu      sync.Mutex
	stopped chan struct{} // closed once the group has to stop
	why     string
	parts   []*part
}

// resourceError is the failure of one resource.
type resourceError struct {
	resource string
	err      error
	verdict  state.Verdict // what the configuration wants to become of it
}

func (e *resourceError) Error() string { return e.resource + ": " + e.err.Error() }
func (e *resourceError) Unwrap() error { return e.err }

func newRunner(n *Node, group string, gr state.Grant) *runner {
	log := n.Log.With("group", group, "token", gr.Token)
	g, _ := n.configured(group)
	r := &runner{
		n: n, group: g, grant: gr, log: log,
		out:        newOutbox(n.peers.report, log),
		ended:      make(chan struct{}),
		maintained: newMaintenance(),
		stopped:    make(chan struct{}),
	}
	r.copies = r.askForCopies
	return r
}

// stop has the runner stop the group, whatever it is doing.
func (r *runner) stop(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == "" {
		r.why = why
		close(r.stopped)
	}
}

// over reports whether the runner has ended.
func (r *runner) over() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// run ends when the group is certainly stopped and that was reported, or when ctx ends: then
// the group is left as it is.
func (r *runner) run(ctx context.Context) {
	defer close(r.ended)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		r.out.run(ctx)
	}()
	defer wg.Wait()
	defer r.out.close()

	work, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-r.stopped:
			cancel()
		case <-work.Done():
		}
	}()
	select {
	case <-r.stopped: // from the start: nothing is started that is to be stopped
		cancel()
	default:
	}
	if err := r.prepare(ctx); ctx.Err() != nil {
		return
	} else if errors.Is(err, errNothingStarted) {
		r.fail(err)
	} else if err != nil {
		// It is not known what runs here, or it does not stop: only a proof from outside helps.
		r.log.Error("what runs here cannot be taken in hand", "node", r.n.Self, "err", err)
		r.out.send(state.Command{StopFailed: r.report(err)})
		<-ctx.Done()
		return
	} else if err := r.serve(work); ctx.Err() != nil {
		return
	} else if work.Err() == nil {
		r.fail(err)
	}
	r.stopAll(ctx)
}

// fail reports that the group cannot run here; it is stopped next.
func (r *runner) fail(err error) {
	r.log.Warn("resource failed", "node", r.n.Self, "err", err)
	r.out.send(state.Command{Failed: r.report(err)})
	r.stop(err.Error())
}

func (r *runner) report(err error) *state.Report {
	rep := &state.Report{Group: r.group.Name, Token: r.grant.Token, Node: r.n.Self, Boot: r.n.Boot, Session: r.n.session}
	var re *resourceError
	if errors.As(err, &re) {
		rep.Resource, rep.Error, rep.Verdict = re.resource, re.err.Error(), re.verdict
	} else if err != nil {
		rep.Error = err.Error()
	}
	return rep
}

// errNothingStarted: the group cannot be started here, and nothing of it was.
var errNothingStarted = errors.New("nothing was started")

// prepare makes the resources: as the daemon before this one started them in this boot, if it did, else as
// they are configured.
func (r *runner) prepare(ctx context.Context) error {
	h, err := r.n.recall(r.group.Name)
	if err != nil {
		return err
	}
	if h != nil && h.Token != r.grant.Token {
		if err := r.clearAway(ctx, h); err != nil {
			return err
		}
		h = nil
	}
	var parts []*part
	if h != nil {
		parts, err = h.parts(r.n, r.group.Name)
		r.adopted, r.left = r.grant.Phase == state.Started, h.Maintained
		r.begun = !r.adopted
	} else {
		parts, err = r.fresh()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts = parts
	if h != nil {
		r.restarted = h.Restarts
	}
	return err
}

// fresh makes the resources of this node's file.
func (r *runner) fresh() ([]*part, error) {
	g, known := r.n.configured(r.group.Name)
	if !known {
		return nil, fmt.Errorf("the group is not in this node's configuration file: %w", errNothingStarted)
	}
	parts, err := buildParts(r.n, g.Name, g.Resources, r.grant.Token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, errNothingStarted)
	}
	return parts, nil
}

// clearAway stops what is left of an earlier grant, before this one starts anything.
func (r *runner) clearAway(ctx context.Context, h *held) error {
	left, err := h.parts(r.n, r.group.Name)
	if err != nil {
		return fmt.Errorf("left over from token %d: %w", h.Token, err)
	}
	for _, p := range slices.Backward(left) {
		if err := r.stopPart(ctx, p); err != nil {
			return fmt.Errorf("left over from token %d: %s: stop: %w", h.Token, p.conf.Name, err)
		}
	}
	if err := r.n.letGo(r.group.Name); err != nil {
		return err
	}
	r.n.dog.release(r.group.Name, h.Token)
	return nil
}

// stopAll stops the resources in reverse order, and again until all are certainly
// inactive. A stop that fails is reported: it gets this node fenced.
func (r *runner) stopAll(ctx context.Context) {
	r.log.Info("stopping group", "node", r.n.Self, "reason", r.why)
	again := time.Second
	for i := len(r.parts) - 1; i >= 0; {
		p := r.parts[i]
		err := r.stopPart(ctx, p)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			i--
			continue
		}
		r.log.Error("resource does not stop", "node", r.n.Self, "resource", p.conf.Name, "err", err)
		r.out.send(state.Command{StopFailed: r.report(&resourceError{resource: p.conf.Name, err: fmt.Errorf("stop: %w", err)})})
		if !sleep(ctx, again) {
			return
		}
		again = min(2*again, time.Minute)
	}
	if err := r.n.letGo(r.group.Name); err != nil {
		r.log.Error("record of what was started is not removed", "node", r.n.Self, "err", err)
	}
	r.n.dog.release(r.group.Name, r.grant.Token)
	r.out.send(state.Command{Stopped: r.report(nil)})
	r.out.flush(ctx)
}

func (r *runner) stopPart(ctx context.Context, p *part) error {
	within, cancel := context.WithTimeout(ctx, p.conf.StopTimeout)
	defer cancel()
	began := time.Now()
	err := p.call(within, p.Stop)
	if errors.Is(err, errNotCalled) && !p.used {
		err = nil // a question hangs, but nothing was started that could be stopped
	}
	if err != nil {
		r.note(p, resources.Unknown, err.Error())
		return err
	}
	r.note(p, resources.Inactive, "")
	r.log.Info("resource stopped", "node", r.n.Self, "resource", p.conf.Name, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// note keeps how a resource is, for those who ask, and gives how it was.
func (r *runner) note(p *part, s resources.State, detail string) (was resources.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, p.state, p.detail = p.state, s, detail
	return was
}

// sleep waits, and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
