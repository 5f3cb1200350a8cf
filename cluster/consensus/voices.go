package consensus

import (
	"context"
	"slices"

	"github.com/hashicorp/raft"
)

// Voice is what a voter said when it was asked just now, over a connection that both sides
// proved themselves on.
type Voice struct {
	Answers     bool
	Why         string // why there is no answer, in words
	ID          string // its identity
	Voter       bool   // it answers under an identity that this node's configuration lists as a voter
	Formed      bool   // it belongs to a cluster
	Cluster     string // which one; empty where it does not know, or none
	Coordinator string // whom it follows, or itself; empty when it knows of none
}

// Voices asks every other configured voter, at once, and waits for Timing.Ask at most. Each of
// them is in the result.
func (l *Log) Voices(ctx context.Context) map[string]Voice {
	answers, errs := l.askEach(ctx, l.cfg.Voters, false)
	servers := l.standing().servers.Servers
	voices := make(map[string]Voice, len(l.cfg.Voters))
	for node, err := range errs {
		voices[node] = Voice{Why: err.Error()}
	}
	for node, a := range answers {
		voices[node] = Voice{
			Answers: true, ID: a.ID, Formed: a.Formed, Cluster: a.Cluster, Coordinator: a.Coordinator,
			Voter: slices.ContainsFunc(servers, func(s raft.Server) bool {
				return s.Suffrage == raft.Voter && string(s.ID) == identity{node, a.ID}.String()
			}),
		}
	}
	return voices
}
