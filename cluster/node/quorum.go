package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/state"
)

// ForceQuorum is the operator's way out where the majority is gone for good: this node goes on as the only voter, with
// what its log has. It is refused while anything speaks for a majority that still exists.
func (b backend) ForceQuorum(ctx context.Context, req api.ForceRequest) (api.ForceResult, error) {
	n := b.n
	if req.Node != n.Self {
		return api.ForceResult{}, &api.Error{Code: api.ErrInvalid, Message: fmt.Sprintf("this is %s, not %s", n.Self, req.Node), Hint: "run it on the node that is to go on: the one whose log is the newest"}
	}
	voices := n.replicated.Voices(ctx)
	res := api.ForceResult{Voters: voters(voices), Token: n.replica.State().LastToken + state.Lift}
	if err := n.mayForce(req, voices); err != nil {
		return res, err
	}
	if req.DryRun {
		return res, nil
	}
	f := state.Force{Node: n.Self, By: orElse(req.By, "operator") + " on " + n.Self, Reason: req.Reason}
	if err := n.keepForce(f); err != nil {
		return res, err
	}
	n.Log.Warn("quorum is forced", "node", n.Self, "by", f.By, "reason", f.Reason, "down", req.Down)
	reason := forcedBecause(f)
	if err := n.replicated.Alone(ctx, consensus.Alone{Reason: reason, Forced: true}); err != nil {
		return res, fmt.Errorf("force quorum: %w", err)
	}
	res.Forced = true
	n.again(Next{Reason: reason})
	return res, nil
}

// mayForce refuses what anything speaks against.
func (n *Node) mayForce(req api.ForceRequest, voices map[string]consensus.Voice) error {
	unsafe := func(hint, format string, args ...any) error {
		return &api.Error{Code: api.ErrUnsafe, Message: "quorum is not forced: " + fmt.Sprintf(format, args...), Hint: hint}
	}
	log := n.replicated.Status()
	if !log.Formed {
		return unsafe("hamgr init --single forms a cluster of one node", "%s was never part of a cluster", n.Self)
	}
	if name, ok := n.replicated.Coordinator(); ok {
		return unsafe("", "there is a coordinator, %s", name)
	}
	answering, silent := 1, []string{}
	for _, name := range slices.Sorted(maps.Keys(voices)) {
		v := voices[name]
		switch {
		case v.Coordinator != "":
			return unsafe("wait until this node has caught up, or mend the network between them", "%s answers and follows the coordinator %s", name, v.Coordinator)
		case v.Answers && v.Voter && v.Last.Newer(n.replicated.Last()):
			return unsafe(fmt.Sprintf("run it on %s: hamgr quorum force %s", name, name), "%s answers, and its log is newer: what that was told and %s was not would be lost", name, n.Self)
		case v.Answers && v.Voter:
			answering++
		case !v.Answers:
			silent = append(silent, name)
		}
	}
	votes := 0
	for _, v := range log.Voters {
		if v.Votes {
			votes++
		}
		if _, asked := voices[v.Node]; v.Votes && !v.Absent && !asked && v.Node != n.Self {
			silent = append(silent, v.Node) // it votes, and this node's own configuration does not know it
		}
	}
	if need := votes/2 + 1; answering >= need {
		return unsafe("they elect a coordinator by themselves: hamgr status", "%d of %d voters answer, and %d are a majority", answering, votes, need)
	}
	slices.Sort(silent)
	down := slices.Sorted(slices.Values(req.Down))
	if !slices.Equal(silent, down) {
		return unsafe("make sure that each of them is down, and name them all: --down "+strings.Join(silent, ","),
			"%s do not answer, and you vouch for %s", listed(silent), listed(down))
	}
	return nil
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func voters(voices map[string]consensus.Voice) []api.Voice {
	all := []api.Voice{}
	for _, name := range slices.Sorted(maps.Keys(voices)) {
		v := voices[name]
		all = append(all, api.Voice{Node: name, Answers: v.Answers, Coordinator: v.Coordinator, Formed: v.Formed, Note: v.Why})
	}
	return all
}

// forceFile keeps the operator's word until it stands in the log.
const forceFile = "force.json"

func (n *Node) keepForce(f state.Force) error {
	return n.keep(forceFile, f)
}

// forced gives the operator's word that has to be committed before this node, as the only voter, does anything else.
func (n *Node) forced() (*state.Force, error) {
	var f state.Force
	if found, err := n.kept(forceFile, &f); err != nil || !found {
		return nil, err
	}
	if n.replicated.Status().Alone != forcedBecause(f) {
		return nil, nil // it did not come to that
	}
	return &f, nil
}

// forcedBecause is the reason by which the log remembers it.
func forcedBecause(f state.Force) string {
	return strings.TrimSuffix(fmt.Sprintf("quorum forced by %s: %s", f.By, f.Reason), ": ")
}
