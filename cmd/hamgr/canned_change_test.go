package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// Change foretells what would become of db, which gamma holds; a status shows it later, look by look.
func (c *canned) Change(_ context.Context, req api.ChangeRequest) (api.ChangeResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.kind == "noquorum":
		return api.ChangeResult{}, &api.Error{Code: api.ErrNoCoordinator, Message: "there is no coordinator"}
	case c.kind == "lost":
		return api.ChangeResult{}, &api.Error{Code: api.ErrUnknownOutcome, Message: "not committed in time, and may still be", Hint: "hamgr status shows whether it was done"}
	case req.Node != "" && !slices.Contains([]string{"alpha", "beta", "gamma"}, req.Node):
		return api.ChangeResult{}, fmt.Errorf("no node %q: %w", req.Node, api.ErrNotFound)
	case req.Group != "" && req.Group != "db" && req.Group != "wiki":
		return api.ChangeResult{}, &api.Error{Code: api.ErrNotFound, Message: fmt.Sprintf("no group is named %q", req.Group), Hint: "the groups are db, wiki"}
	case req.By != "anna":
		return api.ChangeResult{}, errors.New("by " + req.By)
	case c.kind == "impossible":
		return api.ChangeResult{}, &api.Error{Code: api.ErrUnsafe, Message: "beta cannot take db: it is on standby: not possible now", Hint: "mend that first, or choose another node: hamgr group show db, hamgr node list"}
	}
	r := api.ChangeResult{
		Verb: req.Verb, Node: req.Node, Group: req.Group, DryRun: req.DryRun, Changed: c.kind != "already",
		Steps: []api.ChangeStep{}, Groups: []api.ChangedGroup{},
	}
	stop := api.ChangeStep{Group: "db", Node: "gamma", Action: api.StepStop, Reason: req.Verb + " by anna"}
	start := api.ChangeStep{Group: "db", Node: "beta", Action: api.StepStart, Reason: "nobody holds it: gamma stopped it cleanly"}
	db := api.ChangedGroup{Group: "db", Node: "gamma", Token: 17}
	switch req.Verb {
	case api.ChangeStandby, api.ChangeOnline:
		on := req.Verb == api.ChangeStandby && !req.DryRun
		r.Standby, r.Holds = &on, []string{}
		if req.Verb == api.ChangeStandby {
			db.Node = "beta"
			r.Holds, r.Steps, r.Groups = []string{"db", "wiki"}, []api.ChangeStep{stop, start}, []api.ChangedGroup{db}
		}
	case api.ChangeMove, api.ChangeRestart:
		if req.Away {
			r.Node = "gamma"
		}
		if req.End {
			break
		}
		if db.Node = "beta"; req.Verb == api.ChangeRestart {
			start.Node, db.Node = "gamma", "gamma"
		}
		r.Steps, r.Groups = []api.ChangeStep{stop, start}, []api.ChangedGroup{db}
	case api.ChangeDisable:
		db.Node, db.Waits = "", "disabled by an operator; to run it: hamgr group enable db"
		r.Steps, r.Groups = []api.ChangeStep{stop}, []api.ChangedGroup{db}
	case api.ChangeEnable, api.ChangeClear:
		r.Groups = []api.ChangedGroup{db}
	}
	if !req.DryRun {
		c.changed, c.since = &r, 0
	}
	return r, nil
}

// changes shows how far the last change came: two looks after it, it is at its end. Of the kind "elsewhere" that is not the
// one that was foretold, and of "hangs" there is none.
func (c *canned) changes(s *api.Status) {
	if c.changed == nil || len(c.changed.Steps) == 0 {
		return
	}
	c.since++
	db := &s.Groups[0]
	switch {
	case c.since == 1: // the daemon has not heard of it
	case c.since == 2 || c.kind == "hangs":
		db.State, db.Detail = api.GroupStopping, "moved by anna"
	case c.since == 3, c.changed.Groups[0].Node == "":
		db.State, db.Node, db.Detail = api.GroupWaiting, "", c.changed.Groups[0].Waits
	default:
		db.Node, db.Token, db.Since = c.changed.Groups[0].Node, 18, noon
		if c.kind == "elsewhere" {
			db.Node = "alpha"
			s.Failures = []api.Failure{{Group: "db", Resource: "data", Node: "beta", Reason: "no such device", Count: 1, At: noon}}
		}
	}
}

// underOperators is a cluster in which operators have had their say.
func underOperators() api.Status {
	s := healthy()
	s.Nodes[1].Maintenance = true
	s.Nodes[2].Standby = true
	s.Groups = []api.GroupStatus{
		{Name: "db", State: api.GroupRunning, Node: "beta", Token: 17, Since: noon.Add(-time.Hour),
			Restarts: &api.GroupRestarts{Done: 2, Of: 3, WindowMS: 600_000}, NotReady: []api.NotReady{{Node: "gamma", Reason: "data: fault of this node: no such disk"}},
			Maintenance: "beta is in maintenance", Wish: "moved to beta by anna for another 1h20m",
			Rules:     api.GroupRules{Prefer: []string{"alpha", "beta"}, Allow: []string{"alpha", "beta"}, Apart: []string{"batch"}, Weight: 40, Failback: "22:00-05:30", FailureExpiryMS: 3_600_000},
			Resources: []api.ResourceStatus{{Name: "data", Kind: "filesystem", State: "active"}, {Name: "server", Kind: "systemd", State: "active", Detail: "pid 71\x1b[2J"}}},
		{Name: "web", State: api.GroupStopped, Disabled: true, Detail: "disabled by an operator; to run it: hamgr group enable web",
			Rules: api.GroupRules{After: []string{"db"}, With: []string{"db"}, Failback: "never"}},
		{Name: "mail", State: api.GroupRunning, Node: "gamma", Token: 9, ResourcesNote: "gamma did not answer within 750ms: how its resources are is not known", Rules: api.GroupRules{Failback: "never"}},
		{Name: "batch", State: api.GroupFailed, Token: 12, Halted: "job failed on alpha: exit status 1",
			Detail: "stopped everywhere, as its on_fail says: job failed on alpha: exit status 1; to run it again: hamgr group clear batch",
			Rules:  api.GroupRules{Failback: "never"}},
	}
	s.Failures = []api.Failure{{Group: "batch", Resource: "job", Node: "alpha", Reason: "exit status 1", Count: 1, At: noon}}
	s.Problems = []api.Problem{
		{Severity: api.SeverityAlarm, Text: "node beta is in maintenance: what it holds is not monitored, stopped or taken over, and it is not fenced if it falls silent", Cure: "when the work is done: hamgr node maintenance beta off"},
		{Severity: api.SeverityNotice, Text: "group web is disabled by an operator, and runs nowhere", Cure: "to run it: hamgr group enable web"},
	}
	return s
}

// allInMaintenance is a cluster that is left alone.
func allInMaintenance() api.Status {
	s := healthy()
	s.Maintenance = true
	s.Groups[0].Maintenance = "the cluster is in maintenance"
	s.Problems = []api.Problem{{Severity: api.SeverityAlarm, Text: "the cluster is in maintenance: nothing is started, stopped, monitored or taken over, and no silent node is fenced", Cure: "when the work is done: hamgr maintenance off"}}
	return s
}
