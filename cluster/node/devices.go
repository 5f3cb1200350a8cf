package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/scheduler"
	"github.com/hamgr/hamgr/cluster/state"
)

// The verbs that any node passes on to the coordinator for its operator.
const (
	verbOutlook = "outlook" // nothing -> outlook
	verbTest    = "test"    // testRequest -> []api.DeviceHealth, read now
	verbChange  = "change"  // api.ChangeRequest -> changed
)

type testRequest struct {
	Node string `json:"node,omitempty"`
}

// FenceTest has every node that may have to use a fence device read it.
func (b backend) FenceTest(ctx context.Context, node string) (api.FenceTest, error) {
	if _, ok := b.n.Config.Node(node); !ok && node != "" {
		return api.FenceTest{}, b.unknownNode(node)
	}
	t := api.FenceTest{Node: node, Devices: []api.DeviceHealth{}}
	_, err := b.throughCoordinator(ctx, verbTest, testRequest{node}, &t.Devices)
	return t, err
}

// throughCoordinator asks the coordinator, wherever it is, while the leadership moves too. repeated says that the
// question went out before, and that the answer to that was lost.
func (b backend) throughCoordinator(ctx context.Context, verb string, question, result any) (repeated bool, err error) {
	d := b.n.Config.Cluster.DetectionTime
	return insist(ctx, 2*d, d/10, func() error {
		name, known := b.n.replicated.Coordinator()
		switch {
		case known && name == b.n.Self:
			a, err := b.coordinated(ctx, b.n.Self, verb, mustMarshal(question))
			if err != nil {
				return err
			}
			return json.Unmarshal(a.Body, result)
		case known:
			return b.n.peers.tell(ctx, name, verb, question, result)
		}
		return coordinator.ErrNotCoordinator
	})
}

// insist asks until there is an answer, at most for patience.
func insist(ctx context.Context, patience, pause time.Duration, ask func() error) (repeated bool, err error) {
	until := time.Now().Add(patience)
	var lost error // of a question that went out
	for {
		err := ask()
		if errors.Is(err, errTransport) && !errors.Is(err, api.ErrUnreachable) {
			lost = err
		}
		switch {
		case err == nil:
			return lost != nil, nil
		case !errors.Is(err, coordinator.ErrNotCoordinator) && !errors.Is(err, errTransport):
			return lost != nil, verdict(err)
		case time.Now().Before(until) && sleep(ctx, pause):
			continue
		case lost != nil:
			return true, &api.Error{Code: api.ErrUnknownOutcome, Message: lost.Error(), Hint: "hamgr status shows whether it was done"}
		}
		return false, noCoordinator()
	}
}

// verdict gives an error of the state its code.
func verdict(err error) error {
	var told *api.Error
	switch {
	case errors.As(err, &told):
		return err
	case errors.Is(err, state.ErrUnknown):
		return &api.Error{Code: api.ErrNotFound, Message: err.Error()}
	case errors.Is(err, state.ErrConflict), errors.Is(err, state.ErrSuperseded), errors.Is(err, scheduler.ErrImpossible):
		return &api.Error{Code: api.ErrUnsafe, Message: err.Error()}
	}
	return err
}

// coordinated is the coordinator's side.
func (b backend) coordinated(ctx context.Context, peer, verb string, body []byte) (answer, error) {
	if !b.n.replicated.IsCoordinator() {
		return answer{}, coordinator.ErrNotCoordinator
	}
	switch verb {
	case verbOutlook:
		return answer{Body: mustMarshal(b.n.ownOutlook())}, nil
	case verbTest:
		return asked(body, func(r testRequest) (any, error) {
			seen, err := b.n.coord.TestDevices(ctx, r.Node)
			return deviceHealth(seen), err
		})
	case verbChange:
		return asked(body, func(r api.ChangeRequest) (any, error) { return b.change(ctx, peer, r) })
	case verbApply:
		return asked(body, func(r api.ApplyRequest) (any, error) { return b.apply(ctx, peer, r) })
	}
	return answer{}, fmt.Errorf("verb %q: %w", verb, api.ErrNotFound)
}

