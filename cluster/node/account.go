package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/state"
)

// verbAccount asks any node for what it alone knows of the groups: nothing -> account.
const verbAccount = "account"

// account is what a node alone knows, of the groups above all, and tells the others for their operators.
type account struct {
	Runs     map[string]running  `json:"runs,omitempty"`      // by group, what it drives
	NotReady map[string]string   `json:"not_ready,omitempty"` // by group, why it would not start there
	Text     string              `json:"text,omitempty"`      // digest of the configuration text that it runs with
	Refuses  string              `json:"refuses,omitempty"`   // why it cannot run with the cluster's
	Watchdog *api.WatchdogStatus `json:"watchdog,omitempty"`
	Contacts []string            `json:"contacts,omitempty"` // with whom it is in contact both ways
	NoVote   string              `json:"no_vote,omitempty"`  // why it has no part in the log any more
	Keys     keyAccount          `json:"keys,omitzero"`
}

// running is a group as its holder sees it.
type running struct {
	Token     uint64               `json:"token"`
	Restarts  *api.GroupRestarts   `json:"restarts,omitempty"`
	Resources []api.ResourceStatus `json:"resources,omitempty"`
	Omitted   bool                 `json:"omitted,omitempty"` // there are resources, but the account was full
}

// An account stays well below what a call may carry, whatever the groups are and say.
const (
	mostWords   = 400     // bytes of one detail or reason
	mostAccount = 1 << 20 // bytes of all, about
	perEntry    = 96      // bytes around the words of one entry
)

// ownAccount gives what this node tells.
func (n *Node) ownAccount() account {
	a := account{Runs: map[string]running{}, NotReady: map[string]string{}, Text: n.text, Refuses: clip(n.configs.why(n.replica.State().Text)), Contacts: n.contacts(), Keys: n.keys.account()}
	if why := n.refused.Load(); why != nil {
		a.NoVote = clip(*why)
	}
	a.Watchdog = n.dog.status()
	space := mostAccount
	for _, r := range n.groups.all() {
		run := r.account()
		size := perEntry
		for i := range run.Resources {
			p := &run.Resources[i]
			p.Detail = clip(p.Detail)
			size += perEntry + len(p.Name) + len(p.Kind) + len(p.Detail)
		}
		if size > space {
			run.Resources, run.Omitted, size = nil, true, perEntry
		}
		a.Runs[r.group.Name] = run
		space -= size
	}
	for group, why := range n.notReady() {
		why = clip(why)
		if space -= perEntry + len(group) + len(why); space > 0 {
			a.NotReady[group] = why
		}
	}
	return a
}

// clip keeps the beginning of what may be long.
func clip(s string) string {
	if len(s) <= mostWords {
		return s
	}
	return strings.ToValidUTF8(s[:mostWords], "") + " ..."
}

// all gives the runners, those of the groups that come first in the alphabet first.
func (gs *groups) all() []*runner {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	var all []*runner
	for _, r := range gs.runners {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *runner) int { return strings.Compare(a.group.Name, b.group.Name) })
	return all
}

// account gives what the runner knows of its group.
func (r *runner) account() running {
	now := r.n.uptime()
	r.mu.Lock()
	defer r.mu.Unlock()
	run := running{Token: r.grant.Token}
	if done := len(r.restarted.within(r.group.RestartWindow, now)); done > 0 {
		run.Restarts = &api.GroupRestarts{Done: done, Of: r.group.Restarts, WindowMS: r.group.RestartWindow.Milliseconds()}
	}
	for _, p := range r.parts {
		run.Resources = append(run.Resources, api.ResourceStatus{Name: p.conf.Name, Kind: p.conf.Kind, State: p.state.String(), Detail: p.detail})
	}
	return run
}

// testimony is what a node was heard to say of itself, or why it said nothing.
type testimony struct {
	account
	silent string
}

