package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/scheduler"
	"github.com/hamgr/hamgr/cluster/state"
)

// changed is what the coordinator answers to a change.
type changed struct {
	Result  api.ChangeResult `json:"result"`
	Refused *api.Error       `json:"refused,omitempty"`
}

// Change has the coordinator commit what is to become of a node, a group, or the cluster. What the request leaves to
// the present state is settled here, once, so that a request which reaches the coordinator twice does nothing twice.
func (b backend) Change(ctx context.Context, req api.ChangeRequest) (api.ChangeResult, error) {
	s := b.n.replica.State()
	if _, ok := b.n.Config.Node(req.Node); !ok && req.Node != "" {
		return api.ChangeResult{}, b.unknownNode(req.Node)
	}
	if _, ok := b.n.configured(req.Group); !ok && req.Group != "" && s.Groups[req.Group] == nil {
		return api.ChangeResult{}, b.unknownGroup(req.Group)
	}
	req, err := settled(req, s)
	if err != nil {
		return api.ChangeResult{}, err
	}
	var a changed
	repeated, err := b.throughCoordinator(ctx, verbChange, req, &a)
	switch {
	case err != nil:
		return api.ChangeResult{}, err
	case a.Refused != nil && repeated:
		return api.ChangeResult{}, afterLoss(req, a.Refused)
	case a.Refused != nil:
		return api.ChangeResult{}, a.Refused
	}
	return a.Result, nil
}

// afterLoss is what a refusal means where the answer to the same request was lost before: the grant that a restart was to
// end may be gone because it was done.
func afterLoss(r api.ChangeRequest, refused *api.Error) *api.Error {
	if r.Verb != api.ChangeRestart || refused.Code != api.ErrUnsafe || r.DryRun {
		return refused
	}
	return &api.Error{
		Code: api.ErrUnknownOutcome, Message: "the first answer was lost, and it may have been restarted then; asked again: " + refused.Message,
		Hint: "hamgr group show " + r.Group + " shows its token, and since when it runs",
	}
}

// settled names what the operator meant by the present holder of a group.
func settled(r api.ChangeRequest, s *state.State) (api.ChangeRequest, error) {
	g := s.Groups[r.Group]
	needed := r.Verb == api.ChangeRestart && r.Token == 0 || r.Verb == api.ChangeMove && r.Away && r.Node == ""
	switch {
	case !needed:
		return r, nil
	case g == nil || g.Grant == nil:
		return r, &api.Error{Code: api.ErrUnsafe, Message: fmt.Sprintf("%s %s: nobody holds it", r.Verb, r.Group), Hint: "hamgr group show " + r.Group + " tells why"}
	case r.Verb == api.ChangeRestart:
		r.Token = g.Grant.Token
	default:
		r.Node = g.Grant.Node
	}
	return r, nil
}

// change is the coordinator's side.
func (b backend) change(ctx context.Context, peer string, r api.ChangeRequest) (changed, error) {
	if err := r.Validate(); err != nil {
		return changed{Refused: told(r, err)}, nil
	}
	if r.By == "" || r.By == state.ByCluster {
		r.By = "operator"
	}
	if peer != b.n.Self {
		r.By += " on " + peer
	}
	before := b.n.replica.State()
	f, err := b.n.coord.Change(ctx, command(r), r.DryRun)
	switch {
	case errors.Is(err, coordinator.ErrNotCoordinator), errors.Is(err, consensus.ErrNotCoordinator):
		return changed{}, err // nothing was done, and another one may
	case err != nil:
		return changed{Refused: told(r, err)}, nil
	}
	return changed{Result: b.foretold(r, before, f)}, nil
}

// command is what a request means to the state.
func command(r api.ChangeRequest) state.Command {
	switch r.Verb {
	case api.ChangeStandby, api.ChangeOnline:
		return state.Command{Standby: &state.Standby{Node: r.Node, On: r.Verb == api.ChangeStandby, By: r.By}}
	case api.ChangeMaintenanceOn, api.ChangeMaintenanceOff:
		return state.Command{Maintain: &state.Maintain{Node: r.Node, Group: r.Group, On: r.Verb == api.ChangeMaintenanceOn, By: r.By}}
	case api.ChangeEnable, api.ChangeDisable:
		return state.Command{Enable: &state.Enable{Group: r.Group, On: r.Verb == api.ChangeEnable, By: r.By}}
	case api.ChangeRestart:
		return state.Command{Restart: &state.RestartGroup{Group: r.Group, Token: r.Token, By: r.By}}
	case api.ChangeClear:
		return state.Command{Clear: &state.Clear{Group: r.Group, Node: r.Node}}
	}
	move := &state.MoveGroup{Group: r.Group, For: r.ForMS, By: r.By}
	if r.Away {
		move.From = r.Node
	} else {
		move.To = r.Node
	}
	return state.Command{Move: move}
}

