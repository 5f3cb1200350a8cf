package main

import (
	"context"
	"strings"

	"github.com/hamgr/hamgr/cluster/api"
)

// cannedText is the configuration of the canned cluster.
const cannedText = `[cluster]
name = "web"
key_file = "/etc/hamgr/cluster.key"

[[node]]
name = "alpha"
addresses = ["10.0.0.1"]

[[node]]
name = "beta"
addresses = ["10.0.0.2"]

[[node]]
name = "gamma"
addresses = ["10.0.0.3"]
`

// Configuration gives the text; of the kind "textless" there is none, and of "behind" a node cannot run with it.
func (c *canned) Configuration(context.Context) (api.Configuration, error) {
	conf := api.Configuration{Cluster: "web", Index: 41, Text: cannedText, Nodes: []api.ConfiguredNode{{Name: "alpha", Current: true}, {Name: "beta", Current: true}, {Name: "gamma", Current: true}}}
	switch c.kind {
	case "noquorum":
		return api.Configuration{}, &api.Error{Code: api.ErrNoCoordinator, Message: "there is no coordinator"}
	case "textless":
		return api.Configuration{Cluster: "web", Note: "the log is at version 1 of its format"}, nil
	case "behind":
		conf.Nodes[1] = api.ConfiguredNode{Name: "beta", Reason: "does not answer"}
	}
	return conf, nil
}

// Apply commits what does not change the detection time to a minute.
func (c *canned) Apply(_ context.Context, req api.ApplyRequest) (api.ApplyResult, error) {
	r := api.ApplyResult{Index: 41, Changes: []api.ConfigChange{}, Refused: []api.Objection{}, Warnings: []api.Objection{}}
	if strings.Contains(req.Text, `detection_time = "1m"`) {
		r.Refused = append(r.Refused, api.Objection{Key: "cluster: detection_time", Message: "1m is too long", Cure: "write less"})
		return r, nil
	}
	r.Applied = !req.DryRun
	return r, nil
}

// ForceQuorum refuses while there is a coordinator: of every kind but "forceable".
func (c *canned) ForceQuorum(_ context.Context, req api.ForceRequest) (api.ForceResult, error) {
	if c.kind != "forceable" {
		return api.ForceResult{}, &api.Error{Code: api.ErrUnsafe, Message: "quorum is not forced: there is a coordinator, alpha"}
	}
	return api.ForceResult{
		Forced: !req.DryRun, Token: 1<<32 + 7,
		Voters: []api.Voice{{Node: "beta", Note: "no route to host"}, {Node: "gamma", Answers: true, Formed: true}},
	}, nil
}
