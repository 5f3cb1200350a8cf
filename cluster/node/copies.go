package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/resources"
)

// verbActive asks any node what of a group is active there now, without being driven by it: activeRequest -> activeAnswer.
const verbActive = "active"

type activeRequest struct {
	Group string `json:"group"`
}

type activeAnswer struct {
	Found string `json:"found,omitempty"` // empty if nothing is
}

// active looks afresh. What it finds, the cluster is to hear of as well.
func (b backend) active(ctx context.Context, r activeRequest) activeAnswer {
	p := b.n.probes
	if !slices.Contains(p.groups(), r.Group) {
		return activeAnswer{}
	}
	a := activeAnswer{p.lookAt(ctx, r.Group)}
	if a.Found != "" {
		p.look()
	}
	return a
}

// copyKnown says where a copy of the group is known to be active: a second one is never started.
func (r *runner) copyKnown() error {
	g := r.n.replica.State().Groups[r.group.Name]
	if g == nil {
		return nil
	}
	for _, node := range slices.Sorted(maps.Keys(g.Found)) {
		if node != r.n.Self {
			return copyError(node, g.Found[node])
		}
	}
	return nil
}

func copyError(node, what string) error {
	return fmt.Errorf("found active on %s without a grant: %s: %w", node, what, resources.ErrElsewhere)
}

// copyElsewhere asks the other nodes that are heard: in the maintenance that is just over, somebody may have moved the
// group by hand, and their next probes may come too late to tell. The error names the first one that has it active.
func (r *runner) copyElsewhere(ctx context.Context) error {
	found := r.copies(ctx)
	if len(found) == 0 {
		return ctx.Err()
	}
	// As soon as it is let go here, it would be granted to the next node, which is to be warned too.
	for end := time.Now().Add(r.n.Config.Cluster.DetectionTime); r.copyKnown() == nil && time.Now().Before(end); {
		if !sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	node := slices.Min(slices.Collect(maps.Keys(found)))
	return copyError(node, found[node])
}

// askForCopies gives, by node, what of the group is active there.
func (r *runner) askForCopies(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, probeLimit+callGrace)
	defer cancel()
	var (
		mu    sync.Mutex
		asked sync.WaitGroup
	)
	found := map[string]string{}
	for _, node := range r.n.heardWithin(r.n.Config.Cluster.DetectionTime) {
		if peer, _ := r.n.Config.Node(node); node == r.n.Self || peer.Role != config.Member {
			continue
		}
		asked.Go(func() {
			var a activeAnswer
			if err := r.n.peers.tell(ctx, node, verbActive, activeRequest{r.group.Name}, &a); err != nil {
				r.log.Warn("what is active elsewhere is not known", "node", node, "err", err)
			}
			if a.Found != "" {
				mu.Lock()
				defer mu.Unlock()
				found[node] = a.Found
			}
		})
	}
	asked.Wait()
	return found
}
