package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

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
	// To any node, and from there to the coordinator: relay -> what the coordinator answers.
	verbRelay, verbRelayed = "relay", "relayed"
)

// relay is a question on its way through a third node.
type relay struct {
	From string          `json:"from,omitempty"` // set by the third node
	Verb string          `json:"verb"`
	Body json.RawMessage `json:"body"`
}

// answer is what a node answers to any verb.
type answer struct {
	Welcome *coordinator.Welcome `json:"welcome,omitempty"`
	Body    json.RawMessage      `json:"body,omitempty"` // to the verbs of delegate.go and devices.go
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
	"session":         state.ErrSession,
	"version":         state.ErrVersion,
	"format":          state.ErrFormat,
	"not_answered":    errTransport,
}

// errNoCoordinator: nobody is known to lead.
var errNoCoordinator = fmt.Errorf("no coordinator is known: %w", coordinator.ErrNotCoordinator)

// peers is how this node speaks to the others.
type peers struct {
	n *Node

	mu      sync.Mutex
	clients map[string]*api.Client
	failed  map[string]int // how often each node could not relay, lately
	changed chan struct{}
}

func newPeers(n *Node) *peers {
	return &peers{n: n, clients: map[string]*api.Client{}, failed: map[string]int{}, changed: make(chan struct{}, 1)}
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
	cmd.Version = cmd.Needs()
	_, err := p.ask(ctx, verbReport, cmd, func(ctx context.Context) (answer, error) {
		return answer{}, p.n.coord.Report(ctx, p.n.Self, cmd)
	})
	return err
}

// ask puts a question to the coordinator: directly where that is this node, else over the link; and
// where that does not work, through any other node, since a cut between two must not silence one
// that all others hear.
func (p *peers) ask(ctx context.Context, verb string, question any, here func(context.Context) (answer, error)) (answer, error) {
	d := p.n.Config.Cluster.DetectionTime
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	name, known := p.n.replicated.Coordinator()
	if known && name == p.n.Self {
		return here(ctx)
	}
	body, err := json.Marshal(question)
	if err != nil {
		return answer{}, err
	}
	err = errNoCoordinator
	if known {
		var a answer
		direct, cancel := context.WithTimeout(ctx, d/2)
		defer cancel()
		if a, err = p.call(direct, name, verb, body); !errors.Is(err, errTransport) {
			return a, err
		}
	}
	for _, via := range p.relays() {
		if known && via == name {
			continue
		}
		within, cancel := context.WithTimeout(ctx, d/4)
		a, relayed := p.call(within, via, verbRelay, mustMarshal(relay{Verb: verb, Body: body}))
		cancel()
		if !errors.Is(relayed, errTransport) && !errors.Is(relayed, coordinator.ErrNotCoordinator) {
			p.remember(via)
			return a, relayed
		}
		p.forget(via)
	}
	return answer{}, err
}

// relays lists the nodes that may pass a question on: the one that did so last comes first, those that could
// not come last.
func (p *peers) relays() []string {
	heard := p.n.heardWithin(p.n.Config.Cluster.DetectionTime / 2)
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortStableFunc(heard, func(a, b string) int { return p.failed[a] - p.failed[b] })
	return heard
}

func (p *peers) remember(via string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = map[string]int{via: -1}
}

func (p *peers) forget(via string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed[via] = max(p.failed[via], 0) + 1
}

// errTransport: no answer came, or none that was one.
var errTransport = errors.New("not answered")

func (p *peers) call(ctx context.Context, node, verb string, body []byte) (answer, error) {
	client := p.client(node)
	b, err := client.Call(ctx, verb, body)
	if err != nil {
		client.Close() // a connection that died silently is not used again
		return answer{}, fmt.Errorf("%s to %s: %w: %w", verb, node, errTransport, err)
	}
	var a answer
	if err := json.Unmarshal(b, &a); err != nil {
		return answer{}, fmt.Errorf("%s to %s: %w: %w", verb, node, errTransport, err)
	}
	if a.Error != "" {
		if kind := errorKinds[a.Kind]; kind != nil {
			return answer{}, fmt.Errorf("%s to %s: %s: %w", verb, node, a.Error, kind)
		}
		return answer{}, fmt.Errorf("%s to %s: %s", verb, node, a.Error)
	}
	return a, nil
}

// Call answers the other nodes.
func (b backend) Call(ctx context.Context, peer, verb string, body []byte) ([]byte, error) {
	var a answer
	var err error
	switch verb {
	case verbRelay:
		a, err = b.relay(ctx, peer, body)
	case verbRelayed:
		a, err = b.relayed(ctx, body)
	case verbHello, verbReport:
		a, err = b.answer(ctx, peer, verb, body, false)
	case verbOutlook, verbTest, verbChange, verbApply:
		a, err = b.coordinated(ctx, peer, verb, body)
	default:
		a, err = b.delegated(ctx, peer, verb, body)
	}
	if err != nil {
		a = answer{Error: err.Error(), Kind: kindOf(err)}
	}
	return json.Marshal(a)
}

// answer is the coordinator's side of hello and report.
func (b backend) answer(ctx context.Context, from, verb string, body []byte, relayed bool) (answer, error) {
	if verb == verbHello {
		var h coordinator.Hello
		if err := json.Unmarshal(body, &h); err != nil {
			return answer{}, err
		}
		h.Relayed = relayed
		w, err := b.n.coord.Hello(ctx, from, h)
		return answer{Welcome: &w}, err
	}
	cmd, err := state.Decode(body)
	if err != nil {
		return answer{}, err
	}
	return answer{}, b.n.coord.Report(ctx, from, cmd)
}

// relay passes a peer's question on to the coordinator, which the peer does not reach.
func (b backend) relay(ctx context.Context, peer string, body []byte) (answer, error) {
	var r relay
	if err := json.Unmarshal(body, &r); err != nil {
		return answer{}, err
	}
	if r.Verb != verbHello && r.Verb != verbReport {
		return answer{}, fmt.Errorf("relay of %q: %w", r.Verb, api.ErrNotFound)
	}
	name, ok := b.n.replicated.Coordinator()
	switch {
	case !ok:
		return answer{}, coordinator.ErrNotCoordinator
	case name == b.n.Self:
		return b.answer(ctx, peer, r.Verb, r.Body, false)
	}
	r.From = peer
	return b.n.peers.call(ctx, name, verbRelayed, mustMarshal(r))
}

// relayed answers a question that a third node passed on. That the node which asks is From is the third
// one's word: it holds the cluster key, as every node does.
func (b backend) relayed(ctx context.Context, body []byte) (answer, error) {
	var r relay
	if err := json.Unmarshal(body, &r); err != nil {
		return answer{}, err
	}
	if _, ok := b.n.Config.Node(r.From); !ok || r.Verb != verbHello && r.Verb != verbReport {
		return answer{}, fmt.Errorf("relayed %q of %q: %w", r.Verb, r.From, coordinator.ErrForeign)
	}
	return b.answer(ctx, r.From, r.Verb, r.Body, true)
}

func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("node: plain data does not encode: " + err.Error())
	}
	return b
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
