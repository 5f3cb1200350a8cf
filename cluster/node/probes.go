package node

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
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

	mu   sync.Mutex
	done bool
	last map[string]string
}

const (
	probeInterval = 10 * time.Second
	probeLimit    = 5 * time.Second // a probe that takes longer found something: what hangs may be active
)

func newProbes(n *Node) *probes {
	return &probes{n: n, again: make(chan struct{}, 1), news: make(chan struct{}, 1), last: map[string]string{}}
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
	if node, _ := p.n.Config.Node(p.n.Self); node.Role == config.Member {
		for _, g := range p.n.Config.Groups {
			if what := p.lookAt(ctx, g); what != "" {
				now[g.Name] = what
			}
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

// lookAt says what of the group is active here although nobody here drives it; empty if nothing is.
func (p *probes) lookAt(ctx context.Context, g config.Group) string {
	if p.n.groups.runner(g.Name) != nil {
		return ""
	}
	parts, err := buildParts(p.n, g, 0)
	if err != nil {
		return "" // nothing of it can be looked at; nothing of it can be started either
	}
	for _, part := range parts {
		s, detail, err := probe(ctx, part.Resource, probeLimit)
		if p.n.groups.runner(g.Name) != nil {
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

// buildParts makes the resources of a group for a grant; token 0 is for looking only.
func buildParts(n *Node, g config.Group, token uint64) ([]*part, error) {
	var parts []*part
	for _, c := range g.Resources {
		dir := filepath.Join(n.RunDir, g.Name, c.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, &resourceError{c.Name, err}
		}
		res, err := c.Options.New(resources.Env{
			Group: g.Name, Resource: c.Name, Node: n.Self, Boot: n.Boot, Token: token,
			Dir: dir, Log: n.Log.With("group", g.Name, "resource", c.Name, "token", token),
		})
		if err != nil {
			return nil, &resourceError{c.Name, err}
		}
		parts = append(parts, &part{Resource: res, conf: c})
	}
	return parts, nil
}
