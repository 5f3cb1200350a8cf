package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/state"
)

// The verbs of a change of the configuration.
const (
	verbApply = "apply" // to the coordinator: api.ApplyRequest -> applied
	verbTry   = "try"   // from it to every node: tryRequest -> tried
)

// tryRequest asks a node whether it could run with a configuration.
type tryRequest struct {
	Text string `json:"text"`
}

// tried is the answer, with what else the node knows of itself that a change is judged by.
type tried struct {
	Rejects    string        `json:"rejects,omitempty"`
	LongestGap time.Duration `json:"longest_gap_ns,omitempty"`
	WriteP99   time.Duration `json:"write_p99_ns,omitempty"`
	Text       string        `json:"text,omitempty"` // digest of the text that it runs with
	// Started are the resources that were started here, or are about to be, by group, as they were configured then.
	Started map[string][]startedResource `json:"started,omitempty"`
	Unknown string                       `json:"unknown,omitempty"` // why that is not known
}

// startedResource is what makes a resource another's like, or not.
type startedResource struct {
	Name    string          `json:"name"`
	Kind    string          `json:"kind"`
	Options json.RawMessage `json:"options"`
}

// applied is what the coordinator answers.
type applied struct {
	Result  api.ApplyResult `json:"result"`
	Refused *api.Error      `json:"refused,omitempty"`
}

// Configuration gives the cluster's configuration as it is applied here.
func (b backend) Configuration(ctx context.Context) (api.Configuration, error) {
	n, s := b.n, b.n.replica.State()
	c := api.Configuration{
		Schema: api.Schema, Cluster: n.Config.Cluster.Name, Text: s.Text,
		Index: s.Configured.Index, By: s.Configured.By, At: displayTime(s.Configured.At),
	}
	if s.Text == "" {
		c.Note = noText(s)
		return c, nil
	}
	runs := n.accounts(ctx)
	for _, name := range s.NodeNames() {
		node := api.ConfiguredNode{Name: name, Current: runs[name].Text == textDigest(s.Text), Reason: runs[name].Refuses}
		if !node.Current && node.Reason == "" {
			node.Reason = "runs with another one"
			if runs[name].Text == "" {
				node.Reason = "does not answer"
			}
		}
		c.Nodes = append(c.Nodes, node)
	}
	return c, nil
}

// noText says why the log holds no configuration.
func noText(s *state.State) string {
	if s.Format() < 2 {
		return fmt.Sprintf("the log is at version %d of its format, which holds no configuration: every node has to run a newer hamgr, and to be up once", s.Format())
	}
	return "the coordinator's file cannot be sent to the other nodes, or differs from the cluster's: its log tells why (inline secrets, for example)"
}

// Apply has the coordinator judge a configuration, and commit it.
func (b backend) Apply(ctx context.Context, req api.ApplyRequest) (api.ApplyResult, error) {
	if err := req.Validate(); err != nil {
		return api.ApplyResult{}, err
	}
	var a applied
	if _, err := b.throughCoordinator(ctx, verbApply, req, &a); err != nil {
		return api.ApplyResult{}, err
	}
	if a.Refused != nil {
		return api.ApplyResult{}, a.Refused
	}
	return a.Result, nil
}

// mostJudged is how often a change is judged at most, because a group was granted before it was committed.
const mostJudged = 5

// apply is the coordinator's side. A request that comes twice, its first answer lost, was committed if the cluster has its
// text.
func (b backend) apply(ctx context.Context, peer string, r api.ApplyRequest) (a applied, err error) {
	for range mostJudged {
		s := b.n.replica.State()
		if a, err = b.applyTo(ctx, s, peer, r); !errors.Is(err, state.ErrSuperseded) {
			return a, err
		}
	}
	return applied{Refused: told(api.ChangeRequest{}, err)}, nil
}