// foretold turns a forecast into the operator's words. Tokens are those before the change.
func (b backend) foretold(r api.ChangeRequest, before *state.State, f scheduler.Forecast) api.ChangeResult {
	res := api.ChangeResult{
		Verb: r.Verb, Node: r.Node, Group: r.Group, DryRun: r.DryRun, Changed: f.Changed,
		Steps: []api.ChangeStep{}, Groups: []api.ChangedGroup{},
	}
	for _, st := range f.Steps {
		action := api.StepStart
		if st.Stop {
			action = api.StepStop
		}
		res.Steps = append(res.Steps, api.ChangeStep{Group: st.Group, Node: st.Node, Action: action, Reason: st.Reason})
	}
	for _, name := range slices.Sorted(maps.Keys(f.Nodes)) {
		g := api.ChangedGroup{Group: name, Node: f.Nodes[name], Waits: f.Waits[name]}
		if old := before.Groups[name]; old != nil {
			g.Token = newestToken(old)
		}
		res.Groups = append(res.Groups, g)
	}
	if r.Verb == api.ChangeStandby || r.Verb == api.ChangeOnline {
		now := b.n.replica.State()
		n := now.Nodes[r.Node]
		on := n != nil && n.Standby
		res.Standby, res.Holds = &on, append([]string{}, now.Holds(r.Node)...)
	}
	return res
}

func newestToken(g *state.Group) uint64 {
	switch {
	case g.Grant != nil:
		return g.Grant.Token
	case g.Released != nil:
		return g.Released.Token
	}
	return 0
}

// told gives an error of a change the code, and the hint, that the operator needs.
func told(r api.ChangeRequest, err error) *api.Error {
	e := api.AsError(verdict(err))
	if errors.Is(err, consensus.ErrUnknownOutcome) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		e.Code, e.Message = api.ErrUnknownOutcome, "not committed in time, and may still be: "+err.Error()
	}
	switch {
	case e.Hint != "":
	case errors.Is(err, scheduler.ErrImpossible):
		e.Hint = fmt.Sprintf("mend that first, or choose another node: hamgr group show %s, hamgr node list", r.Group)
	case errors.Is(err, state.ErrSuperseded) && r.Verb == api.ChangeRestart:
		e.Hint = "it was stopped or moved meanwhile; hamgr group show " + r.Group + " tells more"
	case errors.Is(err, state.ErrConflict) && r.Group != "":
		e.Hint = "hamgr group show " + r.Group + " tells more"
	case e.Code == api.ErrUnknownOutcome:
		e.Hint = "hamgr status shows whether it was done"
	}
	return e
}

func (b backend) unknownGroup(group string) error {
	names := b.n.replica.State().GroupNames()
	if len(names) == 0 {
		for _, g := range b.n.Config.Groups {
			names = append(names, g.Name)
		}
	}
	hint := "there are no groups"
	if len(names) > 0 {
		hint = "the groups are " + nearestFirst(group, names)
	}
	return &api.Error{Code: api.ErrNotFound, Message: fmt.Sprintf("no group is named %q", group), Hint: hint}
}

// mostNames is how many known names an error tells.
const mostNames = 16

// nearestFirst lists names, those first that begin like the one that was asked for.
func nearestFirst(asked string, names []string) string {
	alike := func(name string) int {
		n := 0
		for n < min(len(name), len(asked)) && name[n] == asked[n] {
			n++
		}
		return n
	}
	names = slices.SortedStableFunc(slices.Values(names), func(x, y string) int { return cmp.Compare(alike(y), alike(x)) })
	if more := len(names) - mostNames; more > 0 {
		return fmt.Sprintf("%s, and %d more: hamgr group list", strings.Join(names[:mostNames], ", "), more)
	}
	return strings.Join(names, ", ")
}
