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

// probes looks for what is active on this node without this node driving it: after a start,
// what ran before; later, what somebody started by hand. The cluster grants no group of which
// such a thing is known.
type probes struct {
	n     *Node
	again chan struct{}
	news  chan struct{} // what was found has changed
	calls calls

	mu   sync.Mutex
	done bool
	last map[string]string
}

const (
	probeInterval = 10 * time.Second
	probeLimit    = 5 * time.Second // a probe that takes longer found something: what hangs may be active
)

func newProbes(n *Node) *probes {
	return &probes{n: n, again: make(chan struct{}, 1), news: make(chan struct{}, 1), calls: calls{}, last: map[string]string{}}
}

// ready reports whether the first look is over.
func (p *probes) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// found gives what is active here without a runner, by group.
func (p *probes) found() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.last)
}

// look asks for a fresh look soon.
func (p *probes) look() {
	select {
	case p.again <- struct{}{}:
	default:
	}
}

func (p *probes) run(ctx context.Context) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		p.lookOnce(ctx)
		select {
		case <-ctx.Done():
		case <-p.again:
		case <-ticker.C:
		}
	}
}

func (p *probes) lookOnce(ctx context.Context) {
	now := map[string]string{}
	for _, group := range p.groups() {
		if what := p.lookAt(ctx, group); what != "" {
			now[group] = what
		}
	}
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	changed := !p.done || !maps.Equal(now, p.last)
	p.last, p.done = now, true
	p.mu.Unlock()
	if changed {
		select {
		case p.news <- struct{}{}:
		default:
		}
	}
}

// groups are those that this node may run by its file, and those that it started in this boot.
func (p *probes) groups() []string {
	groups := map[string]bool{}
	if node, _ := p.n.Config.Node(p.n.Self); node.Role == config.Member {
		for _, g := range p.n.Config.Groups {
			groups[g.Name] = true
		}
	}
	started, err := p.n.recalled()
	if err != nil {
		p.n.Log.Error("what was started in this boot cannot be listed", "err", err)
	}
	for _, g := range started {
		groups[g] = true
	}
	return slices.Sorted(maps.Keys(groups))
}

// lookAt says what of the group is active here although nobody here drives it; empty if nothing is.
// What cannot be looked at may be active.
func (p *probes) lookAt(ctx context.Context, group string) string {
	if p.n.groups.drives(group) {
		return ""
	}
	parts, err := p.n.partsHere(group)
	if err != nil {
		return "cannot be looked at: " + err.Error()
	}
	p.mu.Lock()
	p.calls.keep(group, parts)
	p.mu.Unlock()
	for _, part := range parts {
		s, detail, err := part.look(ctx, probeLimit)
		if p.n.groups.drives(group) {
			return ""
		}
		switch {
		case err != nil:
			return fmt.Sprintf("%s: %s", part.conf.Name, err)
		case s != resources.Inactive:
			return fmt.Sprintf("%s is %s: %s", part.conf.Name, s, detail)
		}
	}
	return ""
}

// partsHere makes the resources of a group for looking at them: as they were started in this boot, else as
// they are configured.
func (n *Node) partsHere(group string) ([]*part, error) {
	h, err := n.recall(group)
	if err != nil {
		return nil, err
	}
	if h != nil {
		return h.parts(n, group)
	}
	g, _ := n.configured(group)
	return buildParts(n, group, g.Resources, 0)
}

// configured gives a group as this node's file has it.
func (n *Node) configured(group string) (config.Group, bool) {
	i := slices.IndexFunc(n.Config.Groups, func(g config.Group) bool { return g.Name == group })
	if i < 0 {
		return config.Group{Name: group}, false
	}
	return n.Config.Groups[i], true
}