// accounts asks all nodes at once, each for as long as a status may wait. A node that was not heard lately is not
// waited for.
func (n *Node) accounts(ctx context.Context) map[string]testimony {
	limit := n.Config.Cluster.DetectionTime / 4
	heard := n.heardWithin(n.Config.Cluster.DetectionTime)
	all := map[string]testimony{}
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	keep := func(node string, t testimony) {
		mu.Lock()
		defer mu.Unlock()
		all[node] = t
	}
	for _, c := range n.Config.Nodes {
		switch {
		case c.Name == n.Self:
			keep(c.Name, testimony{account: n.ownAccount()})
		case !slices.Contains(heard, c.Name):
			keep(c.Name, testimony{silent: "is not heard"})
		default:
			wg.Go(func() { keep(c.Name, n.accountOf(ctx, c.Name, limit)) })
		}
	}
	wg.Wait()
	return all
}

func (n *Node) accountOf(ctx context.Context, node string, limit time.Duration) testimony {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var t testimony
	if err := n.peers.tell(ctx, node, verbAccount, struct{}{}, &t.account); err != nil {
		n.Log.Debug("a node does not tell of its groups", "node", node, "err", err)
		t = testimony{silent: "did not answer"}
		if ctx.Err() != nil {
			t.silent += " within " + limit.String()
		}
	}
	return t
}

// addAccounts completes a group with what the nodes say of it themselves.
func addAccounts(st *api.GroupStatus, said map[string]testimony, nodes []string) {
	for _, node := range nodes {
		if why := said[node].NotReady[st.Name]; why != "" && node != st.Node {
			st.NotReady = append(st.NotReady, api.NotReady{Node: node, Reason: why})
		}
	}
	if st.Node == "" {
		return
	}
	holder := said[st.Node]
	run, ok := holder.Runs[st.Name]
	switch {
	case holder.silent != "":
		st.ResourcesNote = fmt.Sprintf("%s %s: how its resources are is not known", st.Node, holder.silent)
	case !ok || run.Token < st.Token:
		st.ResourcesNote = fmt.Sprintf("%s does not drive it under token %d: it has not begun, or has let go", st.Node, st.Token)
	case run.Token > st.Token:
		st.ResourcesNote = fmt.Sprintf("%s runs it under token %d already: what is shown is old", st.Node, run.Token)
	case run.Omitted:
		st.ResourcesNote = fmt.Sprintf("%s drives too many resources to tell of all: ask there", st.Node)
		st.Restarts = run.Restarts
	default:
		st.Resources, st.Restarts = run.Resources, run.Restarts
	}
}

// readyProblems says where groups would not start if they had to. Where one has failed, that is told already.
func readyProblems(s *state.State, groups []api.GroupStatus, warn func(text, cure string)) {
	for _, g := range groups {
		var whys []string
		where := map[string][]string{}
		for _, n := range g.NotReady {
			if f, failed := s.Groups[g.Name].Failures[n.Node]; failed && counts(f) {
				continue
			}
			if where[n.Reason] == nil {
				whys = append(whys, n.Reason)
			}
			where[n.Reason] = append(where[n.Reason], n.Node)
		}
		for _, why := range whys {
			warn(fmt.Sprintf("group %s would not start on %s: %s", g.Name, strings.Join(where[why], ", "), why),
				"mend it there before it is needed; it is looked at again by itself")
		}
	}
}

// delayProblems tells of groups that cannot stop, because one that runs after them is left alone.
func delayProblems(s *state.State, groups []api.GroupStatus, warn func(text, cure string)) {
	for _, g := range groups {
		if g.State != api.GroupRunning || g.Detail == "" {
			continue
		}
		for _, name := range s.GroupNames() {
			if later := s.Groups[name]; later.Grant != nil && slices.Contains(later.After, g.Name) && s.GroupMaintained(later) != "" {
				warn(fmt.Sprintf("group %s %s", g.Name, g.Detail), fmt.Sprintf("end the maintenance of %s, or have it stopped: hamgr group disable %s", name, name))
				break
			}
		}
	}
}
