package node

import (
	"context"
	"errors"
	"time"

	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/state"
)

// greet says hello to the coordinator for ever: often while this node may not act yet or is
// not answered, else twice in a detection time.
func (n *Node) greet(ctx context.Context) {
	d := n.Config.Cluster.DetectionTime
	defer n.progress.over(loopGreet)
	for ctx.Err() == nil {
		n.progress.beat(loopGreet)
		wait := d / 2
		if err := n.greetOnce(ctx); err != nil {
			wait = d / 20
			if errors.Is(err, errNoCoordinator) {
				wait = d / 8 // an election wakes this loop
			}
			n.Log.Debug("hello not answered", "node", n.Self, "err", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-n.peers.changed:
		case <-n.probes.news:
		}
		t.Stop()
	}
}

func (n *Node) greetOnce(ctx context.Context) error {
	if !n.probes.ready() {
		return errors.New("what runs here is not probed yet")
	}
	era, ask := n.trust.question()
	claim, mark := n.dog.claim()
	status := n.replicated.Status()
	h := coordinator.Hello{
		Boot: n.Boot, Session: n.session, Digest: n.digest, Text: n.text, Speaks: n.Speaks, Fencing: n.fencing, Unarmed: n.Config.Unarmed, Applied: status.Applied, Found: n.probes.found(), Ask: ask,
		Machine: n.Machine, Watchdog: claim, Line: status.Line, Deaf: status.Role == consensus.RoleFailed,
	}
	w, err := n.peers.hello(ctx, h)
	if err == nil && w.Riddle != "" {
		h.Echo = w.Riddle
		w, err = n.peers.hello(ctx, h)
	}
	switch {
	case errors.Is(err, state.ErrBootEnded):
		n.groups.outcast(err)
		return err
	case err != nil:
		return err
	case w.Riddle != "":
		return errors.New("the coordinator does not believe this boot yet")
	}
	n.dog.Heard(mark)
	n.offered(w)
	if !ask {
		n.trust.spoken()
		return nil
	}
	// Hellos must go on while this node catches up: they tell how far it is.
	ctx, cancel := context.WithTimeout(ctx, n.Config.Cluster.DetectionTime/4)
	defer cancel()
	if err := n.replicated.WaitApplied(ctx, w.Index); err != nil {
		return err
	}
	n.noteQuorate()
	n.trust.answered(era)
	n.groups.wake()
	n.configs.wake()
	return nil
}
