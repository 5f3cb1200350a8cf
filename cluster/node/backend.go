package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/link"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// backend answers the operator and the other nodes.
type backend struct{ n *Node }

var (
	_ api.Backend     = backend{}
	_ api.NodeBackend = backend{}
)

// Operator is what an operator on this host may ask of the daemon.
func (n *Node) Operator() api.Backend { return backend{n} }

// serve opens the node's API to the other nodes and to the operator.
func (n *Node) serve(ctx context.Context) error {
	if n.Socket != "" {
		l, err := api.ListenUnix(ctx, n.Socket)
		if err != nil {
			return err
		}
		n.spawn(func() {
			if err := api.Serve(ctx, l, api.Operator(backend{n}), n.Log); err != nil {
				n.Log.Error("operator's socket failed", "socket", n.Socket, "err", err)
			}
		})
	}
	n.spawn(func() {
		if err := api.Serve(ctx, n.link.Listener(link.API), api.Nodes(backend{n}), n.Log); err != nil && ctx.Err() == nil {
			n.Log.Error("node API failed", "err", err)
		}
	})
	return nil
}

// FenceStatus reads every device of a node afresh.
func (b backend) FenceStatus(ctx context.Context, node string) (api.FenceStatus, error) {
	if _, ok := b.n.Config.Node(node); !ok {
		return api.FenceStatus{}, b.unknownNode(node)
	}
	st := api.FenceStatus{Schema: api.Schema, Node: node, ReadBy: b.n.Self}
	if n := b.n.replica.State().Nodes[node]; n != nil {
		st.Unclean, st.FenceOp = n.Unclean != "", n.Op
	}
	target := stonith.Target{Node: node, Levels: levels(b.n.Config, node, b.n.Log)}
	for _, p := range b.n.fencer.Status(ctx, target) {
		st.Plugs = append(st.Plugs, api.PlugStatus{
			Level: p.Level, Device: p.Device, Agent: p.Agent, Plug: p.Plug,
			State: p.State.String(), Detail: p.Detail, Error: p.Error, TookMS: p.Took.Milliseconds(),
		})
	}
	st.Power = power(st.Plugs).String()
	return st, ctx.Err()
}

// power sums up what a node's plugs say: off only where every plug of some level says so and
// none of another one says on.
func power(plugs []api.PlugStatus) agents.PowerState {
	allOff := map[int]bool{}
	for _, p := range plugs {
		if p.State == agents.On.String() {
			return agents.On
		}
		off, seen := allOff[p.Level]
		allOff[p.Level] = p.State == agents.Off.String() && (off || !seen)
	}
	for _, off := range allOff {
		if off {
			return agents.Off
		}
	}
	return agents.Unknown
}

// Fence has the coordinator fence a node, wherever the coordinator is. Where the leadership moves on
// the way (the coordinator itself may be the target), the request follows it.
func (b backend) Fence(ctx context.Context, req api.FenceRequest, observe func(api.FenceEvent)) (api.FenceResult, error) {
	patience := time.Now().Add(2 * b.n.Config.Cluster.DetectionTime) // longer than an election takes
	for {
		name, ok := b.n.replicated.Coordinator()
		var res api.FenceResult
		err := noCoordinator()
		switch {
		case ok && name == b.n.Self:
			here := req
			here.By = orElse(req.By, "operator") + " on " + b.n.Self
			res, err = b.fenceHere(ctx, here, observe)
		case ok:
			res, err = b.n.peers.client(name).Fence(ctx, req, observe)
		}
		// Only an answer that nothing was done is tried again.
		if !errors.Is(err, api.ErrNoCoordinator) && !errors.Is(err, api.ErrUnreachable) {
			return res, err
		}
		if time.Now().After(patience) || !sleep(ctx, b.n.Config.Cluster.DetectionTime/10) {
			return res, err
		}
	}
}

// FenceForwarded is Fence for another node's operator.
func (b backend) FenceForwarded(ctx context.Context, peer string, req api.FenceRequest, observe func(api.FenceEvent)) (api.FenceResult, error) {
	if !b.n.replicated.IsCoordinator() {
		return api.FenceResult{}, noCoordinator()
	}
	if req.By == "" {
		req.By = "operator"
	}
	req.By += " on " + peer
	return b.fenceHere(ctx, req, observe)
}

func (b backend) fenceHere(ctx context.Context, req api.FenceRequest, observe func(api.FenceEvent)) (api.FenceResult, error) {
	if _, ok := b.n.Config.Node(req.Node); !ok {
		return api.FenceResult{}, b.unknownNode(req.Node)
	}
	if req.By == "" || req.By == state.ByCluster {
		req.By = "operator"
	}
	if req.Action == api.ActionConfirm {
		return b.confirmHere(ctx, req)
	}
	have := len(levels(b.n.Config, req.Node, b.n.Log))
	if have == 0 {
		return api.FenceResult{}, &api.Error{Code: api.ErrUnsafe, Message: fmt.Sprintf("node %s has no fence device", req.Node), Hint: "add one to its fencing in hamgr.toml"}
	}
	if req.Node == b.n.Self && len(b.n.Config.Nodes) == 1 {
		return api.FenceResult{}, &api.Error{Code: api.ErrUnsafe, Message: fmt.Sprintf("%s is the only node: nobody else can fence it", req.Node)}
	}
	if req.Level > have {
		return api.FenceResult{}, &api.Error{Code: api.ErrInvalid, Message: fmt.Sprintf("node %s has no level %d of fencing", req.Node, req.Level), Hint: fmt.Sprintf("it has %d", have)}
	}
	order := state.Order{Node: req.Node, Action: state.FenceAction(req.Action), Level: req.Level, Reason: req.Reason, By: req.By}
	if order.Reason == "" {
		order.Reason = "ordered by " + order.By
	}
	began := time.Now()
	op, err := b.n.coord.Fence(ctx, order, func(p coordinator.Progress) { observe(event(p)) })
	if err != nil {
		return api.FenceResult{}, fenceError(op, err)
	}
	res := api.FenceResult{
		Schema: api.Schema, Op: op.ID, Node: op.Node, Boot: op.Boot, Action: string(op.Action),
		Phase: api.PhaseDone, Proof: proofText(op.Proof), TookMS: time.Since(began).Milliseconds(),
	}
	switch {
	case op.Phase == state.ProvenOff:
		res.Phase = api.PhaseProven
		res.Note = "fenced, but not powered on yet: " + op.Error
	case op.Phase == state.CalledOff:
		return res, &api.Error{Code: api.ErrFailed, Message: "called off: " + op.Note}
	case req.Action == api.ActionRehearse && (op.Proof == nil || op.Proof.Kind != state.PowerOff):
		return res, &api.Error{Code: api.ErrFailed, Message: fmt.Sprintf("the rehearsal of level %d failed: %s", req.Level, op.Note), Hint: "hamgr fence history " + req.Node}
	default:
		res.Note = op.Note
	}
	return res, nil
}

