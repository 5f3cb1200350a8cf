package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/link"
	"github.com/hamgr/hamgr/cluster/scheduler"
	"github.com/hamgr/hamgr/cluster/state"
)

// Status tells what this node knows, with or without quorum.
func (b backend) Status(ctx context.Context) (api.Status, error) {
	n := b.n
	log := n.replicated.Status()
	s := n.replica.State()
	view := n.coord.View()
	st := api.Status{
		Schema: api.Schema, Cluster: n.Config.Cluster.Name, Node: n.Self, Version: n.Version,
		Formed: log.Formed, Waiting: log.Waiting, Maintenance: s.Maintenance,
		Dropped: dropped(n.link.Counters()),
	}
	st.Coordinator, _ = n.replicated.Coordinator()
	silent := n.trust.silence()
	st.Quorate = st.Coordinator != "" && silent < n.Config.Cluster.DetectionTime
	if !st.Quorate {
		st.Note = fmt.Sprintf("no coordinator heard for %s: what is shown may be old", silent.Round(100*time.Millisecond))
	}
	st.Nodes = n.nodeStatus(s, st.Coordinator)
	var outlook outlook
	var asking sync.WaitGroup
	asking.Go(func() { outlook = n.outlook(ctx) })
	said := n.accounts(ctx)
	asking.Wait()
	n.addFencing(s, st.Nodes, outlook)
	n.addWatchdogs(s, st.Nodes, said)
	st.Tolerates, st.ToleratesBy = n.tolerance(st, said)
	waiting := scheduler.Waiting(s, view)
	for _, name := range s.GroupNames() {
		g := s.Groups[name]
		shown := groupStatus(s, waiting, wish(s, g, outlook.Wishes), g)
		addAccounts(&shown, said, n.Config.NodeNames())
		st.Groups = append(st.Groups, shown)
	}
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(s.Operations))) {
		o := s.Operations[id]
		if len(st.Operations) >= recentOperations && !o.Open() {
			continue // hamgr fence history has them all
		}
		op := operationStatus(o)
		op.Waits = outlook.Waits[id].Why
		st.Operations = append(st.Operations, op)
	}
	st.Failures = failureStatus(s)
	st.Problems = slices.Concat(undead(s, view), voteProblems(n.Self, n.Config.NodeNames(), said), problems(n, s, st, said, outlook))
	return st, nil
}

// recentOperations is how many closed operations a status shows.
const recentOperations = 16

func (n *Node) nodeStatus(s *state.State, coord string) []api.NodeStatus {
	health := map[string]link.PeerHealth{}
	for _, h := range n.link.Health() {
		health[h.Node] = h
	}
	gossip := n.membership.View()
	var all []api.NodeStatus
	for _, c := range n.Config.Nodes {
		st := api.NodeStatus{
			Name: c.Name, Role: c.Role, Coordinator: c.Name == coord,
			Fencing: api.FencingStatus{Levels: c.Fencing, LastProven: lastProven(s, c.Name)},
		}
		if r := s.Nodes[c.Name]; r != nil {
			st.Boot, st.Unclean, st.UncleanReason, st.FenceOp = r.Boot, r.Unclean != "", r.Unclean, r.Op
			st.Standby, st.Maintenance = r.Standby, r.Maintenance
		}
		if c.Name == n.Self {
			zero := int64(0)
			st.State, st.Boot, st.ContactAgeMS, st.Applied = api.NodeAlive, n.Boot, &zero, n.replicated.Status().Applied
			all = append(all, st)
			continue
		}
		h := health[c.Name]
		st.State = gossip[c.Name].State.String()
		st.ContactAgeMS = ageOrNil(h.ContactAgeMS)
		st.Applied = n.coord.AppliedBy(c.Name)
		if st.State == api.NodeAlive && h.ContactAgeMS > (n.Config.Cluster.DetectionTime/4).Milliseconds() {
			st.State = api.NodeSuspect
		}
		for _, l := range h.Links {
			st.Links = append(st.Links, n.linkStatus(c.Name, l))
		}
		all = append(all, st)
	}
	return all
}

// lastProven is when power was last read back off at the node's devices.
func lastProven(s *state.State, node string) time.Time {
	var newest int64
	for _, o := range s.Operations {
		if o.Node == node && o.Proof != nil && o.Proof.Kind == state.PowerOff {
			newest = max(newest, o.EndedAt, o.At)
		}
	}
	return displayTime(newest)
}