// outlook is what only the coordinator knows: how the fence devices were last found, and what waits for what.
type outlook struct {
	Devices    []api.DeviceHealth  `json:"devices"`
	Waits      map[uint64]obstacle `json:"waits"`      // by operation
	Quarantine map[string]string   `json:"quarantine"` // by node
	Wishes     map[string]string   `json:"wishes"`     // by group; nil if the coordinator was not asked
	// Differs are the nodes whose files say otherwise than the coordinator's what feeds each node.
	Differs []string `json:"differs,omitempty"`
}

// obstacle is why an operation waits, and what may be done about it.
type obstacle struct {
	Why  string `json:"why"`
	Cure string `json:"cure,omitempty"`
}

func (n *Node) ownOutlook() outlook {
	s, view := n.replica.State(), n.coord.View()
	o := outlook{Devices: deviceHealth(n.coord.Devices()), Waits: map[uint64]obstacle{}, Quarantine: map[string]string{}, Wishes: wishes(s, scheduler.Now(s, view)), Differs: n.coord.OtherFencing()}
	for name, node := range s.Nodes {
		if op := s.OpenOperation(name); op != nil {
			if why := scheduler.Obstacle(s, view, op); why != "" {
				cure := "bring back the nodes that do not answer"
				if scheduler.Brake(s, view, op) != "" {
					cure = "" // it says itself how it is overruled
				}
				o.Waits[op.ID] = obstacle{why, cure}
			} else if why := n.coord.Awaits(*op); why != "" {
				o.Waits[op.ID] = obstacle{why, ""}
			}
		}
		if _, why := scheduler.Quarantine(node, scheduler.Now(s, view), view.Policy); why != "" {
			o.Quarantine[name] = why
		}
	}
	return o
}

// outlook asks the coordinator; it is empty if that does not answer soon, since a status must not wait.
func (n *Node) outlook(ctx context.Context) outlook {
	name, known := n.replicated.Coordinator()
	switch {
	case !known:
		return outlook{}
	case name == n.Self:
		return n.ownOutlook()
	}
	ctx, cancel := context.WithTimeout(ctx, n.Config.Cluster.DetectionTime/4)
	defer cancel()
	var o outlook
	if err := n.peers.tell(ctx, name, verbOutlook, struct{}{}, &o); err != nil {
		n.Log.Debug("the coordinator's outlook is not known", "coordinator", name, "err", err)
		return outlook{}
	}
	return o
}

func deviceHealth(seen []coordinator.Observation) []api.DeviceHealth {
	all := []api.DeviceHealth{}
	for _, o := range seen {
		all = append(all, api.DeviceHealth{
			Node: o.Target, Level: o.Level, Device: o.Device, Agent: o.Agent, Plug: o.Plug, ReadBy: o.Reader, OK: o.Healthy(),
			State: o.State.String(), Detail: o.Detail, Trouble: string(o.Trouble), Error: o.Error,
			Identity: api.DeviceIdentity{UUID: o.Identity.UUID, Serial: o.Identity.Serial, Name: o.Identity.Name},
			AgeMS:    time.Since(o.At).Milliseconds(), TookMS: o.TookMS,
		})
	}
	return all
}

// FenceHistory gives the operations that are remembered.
func (b backend) FenceHistory(_ context.Context, node string) (api.FenceHistory, error) {
	if _, ok := b.n.Config.Node(node); !ok && node != "" {
		return api.FenceHistory{}, b.unknownNode(node)
	}
	s := b.n.replica.State()
	h := api.FenceHistory{Node: node, Operations: []api.Operation{}}
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(s.Operations))) {
		o := s.Operations[id]
		if node != "" && o.Node != node {
			continue
		}
		st := operationStatus(o)
		st.Attempts = attempts(o)
		h.Operations = append(h.Operations, st)
	}
	return h, nil
}

func attempts(o *state.Operation) []api.FenceAttempt {
	var all []api.FenceAttempt
	for _, a := range o.Trail {
		at := api.FenceAttempt{
			Executor: a.Executor, At: displayTime(a.At), Proven: a.Proven, Error: a.Error,
			Devices: []api.DeviceResult{}, Opinions: a.Opinions,
		}
		for _, d := range a.Devices {
			at.Devices = append(at.Devices, api.DeviceResult(d))
		}
		all = append(all, at)
	}
	return all
}
