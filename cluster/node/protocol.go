package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/link"
	"github.com/hamgr/hamgr/cluster/state"
)

// The verbs of the nodes' own protocol.
const (
	verbHello  = "hello"  // coordinator.Hello -> coordinator.Welcome
	verbReport = "report" // state.Command -> nothing
)

// answer is what the coordinator answers to any verb.
type answer struct {
	Welcome *coordinator.Welcome `json:"welcome,omitempty"`
	Error   string               `json:"error,omitempty"`
	Kind    string               `json:"kind,omitempty"` // of the error, a key of errorKinds
}

// errorKinds are the errors that keep their meaning between nodes.
var errorKinds = map[string]error{
	"boot_ended":      state.ErrBootEnded,
	"superseded":      state.ErrSuperseded,
	"conflict":        state.ErrConflict,
	"unknown":         state.ErrUnknown,
	"not_coordinator": coordinator.ErrNotCoordinator,
	"foreign":         coordinator.ErrForeign,
}

// errNoCoordinator: nobody is known to lead.
var errNoCoordinator = errors.New("no coordinator is known")

// peers is how this node speaks to the others.
type peers struct {
	n *Node

	mu      sync.Mutex
	clients map[string]*api.Client
	changed chan struct{}
}

func newPeers(n *Node) *peers {
	return &peers{n: n, clients: map[string]*api.Client{}, changed: make(chan struct{}, 1)}
}

func (p *peers) coordinatorChanged() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func (p *peers) client(node string) *api.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clients[node]
	if c == nil {
		c = api.NewClient(func(ctx context.Context) (net.Conn, error) { return p.n.link.Dial(ctx, node, link.API) })
		p.clients[node] = c
	}
	return c
}

func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.clients {
		c.Close()
	}
}

// hello greets the coordinator, wherever it is.
func (p *peers) hello(ctx context.Context, h coordinator.Hello) (coordinator.Welcome, error) {
	a, err := p.ask(ctx, verbHello, h, func(ctx context.Context) (answer, error) {
		w, err := p.n.coord.Hello(ctx, p.n.Self, h)
		return answer{Welcome: &w}, err
	})
	if err != nil {
		return coordinator.Welcome{}, err
	}
	if a.Welcome == nil {
		return coordinator.Welcome{}, errors.New("hello: empty answer")
	}
	return *a.Welcome, nil
}

// report tells the coordinator of this node's own grants.
func (p *peers) report(ctx context.Context, cmd state.Command) error {
	cmd.Version = state.Version
	_, err := p.ask(ctx, verbReport, cmd, func(ctx context.Context) (answer, error) {
		return answer{}, p.n.coord.Report(ctx, p.n.Self, cmd)
	})
	return err
}

// ask puts a question to the coordinator: directly where that is this node, else over the link.
func (p *peers) ask(ctx context.Context, verb string, question any, here func(context.Context) (answer, error)) (answer, error) {
	name, ok := p.n.replicated.Coordinator()
	if !ok {
		return answer{}, errNoCoordinator
	}
	ctx, cancel := context.WithTimeout(ctx, p.n.Config.Cluster.DetectionTime)
	defer cancel()
	if name == p.n.Self {
		return here(ctx)
	}
	body, err := json.Marshal(question)
	if err != nil {
		return answer{}, err
	}
	client := p.client(name)
	b, err := client.Call(ctx, verb, body)
	if err != nil {
		client.Close() // a connection that died silently is not used again
		return answer{}, fmt.Errorf("%s to %s: %w", verb, name, err)
	}
	var a answer
	if err := json.Unmarshal(b, &a); err != nil {
		return answer{}, fmt.Errorf("%s to %s: %w", verb, name, err)
	}
	if a.Error != "" {
		if kind := errorKinds[a.Kind]; kind != nil {
			return answer{}, fmt.Errorf("%s to %s: %s: %w", verb, name, a.Error, kind)
		}
		return answer{}, fmt.Errorf("%s to %s: %s", verb, name, a.Error)
	}
	return a, nil
}

// Call answers the other nodes.
func (b backend) Call(ctx context.Context, peer, verb string, body []byte) ([]byte, error) {
	var a answer
	var err error
	switch verb {
	case verbHello:
		var h coordinator.Hello
		if err = json.Unmarshal(body, &h); err == nil {
			var w coordinator.Welcome
			w, err = b.n.coord.Hello(ctx, peer, h)
			a.Welcome = &w
		}
	case verbReport:
		var cmd state.Command
		if cmd, err = state.Decode(body); err == nil {
			err = b.n.coord.Report(ctx, peer, cmd)
		}
	default:
		return nil, fmt.Errorf("verb %q: %w", verb, api.ErrNotFound)
	}
	if err != nil {
		a = answer{Error: err.Error(), Kind: kindOf(err)}
	}
	return json.Marshal(a)
}

func kindOf(err error) string {
	if errors.Is(err, consensus.ErrNotCoordinator) {
		return "not_coordinator"
	}
	for kind, is := range errorKinds {
		if errors.Is(err, is) {
			return kind
		}
	}
	return ""
}

// greet says hello to the coordinator for ever: often while this node may not act yet or is
// not answered, else four times in a detection time.
func (n *Node) greet(ctx context.Context) {
	d := n.Config.Cluster.DetectionTime
	for ctx.Err() == nil {
		wait := d / 4
		if err := n.greetOnce(ctx); err != nil {
			wait = d / 20
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
	w, err := n.peers.hello(ctx, coordinator.Hello{
		Boot: n.Boot, Session: n.session, Applied: n.replicated.Status().Applied, Found: n.probes.found(), Ask: ask,
	})
	if errors.Is(err, state.ErrBootEnded) {
		n.groups.outcast(err)
	}
	if err != nil {
		return err
	}
	if !ask {
		n.trust.spoken()
		return nil
	}
	if err := n.replicated.WaitApplied(ctx, w.Index); err != nil {
		return err
	}
	n.trust.answered(era)
	n.groups.wake()
	return nil
}