func operationStatus(o *state.Operation) api.Operation {
	st := api.Operation{
		Op: o.ID, Node: o.Node, Boot: o.Boot, Action: string(o.Action), Phase: phase(o.Phase),
		Executor: o.Executor, Reason: o.Reason, By: o.By, Proof: proofText(o.Proof), Error: o.Error,
		StartedAt: displayTime(o.At), Level: o.Level, Note: o.Note,
	}
	if o.By == state.ByCluster {
		st.By = ""
	}
	end := o.EndedAt
	if o.Open() {
		end = time.Now().UnixMilli()
		if o.Failures > 0 && o.Phase == state.Shooting {
			st.Phase = api.PhaseFailed
		}
	}
	if o.At > 0 {
		st.TookMS = max(0, end-o.At)
	}
	return st
}

func failureStatus(s *state.State) []api.Failure {
	var all []api.Failure
	for _, name := range s.GroupNames() {
		failures := s.Groups[name].Failures
		for _, node := range slices.Sorted(maps.Keys(failures)) {
			f := failures[node]
			if !counts(f) {
				continue
			}
			all = append(all, api.Failure{Group: name, Resource: f.Resource, Node: node, Reason: f.Error, Count: f.Count, At: displayTime(f.At)})
		}
	}
	return all
}

// problems says what is wrong and what to do, worst first.
func problems(n *Node, s *state.State, st api.Status, said map[string]testimony, outlook outlook) []api.Problem {
	var alarms, warnings, notices []api.Problem
	alarm := func(text, cure string) {
		alarms = append(alarms, api.Problem{Severity: api.SeverityAlarm, Text: text, Cure: cure})
	}
	warn := func(text, cure string) {
		warnings = append(warnings, api.Problem{Severity: api.SeverityWarning, Text: text, Cure: cure})
	}
	notice := func(text, cure string) {
		notices = append(notices, api.Problem{Severity: api.SeverityNotice, Text: text, Cure: cure})
	}

	switch log := n.replicated.Status(); {
	case log.Stranded:
		alarm(st.Waiting, fmt.Sprintf("where that data is lost for good, have this node go on and take the others in again: hamgr quorum force %s", n.Self))
	case log.Removed:
		alarm(fmt.Sprintf("%s was removed from the cluster: %s", n.Self, st.Waiting), "stop and disable hamgr here; to let it return, empty its data folder and add it again on a node of the cluster: hamgr config apply")
	case !st.Quorate:
		alarm("this node hears no coordinator: "+orElse(st.Waiting, "a majority of the nodes is missing"), "bring the other nodes back, or their network")
	}
	n.twoNodeProblems(st.Quorate, alarm)
	for _, name := range s.NodeNames() {
		if o := s.OpenOperation(name); o != nil {
			if text, cure := operationProblem(o, outlook.Waits[o.ID]); text != "" {
				alarm(text, cure)
			}
		}
	}
	maintenanceProblems(s, st, alarm)
	groupProblems(s, st, alarm, warn, notice)
	delayProblems(s, st.Groups, warn)
	readyProblems(s, st.Groups, warn)
	livenessProblems(st.Nodes, n.Config.Cluster.DetectionTime, alarm, warn)
	if len(outlook.Differs) > 0 {
		alarm(fmt.Sprintf("the configuration files of %s and %s differ in the nodes' fence devices or plugs: a node may be taken for off that has power by a feed which one of them does not know",
			strings.Join(outlook.Differs, ", "), st.Coordinator), "install the same file on every node and restart hamgr there")
	}
	linkProblems(st.Nodes, warn)
	n.fencingProblems(st.Nodes, alarm, warn)
	n.watchdogProblems(st.Nodes, alarm, warn)
	n.configProblems(s, alarm, warn, notice)
	n.keyProblems(st.Quorate, said, alarm, warn, notice)
	if st.Quorate && st.Tolerates == 0 && len(n.Config.Nodes) > 1 {
		warn("no further failure is tolerated: "+strings.TrimPrefix(st.ToleratesBy, "none: "), "")
	}
	for _, w := range n.Config.Warnings {
		notice(w.Msg, w.Cure)
	}
	return slices.Concat(alarms, warnings, notices)
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// displayTime turns Unix milliseconds into a time for display; 0 is no time.
func displayTime(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func ageOrNil(ms int64) *int64 {
	if ms == link.Never {
		return nil
	}
	return &ms
}

// dropped gives what the link refused, by reason; what was never refused is left out.
func dropped(c link.Counters) map[string]uint64 {
	counts := map[string]uint64{}
	for prefix, drops := range map[string]any{"packets_": c.Packets, "conns_": c.Conns} {
		b, err := json.Marshal(drops)
		if err != nil {
			continue
		}
		byReason := map[string]uint64{}
		if json.Unmarshal(b, &byReason) != nil {
			continue
		}
		for reason, n := range byReason {
			if n > 0 && reason != "copies" {
				counts[prefix+reason] = n
			}
		}
	}
	return counts
}