// applyTo judges a configuration by a state, and commits it; ErrSuperseded says that it is to be judged again.
func (b backend) applyTo(ctx context.Context, s *state.State, peer string, r api.ApplyRequest) (applied, error) {
	refuse := func(code api.Code, hint, format string, args ...any) (applied, error) {
		return applied{Refused: &api.Error{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}}, nil
	}
	res := api.ApplyResult{Index: s.Configured.Index, Changes: []api.ConfigChange{}, Refused: []api.Objection{}, Warnings: []api.Objection{}}
	switch {
	case s.Text == "":
		return refuse(api.ErrUnsafe, "hamgr status shows the nodes and their versions", "the cluster keeps no configuration in its log: %s", noText(s))
	case s.Text == r.Text:
		res.Applied = !r.DryRun
		return applied{Result: res}, nil
	case r.From != s.Configured.Index:
		return refuse(api.ErrUnsafe, "hamgr config diff shows how the file differs from what the cluster goes by now", "the cluster's configuration is %d by now, not %d: somebody else has changed it", s.Configured.Index, r.From)
	}
	wanted, err := config.CheckText("the new configuration", []byte(r.Text), b.n.Kinds)
	if err != nil {
		return refuse(api.ErrInvalid, "hamgr config check tells the same of the file", "%s", err)
	}
	present, err := config.CheckText(config.CommittedName(s.Configured.Index), []byte(s.Text), b.n.Kinds)
	if err != nil {
		return refuse(api.ErrInternal, "", "the present configuration is not understood: %s", err)
	}
	res.Changes = changes(config.Diff(present, wanted))
	facts := b.facts(ctx, s, wanted, r.Text)
	verdict := config.Judge(present, wanted, &facts)
	res.Refused, res.Warnings = objections(verdict.Refused), objections(verdict.Warnings)
	if len(res.Refused) > 0 || r.DryRun {
		return applied{Result: res}, nil
	}
	return b.commitConfiguration(ctx, s, peer, r, wanted, res)
}

func (b backend) commitConfiguration(ctx context.Context, s *state.State, peer string, r api.ApplyRequest, c *config.Config, res api.ApplyResult) (applied, error) {
	cmd := seed(c)
	cmd.Text, cmd.TwoNode, cmd.From, cmd.LastToken = r.Text, c.Cluster.TwoNode, r.From, s.LastToken
	cmd.By = orElse(r.By, "operator")
	if peer != b.n.Self {
		cmd.By += " on " + peer
	}
	err := b.n.coord.Configure(ctx, cmd)
	switch {
	case errors.Is(err, coordinator.ErrNotCoordinator), errors.Is(err, consensus.ErrNotCoordinator):
		return applied{}, err // nothing was done, and another one may
	case errors.Is(err, state.ErrSuperseded):
		return applied{}, err
	case err != nil:
		return applied{Refused: told(api.ChangeRequest{}, err)}, nil
	}
	res.Applied, res.Index = true, b.n.replica.State().Configured.Index
	return applied{Result: res}, nil
}

func changes(diff []config.Change) []api.ConfigChange {
	all := []api.ConfigChange{}
	for _, c := range diff {
		all = append(all, api.ConfigChange{
			What: string(c.What), Group: c.Group, Name: c.Name, Kind: string(c.Kind), Key: c.Key, Old: c.Old, New: c.New, Effect: c.Effect,
		})
	}
	return all
}

func objections(from []config.Objection) []api.Objection {
	all := []api.Objection{}
	for _, o := range from {
		all = append(all, api.Objection{Key: o.Key, Message: o.Msg, Cure: o.Cure})
	}
	return all
}

// facts collects what a change is judged by. Every node of the new configuration that answers tries whether it could run
// with it.
func (b backend) facts(ctx context.Context, s *state.State, wanted *config.Config, text string) config.Facts {
	now := time.Now()
	f := config.Facts{
		Nodes: map[string]config.NodeFacts{}, Groups: map[string]config.GroupFacts{},
		Maintenance: s.Maintenance, Minute: now.Hour()*60 + now.Minute(),
	}
	for _, v := range b.n.replicated.Status().Voters {
		if v.Votes {
			f.Voters = append(f.Voters, v.Node)
		}
		if v.Votes && !v.Heard {
			f.Silent = append(f.Silent, v.Node)
		}
	}
	trials := b.tryEverywhere(ctx, wanted, text)
	for _, name := range s.NodeNames() {
		n := s.Nodes[name]
		trial, answers := trials[name]
		f.Nodes[name] = config.NodeFacts{
			Answers: answers, Up: n.Up, Left: n.Left, Unclean: n.Unclean, Op: n.Op, Standby: n.Standby,
			Reached: b.n.reached(name), LongestGap: trial.LongestGap, WriteP99: trial.WriteP99, Rejects: trial.Rejects,
		}
	}
	for _, name := range s.GroupNames() {
		f.Groups[name] = b.groupFacts(s, name, trials)
	}
	return f
}