// confirmHere takes an operator's word that a node is down.
func (b backend) confirmHere(ctx context.Context, req api.FenceRequest) (api.FenceResult, error) {
	began := time.Now()
	word := state.Confirm{Node: req.Node, By: req.By, Reason: req.Reason, Force: req.Force}
	op, err := b.n.coord.Confirm(ctx, word)
	if errors.Is(err, coordinator.ErrAlive) {
		return api.FenceResult{}, &api.Error{Code: api.ErrUnsafe, Message: err.Error(),
			Hint: "if it runs all the same and this is confirmed, two nodes write; fence it: hamgr fence off " + req.Node}
	}
	if err != nil {
		return api.FenceResult{}, fenceError(op, err)
	}
	return api.FenceResult{
		Schema: api.Schema, Op: op.ID, Node: op.Node, Boot: op.Boot, Action: req.Action,
		Phase: api.PhaseDone, Proof: proofText(op.Proof), Note: op.Note, TookMS: time.Since(began).Milliseconds(),
	}, nil
}

// fenceError says what became of an operation that was not followed to its end.
func fenceError(op state.Operation, err error) error {
	switch {
	case errors.Is(err, coordinator.ErrNotCoordinator), errors.Is(err, consensus.ErrNotCoordinator):
		return noCoordinator()
	case errors.Is(err, coordinator.ErrMajority):
		return &api.Error{Code: api.ErrUnsafe, Message: fmt.Sprintf("not fenced: %v", err), Hint: "another voter has to be there first: hamgr status (of two voters, both are always needed)"}
	case op.ID != 0:
		return &api.Error{
			Code:    api.ErrUnknownOutcome,
			Message: fmt.Sprintf("operation %d against %s is committed and goes on by itself: %v", op.ID, op.Node, err),
			Hint:    "hamgr status shows how it ends",
		}
	case errors.Is(err, state.ErrConflict), errors.Is(err, state.ErrSuperseded):
		return &api.Error{Code: api.ErrUnsafe, Message: err.Error(), Hint: "hamgr status shows the operation that is under way"}
	case errors.Is(err, context.DeadlineExceeded):
		return &api.Error{Code: api.ErrUnknownOutcome, Message: "not committed in time, and may still be: " + err.Error(), Hint: "hamgr status shows whether it was"}
	case errors.Is(err, consensus.ErrUnknownOutcome):
		return &api.Error{Code: api.ErrUnknownOutcome, Message: err.Error(), Hint: "hamgr status shows whether it was committed"}
	}
	return err
}

func noCoordinator() error {
	return &api.Error{
		Code:    api.ErrNoCoordinator,
		Message: "there is no coordinator: without a majority of the nodes nothing is done",
		Hint:    "bring back nodes until hamgr status shows a quorum",
	}
}

func (b backend) unknownNode(node string) error {
	return &api.Error{
		Code:    api.ErrNotFound,
		Message: fmt.Sprintf("no node is named %q", node),
		Hint:    "the nodes are " + strings.Join(b.n.Config.NodeNames(), ", "),
	}
}

// event turns a coordinator's progress into the operator's.
func event(p coordinator.Progress) api.FenceEvent {
	e := api.FenceEvent{Op: p.Op, At: time.Now(), Phase: phase(p.Phase), Text: p.Text}
	if p.Step != nil {
		e.Device, e.Plug, e.TookMS = p.Step.Device, p.Step.Plug, p.Step.Took.Milliseconds()
		e.State = p.Step.State.String()
		if p.Step.Err != nil {
			e.Error = p.Step.Err.Error()
		}
	}
	return e
}

// phase gives the operator's word for how far an operation came.
func phase(p state.OpPhase) string {
	switch p {
	case state.Ordered:
		return api.PhaseCommitted
	case state.Shooting:
		return api.PhaseOff
	case state.ProvenOff:
		return api.PhaseProven
	case state.CalledOff:
		return api.PhaseCalledOff
	default:
		return api.PhaseDone
	}
}

func proofText(p *state.Proof) string {
	switch {
	case p == nil:
		return ""
	case p.Kind == state.PowerOff:
		return "power read back off: " + strings.Join(p.Evidence, "; ")
	case p.Kind == state.NewBoot:
		return "came back with a new boot"
	case p.Kind == state.OperatorWord:
		return "an operator's word: " + strings.Join(p.Evidence, "; ")
	case p.Kind == state.Watchdog:
		return "watchdog expired (nothing was read off): " + strings.Join(p.Evidence, "; ")
	default:
		return "stopped cleanly"
	}
}
