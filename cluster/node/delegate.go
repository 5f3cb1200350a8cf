package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// The verbs by which a coordinator has other nodes talk to fence devices.
const (
	verbShoot   = "shoot"   // to the executor: delegation -> outcome
	verbStands  = "stands"  // from the executor, before each command: delegation -> nothing
	verbCheck   = "check"   // to a reader: checkRequest -> []stonith.Health
	verbContact = "contact" // to any node: contactRequest -> contactAnswer
)

// delegation is an operation that another node is to carry out.
type delegation struct {
	Operation state.Operation `json:"operation"`
	Machine   stonith.Machine `json:"machine,omitzero"`
}

// outcome is what came of a delegation.
type outcome struct {
	Proof *stonith.Proof `json:"proof,omitempty"`
	// OffAgo is how long before the answer the target was first read off.
	OffAgo time.Duration `json:"off_ago_ns,omitempty"`
	On     bool          `json:"on,omitempty"`
	Failed *failedShot   `json:"failed,omitempty"`
}

// failedShot is a stonith.Failure on its way between nodes.
type failedShot struct {
	Error     string                 `json:"error"`
	Commanded bool                   `json:"commanded"`
	Devices   []stonith.DeviceResult `json:"devices,omitempty"`
}

// executorError is what an executor said of its failure; the stonith.Failure in it has only what
// was sent along.
type executorError struct {
	executor, text string
	failure        stonith.Failure
}

func (e *executorError) Error() string { return "by " + e.executor + ": " + e.text }
func (e *executorError) Unwrap() error { return &e.failure }

type checkRequest struct {
	Target  string          `json:"target"`
	Machine stonith.Machine `json:"machine,omitzero"`
}

type contactRequest struct {
	Node string `json:"node"`
}

type contactAnswer struct {
	Age   time.Duration `json:"age_ns"`
	Heard bool          `json:"heard"`
}

// elsewhere is how the coordinator reaches the other nodes.
type elsewhere struct{ n *Node }

var _ coordinator.Elsewhere = elsewhere{}

// Off has the operation's executor switch its target off.
func (e elsewhere) Off(ctx context.Context, o state.Operation, m stonith.Machine) (stonith.Proof, error) {
	out, err := e.shoot(ctx, o, m)
	if err != nil {
		return stonith.Proof{}, err
	}
	if out.Proof == nil || out.Proof.Node != o.Node || out.Proof.Boot != o.Boot || out.Proof.Op != o.ID || len(out.Proof.Plugs) == 0 || out.OffAgo < 0 {
		return stonith.Proof{}, fmt.Errorf("%s gave no proof of operation %d", o.Executor, o.ID)
	}
	// The answer took time to come, so this is no earlier than when the target was read off.
	off := time.Now().Add(-out.OffAgo)
	for i := range out.Proof.Plugs {
		out.Proof.Plugs[i].OffSince = off
	}
	return *out.Proof, nil
}

// On has the operation's executor switch its target on.
func (e elsewhere) On(ctx context.Context, o state.Operation, m stonith.Machine) error {
	out, err := e.shoot(ctx, o, m)
	if err == nil && !out.On {
		err = fmt.Errorf("%s does not say that %s is on", o.Executor, o.Node)
	}
	return err
}

func (e elsewhere) shoot(ctx context.Context, o state.Operation, m stonith.Machine) (outcome, error) {
	o.Trail = nil
	var out outcome
	if err := e.n.peers.tell(ctx, o.Executor, verbShoot, delegation{o, m}, &out); err != nil {
		return outcome{}, err
	}
	if f := out.Failed; f != nil {
		return outcome{}, &executorError{executor: o.Executor, text: f.Error, failure: stonith.Failure{
			Node: o.Node, Op: o.ID, Commanded: f.Commanded, Devices: f.Devices,
		}}
	}
	return out, nil
}

// Check has the reader look at the target's fence devices.
func (e elsewhere) Check(ctx context.Context, reader, target string, m stonith.Machine) ([]stonith.Health, error) {
	var found []stonith.Health
	err := e.n.peers.tell(ctx, reader, verbCheck, checkRequest{target, m}, &found)
	return found, err
}

