package consensus

import (
	"context"
	"slices"
	"strconv"

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
	Last        Last   // entry of its log
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
			Answers: true, ID: a.ID, Formed: a.Formed, Cluster: a.Cluster, Coordinator: a.Coordinator, Last: a.Last,
			Voter: slices.ContainsFunc(servers, func(s raft.Server) bool {
				return s.Suffrage == raft.Voter && string(s.ID) == identity{node, a.ID}.String()
			}),
		}
	}
	return voices
}

// Last names the last entry of a log. Of two voters, it is the newer log that may have what a majority committed.
type Last struct {
	Term  uint64 `json:"term"`
	Index uint64 `json:"index"`
}

// Newer reports whether a log is newer than another one on the same line of history.
func (a Last) Newer(b Last) bool { return a.Term > b.Term || a.Term == b.Term && a.Index > b.Index }

// Last is that of this node's log. Without a coordinator it stays.
func (l *Log) Last() Last {
	stats := l.raft.Stats()
	number := func(key string) uint64 {
		n, _ := strconv.ParseUint(stats[key], 10, 64) // raft's own number
		return n
	}
	last, covered := Last{number("last_log_term"), number("last_log_index")}, Last{number("last_snapshot_term"), number("last_snapshot_index")}
	if covered.Newer(last) { // the log behind it is cut
		return covered
	}
	return last
}
