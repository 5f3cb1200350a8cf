package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/stonith"
)

// ReadDirectly stands for the reading node where no daemon took part. No node can bear the name.
const ReadDirectly = "(direct)"

// Direct works the fence devices from the configuration file alone, for an operator whose cluster is dead. It
// asks no daemon and no quorum, compares no machine's identity (nodes announce theirs to the cluster) and records
// nothing; its proof is shown to the operator, and voids no grant. What off means is the same: read back, twice, at
// every feed of a level.
type Direct struct {
	config *config.Config
	fencer *stonith.Fencer
	log    *slog.Logger
	last   atomic.Uint64 // number of the newest operation of this process
}

// OpenDirect reads the file and the secrets that it names; all that is wrong with it is
// config.Errors. It asks no device yet.
func OpenDirect(path string, log *slog.Logger) (*Direct, error) {
	c, err := config.Load(path, Kinds())
	if err != nil {
		return nil, err
	}
	return newDirect(c, log), nil
}

func newDirect(c *config.Config, log *slog.Logger) *Direct {
	return &Direct{config: c, fencer: stonith.New(log), log: log}
}

// Close waits until the devices are let go: a session slot that is left behind on a BMC is missing later.
func (d *Direct) Close(ctx context.Context) error { return d.fencer.Wait(ctx) }

// Nodes are the names of the nodes in the file.
func (d *Direct) Nodes() []string { return d.config.NodeNames() }

// Levels are the device names of a node's fencing.
func (d *Direct) Levels(node string) [][]string {
	n, _ := d.config.Node(node)
	return n.Fencing
}

// Here reports whether the node is this host, by its name. Nobody can prove himself off.
func (d *Direct) Here(node string) bool {
	name, err := hostName()
	return err == nil && name == node
}

// Status reads every plug of a node afresh.
func (d *Direct) Status(ctx context.Context, node string) (api.FenceStatus, error) {
	target, err := d.target(node)
	if err != nil {
		return api.FenceStatus{}, err
	}
	st := api.FenceStatus{Schema: api.Schema, Node: node, ReadBy: ReadDirectly, Plugs: []api.PlugStatus{}}
	for _, p := range d.fencer.Status(ctx, target) {
		st.Plugs = append(st.Plugs, api.PlugStatus{
			Level: p.Level, Device: p.Device, Agent: p.Agent, Plug: p.Plug,
			State: p.State.String(), Detail: p.Detail, Error: p.Error, TookMS: p.Took.Milliseconds(),
		})
	}
	st.Power = power(st.Plugs).String()
	return st, ctx.Err()
}

// Test reads all that can be read of the devices of a node, or of all nodes if it is empty, and changes nothing.
func (d *Direct) Test(ctx context.Context, node string) (api.FenceTest, error) {
	names := d.config.NodeNames()
	if node != "" {
		names = []string{node}
	}
	found := make([][]coordinator.Observation, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		target, err := d.target(name)
		if err != nil {
			return api.FenceTest{}, err
		}
		wg.Go(func() {
			for _, h := range d.fencer.Check(ctx, target) {
				found[i] = append(found[i], coordinator.Observation{Health: h, Target: name, Reader: ReadDirectly, At: time.Now()})
			}
		})
	}
	wg.Wait()
	return api.FenceTest{Schema: api.Schema, Node: node, Devices: deviceHealth(slices.Concat(found...))}, ctx.Err()
}