// Contact asks a node when it last heard another one.
func (e elsewhere) Contact(ctx context.Context, asked, node string) (time.Duration, bool, error) {
	var a contactAnswer
	err := e.n.peers.tell(ctx, asked, verbContact, contactRequest{node}, &a)
	return a.Age, a.Heard, err
}

// tell asks one node and reads its answer into result, which may be nil.
func (p *peers) tell(ctx context.Context, node, verb string, question, result any) error {
	a, err := p.call(ctx, node, verb, mustMarshal(question))
	if err != nil {
		return err
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(a.Body, result); err != nil {
		return fmt.Errorf("%s to %s: %w", verb, node, err)
	}
	return nil
}

// delegated answers the verbs above.
func (b backend) delegated(ctx context.Context, peer, verb string, body []byte) (answer, error) {
	switch verb {
	case verbShoot:
		return asked(body, func(d delegation) (any, error) { return b.shoot(ctx, peer, d) })
	case verbStands:
		return asked(body, func(d delegation) (any, error) { return nil, b.n.coord.Stands(ctx, d.Operation, peer) })
	case verbCheck:
		return asked(body, func(r checkRequest) (any, error) {
			if _, ok := b.n.Config.Node(r.Target); !ok {
				return nil, b.unknownNode(r.Target)
			}
			return b.n.fencer.Check(ctx, stonith.Target{Node: r.Target, Machine: r.Machine, Levels: levels(b.n.Config, r.Target, b.n.Log)}), nil
		})
	case verbActive:
		return asked(body, func(r activeRequest) (any, error) { return b.active(ctx, r), nil })
	case verbTry:
		return asked(body, func(t tryRequest) (any, error) { return b.n.try(t.Text), nil })
	case verbAccount:
		return answer{Body: mustMarshal(b.n.ownAccount())}, nil
	case verbContact:
		return asked(body, func(r contactRequest) (any, error) {
			at, heard := b.n.link.Contact(r.Node)
			return contactAnswer{Age: max(0, time.Since(at)), Heard: heard}, nil
		})
	}
	return answer{}, fmt.Errorf("verb %q: %w", verb, api.ErrNotFound)
}

// asked decodes a question, has it answered, and encodes the answer.
func asked[Q any](body []byte, reply func(Q) (any, error)) (answer, error) {
	var q Q
	if err := json.Unmarshal(body, &q); err != nil {
		return answer{}, err
	}
	v, err := reply(q)
	if err != nil {
		return answer{}, err
	}
	return answer{Body: mustMarshal(v)}, nil
}

// shoot is the executor's side. Whoever asks has to answer, before each command, that it leads and
// that the operation is still this node's: a coordinator that was replaced cannot.
func (b backend) shoot(ctx context.Context, peer string, d delegation) (outcome, error) {
	o := d.Operation
	if _, ok := b.n.Config.Node(o.Node); !ok {
		return outcome{}, b.unknownNode(o.Node)
	}
	if o.Node == b.n.Self {
		return outcome{}, fmt.Errorf("operation %d is against this node: %w", o.ID, state.ErrConflict)
	}
	b.n.Log.Info("fencing for the coordinator", "node", o.Node, "boot", o.Boot, "op", o.ID, "action", o.Action, "coordinator", peer)
	order := stonith.Order{
		Target: stonith.Target{Node: o.Node, Boot: o.Boot, Machine: d.Machine, Levels: levels(b.n.Config, o.Node, b.n.Log)},
		Op:     o.ID, Level: o.Level,
		Gate: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, b.n.Config.Cluster.DetectionTime)
			defer cancel()
			return b.n.peers.tell(ctx, peer, verbStands, d, nil)
		},
	}
	if o.PowersOn() {
		if err := b.n.fencer.On(ctx, order); err != nil {
			return outcome{Failed: failed(err)}, nil
		}
		return outcome{On: true}, nil
	}
	proof, err := b.n.fencer.Off(ctx, order)
	if err != nil {
		return outcome{Failed: failed(err)}, nil
	}
	return outcome{Proof: &proof, OffAgo: max(0, time.Since(proof.OffSince()))}, nil
}

func failed(err error) *failedShot {
	f := &failedShot{Error: err.Error()}
	var failure *stonith.Failure
	if errors.As(err, &failure) {
		f.Commanded, f.Devices = failure.Commanded, failure.Devices
	}
	return f
}
