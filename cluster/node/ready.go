package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/resources"
)

// readiness tells, before anything depends on it, which of the groups that this node may run and does not would not
// start here.
type readiness struct {
	n     *Node
	calls calls

	mu      sync.Mutex
	reasons map[string]string
}

const (
	readyInterval = 5 * time.Minute
	readyAgain    = 20 * time.Second // where something is known against a group: somebody may be mending it
	readyLimit    = 10 * time.Second // for one resource
)

func newReadiness(n *Node) *readiness { return &readiness{n: n, calls: calls{}} }

// notReady gives, by group, why it would not start on this node.
func (n *Node) notReady() map[string]string {
	n.ready.mu.Lock()
	defer n.ready.mu.Unlock()
	return maps.Clone(n.ready.reasons)
}

// forget is told of groups that did start here.
func (rd *readiness) forget(group string) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	delete(rd.reasons, group)
}

func (rd *readiness) run(ctx context.Context) {
	for {
		rd.look(ctx)
		pause := readyInterval
		if len(rd.n.notReady()) > 0 {
			pause = readyAgain
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

func (rd *readiness) look(ctx context.Context) {
	reasons := map[string]string{}
	for _, g := range rd.n.Config.Groups {
		if why := rd.lookAt(ctx, g); why != "" {
			reasons[g.Name] = why
		}
	}
	if ctx.Err() != nil {
		return
	}
	rd.mu.Lock()
	defer rd.mu.Unlock()
	for group, why := range reasons {
		if rd.reasons[group] == "" {
			rd.n.Log.Warn("group would not start here", "node", rd.n.Self, "group", group, "reason", why)
		}
	}
	rd.reasons = reasons
}

// lookAt says why a group would not start here; empty if nothing is known against it.
func (rd *readiness) lookAt(ctx context.Context, g config.Group) string {
	node, _ := rd.n.Config.Node(rd.n.Self)
	if node.Role != config.Member || len(g.Allow) > 0 && !slices.Contains(g.Allow, rd.n.Self) || rd.n.groups.runner(g.Name) != nil {
		return ""
	}
	if h, err := rd.n.recall(g.Name); err != nil || h != nil {
		return "" // it runs, or the probes will tell
	}
	parts, err := buildParts(rd.n, g.Name, g.Resources, 0)
	if err != nil {
		return err.Error()
	}
	rd.calls.keep(g.Name, parts)
	for i, p := range parts {
		err := p.check(ctx, readyLimit)
		// The things that are missing before the first resource may come with it.
		if errors.Is(err, resources.ErrSetup) || i == 0 && isFault(err) {
			return (&resourceError{resource: p.conf.Name, err: err}).Error()
		}
	}
	return ""
}

// calls keeps which resources are being called, for those who make them anew for every look: one that hangs is not
// called again before it returns.
type calls map[string]chan struct{}

func (c calls) keep(group string, parts []*part) {
	for _, p := range parts {
		key := group + "/" + p.conf.Name
		if c[key] == nil {
			c[key] = p.busy
		}
		p.busy = c[key]
	}
}