// Fence switches a node off, on, or off and on, and returns when that is read back or has failed. When
// ctx ends, it ends: nobody carries it on. Its result has no operation number, since the cluster has no such operation.
func (d *Direct) Fence(ctx context.Context, req api.FenceRequest, observe func(api.FenceEvent)) (api.FenceResult, error) {
	if err := req.Validate(); err != nil {
		return api.FenceResult{}, err
	}
	target, err := d.target(req.Node)
	switch {
	case err != nil:
		return api.FenceResult{}, err
	case !slices.Contains([]string{api.ActionOff, api.ActionOn, api.ActionReboot}, req.Action):
		return api.FenceResult{}, fmt.Errorf("%w: %s is for a cluster that works", api.ErrInvalid, req.Action)
	case len(target.Levels) == 0:
		return api.FenceResult{}, &api.Error{Code: api.ErrUnsafe, Message: fmt.Sprintf("node %s has no fence device in %s", req.Node, d.config.Path)}
	case req.Action != api.ActionOn && d.Here(req.Node):
		return api.FenceResult{}, &api.Error{Code: api.ErrUnsafe, Message: fmt.Sprintf("%s is this host: it could not read back that it is off", req.Node), Hint: "run it on another host"}
	}
	began := time.Now()
	phase := api.PhaseOff
	order := stonith.Order{
		Target: target, Op: d.last.Add(1),
		Gate:    func(context.Context) error { return nil }, // no cluster is asked: that is what direct means
		Observe: func(s stonith.Step) { observe(directEvent(phase, s)) },
	}
	res := api.FenceResult{Schema: api.Schema, Node: req.Node, Action: req.Action, Phase: api.PhaseDone}
	if req.Action != api.ActionOn {
		proof, err := d.fencer.Off(ctx, order)
		if err != nil {
			return api.FenceResult{}, directError(req.Node, "proven off", err)
		}
		res.Proof = directProof(proof)
		observe(api.FenceEvent{At: time.Now(), Phase: api.PhaseProven, Text: req.Node + " is proven off"})
	}
	if req.Action != api.ActionOff { // a reboot gets here with the proof in hand only
		phase = api.PhaseOn
		switch err := d.fencer.On(ctx, order); {
		case err != nil && req.Action == api.ActionReboot:
			res.Phase, res.Note = api.PhaseProven, err.Error()
		case err != nil:
			return api.FenceResult{}, directError(req.Node, "on", err)
		}
	}
	res.TookMS = time.Since(began).Milliseconds()
	return res, nil
}

func (d *Direct) target(node string) (stonith.Target, error) {
	if _, ok := d.config.Node(node); !ok {
		return stonith.Target{}, &api.Error{
			Code: api.ErrNotFound, Message: fmt.Sprintf("%s has no node %q", d.config.Path, node),
			Hint: "the nodes are " + strings.Join(d.config.NodeNames(), ", "),
		}
	}
	return stonith.Target{Node: node, Levels: levels(d.config, node, d.log)}, nil
}

// directError tells a failure at the devices from an end of time, and whether the power may have been touched.
func directError(node, goal string, err error) error {
	failure, ok := errors.AsType[*stonith.Failure](err)
	switch ended := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled); {
	case !ok || !ended:
		return &api.Error{Code: api.ErrFailed, Message: err.Error(), Hint: fmt.Sprintf("hamgr fence test --direct %s tells what is wrong with the devices", node)}
	case failure.Commanded:
		return &api.Error{
			Code: api.ErrUnknownOutcome, Message: err.Error(),
			Hint: fmt.Sprintf("%s is not %s, and nobody carries on: hamgr fence status --direct %s", node, goal, node),
		}
	default:
		return &api.Error{Code: api.ErrTimeout, Message: err.Error() + "; no command went out"}
	}
}

func directProof(p stonith.Proof) string {
	var lines []string
	for _, plug := range p.Plugs {
		line := strings.TrimSpace(plug.Device+" "+plug.Plug) + ": read " + plug.Detail + " twice"
		if plug.WasOff {
			line += ", was off before"
		}
		lines = append(lines, line)
	}
	return fmt.Sprintf("power read back off at level %d: %s", p.Level, strings.Join(lines, "; "))
}

func directEvent(phase string, s stonith.Step) api.FenceEvent {
	e := api.FenceEvent{
		At: time.Now(), Phase: phase, Text: s.String(),
		Device: s.Device, Plug: s.Plug, State: s.State.String(), TookMS: s.Took.Milliseconds(),
	}
	if s.Err != nil {
		e.Error = s.Err.Error()
	}
	return e
}