func (b backend) groupFacts(s *state.State, name string, trials map[string]tried) config.GroupFacts {
	var f config.GroupFacts
	g := s.Groups[name]
	if g.Grant != nil {
		f.Holders = append(f.Holders, g.Grant.Node)
		f.Running = g.Grant.Phase == state.Started
	}
	for node := range g.Found {
		if !slices.Contains(f.Holders, node) {
			f.Holders = append(f.Holders, node)
		}
	}
	slices.Sort(f.Holders[min(1, len(f.Holders)):])
	for _, holder := range f.Holders {
		t, answers := trials[holder]
		switch {
		case !answers:
			f.Unknown = holder + " does not answer"
		case t.Text != textDigest(s.Text):
			f.Unknown = holder + " does not run with the cluster's configuration yet"
		case t.Unknown != "":
			f.Unknown = holder + ": " + t.Unknown
		}
		started, err := b.startedAs(t.Started[name])
		if err != nil {
			f.Unknown = holder + ": " + err.Error()
		}
		f.Resources = append(f.Resources, started...)
	}
	return f
}

// startedAs makes of what a node told what the configuration calls a resource.
func (b backend) startedAs(all []startedResource) ([]config.Resource, error) {
	var confs []config.Resource
	for _, r := range all {
		kind, ok := b.n.Kinds.Resources[r.Kind]
		if !ok {
			return nil, fmt.Errorf("resource %s was started as kind %q, which this daemon does not know", r.Name, r.Kind)
		}
		c := config.Resource{Name: r.Name, Kind: r.Kind, Options: kind.Options()}
		if err := json.Unmarshal(r.Options, c.Options); err != nil {
			return nil, fmt.Errorf("resource %s: %w", r.Name, err)
		}
		confs = append(confs, c)
	}
	return confs, nil
}

// tryEverywhere has the nodes that stay try a configuration; who gives no answer is not in the result.
func (b backend) tryEverywhere(ctx context.Context, wanted *config.Config, text string) map[string]tried {
	ctx, cancel := context.WithTimeout(ctx, max(b.n.Config.Cluster.DetectionTime, 2*time.Second))
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	answers := map[string]tried{b.n.Self: b.n.try(text)}
	for _, name := range b.n.Config.NodeNames() {
		if name == b.n.Self {
			continue
		}
		all.Go(func() {
			question := tryRequest{text}
			if _, stays := wanted.Node(name); !stays {
				question.Text = "" // it need not run with it
			}
			var t tried
			if err := b.n.peers.tell(ctx, name, verbTry, question, &t); err != nil {
				b.n.Log.Debug("configuration not tried", "node", name, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[name] = t
		})
	}
	all.Wait()
	return answers
}

// try says whether this node could run with a configuration.
func (n *Node) try(text string) tried {
	t := tried{LongestGap: n.Pace.longestGap(), WriteP99: n.Pace.writeP99(), Text: n.text}
	t.Started, t.Unknown = n.startedHere()
	if text == "" {
		return t
	}
	if _, err := config.LoadBytes("the new configuration", []byte(text), n.Kinds); err != nil {
		t.Rejects = strings.TrimSpace(err.Error())
	}
	return t
}

// startedHere tells what was started in this boot, by the records of it, and what this daemon's runners are about to start.
func (n *Node) startedHere() (all map[string][]startedResource, unknown string) {
	all = map[string][]startedResource{}
	groups, err := n.recalled()
	for _, name := range groups {
		h, recallErr := n.recall(name)
		err = errors.Join(err, recallErr)
		if h == nil {
			continue
		}
		for _, r := range h.Resources {
			all[name] = append(all[name], startedResource{r.Name, r.Kind, r.Options})
		}
	}
	for name, g := range n.groups.running() {
		for _, r := range g.Resources {
			options, marshalErr := json.Marshal(r.Options)
			err = errors.Join(err, marshalErr)
			all[name] = append(all[name], startedResource{r.Name, r.Kind, options})
		}
	}
	if err != nil {
		unknown = err.Error()
	}
	return all, unknown
}

// reached lists the addresses over which there is contact with a node now; nil if that is not known.
func (n *Node) reached(node string) []string {
	if node == n.Self {
		return nil
	}
	addresses := []string{}
	fresh := n.Config.Cluster.DetectionTime.Milliseconds()
	conf, _ := n.Config.Node(node)
	for _, h := range n.link.Health() {
		if h.Node != node {
			continue
		}
		for i, l := range h.Links {
			heard := l.InAgeMS >= 0 && l.InAgeMS < fresh || l.StreamAgeMS >= 0 && l.StreamAgeMS < fresh
			if heard && i < len(conf.Addresses) {
				addresses = append(addresses, conf.Addresses[i])
			}
		}
	}
	return addresses
}

// running gives the groups that have a runner, as that was made.
func (gs *groups) running() map[string]config.Group {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	all := map[string]config.Group{}
	for name, r := range gs.runners {
		all[name] = r.group
	}
	return all
}
