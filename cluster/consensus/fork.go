package consensus

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"
)

// A cluster's history is a line. Each Alone begins a new one: a fork. Who has the log of a
// line has all its forks, from the first moment on, for they are in the snapshot that every
// log of that line begins with (alone.go).
//
// The new line is the right one, for whoever began it had the proof, or an operator's word;
// who was dismissed by it comes back as a newcomer. But no node takes that from anybody who
// is on an older line than itself, or on one that began beside its own.

// fork is the beginning of a line.
type fork struct {
	Line      string     `json:"line"`            // a random ID
	After     string     `json:"after,omitempty"` // the line that it left; empty for the cluster's first
	By        identity   `json:"by"`
	Dismissed []identity `json:"dismissed"`
	Reason    string     `json:"reason"`
	Forced    bool       `json:"forced,omitempty"`
}

// maxForks bounds what is kept. A voter that missed more of them is told of a foreign line, and
// needs the operator.
const maxForks = 64

func lineOf(forks []fork) string {
	if len(forks) == 0 {
		return ""
	}
	return forks[len(forks)-1].Line
}

// dismissal returns the fork by which an asker on a line was left behind: the one that left
// that line, when the asker is among those whom it, or a later one, dismissed.
func dismissal(forks []fork, line string, asker identity) *fork {
	at := slices.IndexFunc(forks, func(f fork) bool { return f.After == line })
	if at < 0 {
		return nil
	}
	for _, f := range forks[at:] {
		if slices.Contains(f.Dismissed, asker) {
			left := forks[at]
			left.Reason, left.Forced, left.Dismissed = f.Reason, f.Forced, []identity{asker}
			return &left
		}
	}
	return nil
}

// dismissed tells whether an identity was dismissed by any fork: it never votes again.
func dismissed(forks []fork, id identity) bool {
	return slices.ContainsFunc(forks, func(f fork) bool { return slices.Contains(f.Dismissed, id) })
}

// standing is what a node must know of itself to judge what another one says.
type standing struct {
	cluster string
	forks   []fork
	servers raft.Configuration
}

// standing is that of now, or, before raft runs, the one that the stores tell.
func (l *Log) standing() standing {
	if !l.runs() {
		return standing{l.past.cluster, l.past.forks, l.past.servers}
	}
	_, cluster := l.fsm.position()
	if cluster == "" { // after a start, until the log is known to be committed that far
		cluster = l.past.cluster
	}
	return standing{cluster, l.fsm.history(), l.raft.GetConfiguration().Configuration()}
}

// verdict is what an answer means for the one who asked.
type verdict int

const (
	peaceful   verdict = iota
	leftBehind         // this node was dismissed
	besides            // the other is on a line that this node cannot judge: the operator must
)

// judgeLine compares the line of a node that answered with this node's own.
//
// A dismissal counts only if all of it fits: it is of this cluster, by a fork that left the
// very line on which this node is, and it was made by one that is listed here. So a
// node that was itself dismissed, whose fork is older than ours or beside it, and one that was
// removed before it made itself the only voter, convince nobody. One that was lost before it
// heard the cluster's ID believes the rest: no other cluster has both identities.
func (s standing) judgeLine(self identity, a answer) verdict {
	if a.Cluster == "" || s.cluster != "" && a.Cluster != s.cluster {
		return peaceful // a newcomer, or another cluster: not a matter of lines
	}
	own := lineOf(s.forks)
	known := a.Line == own || slices.ContainsFunc(s.forks, func(f fork) bool { return f.After == a.Line || f.Line == a.Line })
	switch f := a.Fork; {
	case known: // the same line, or one that ours has left
		return peaceful
	case f != nil && f.After == own && slices.Contains(f.Dismissed, self) && s.lists(f.By):
		return leftBehind
	case f == nil && a.Listed: // its line goes on with this node; the log will tell
		return peaceful
	case s.cluster == "": // who does not even know its cluster cannot say more
		return peaceful
	default:
		return besides
	}
}

func (s standing) lists(id identity) bool {
	return slices.ContainsFunc(s.servers.Servers, func(server raft.Server) bool { return string(server.ID) == id.String() })
}

// ErrDismissed means that this node's voter was dismissed: its cluster went on without it, on
// another's proof or an operator's word. The next Start sets its data aside and joins as a
// newcomer.
var ErrDismissed = errors.New("this node was dismissed from its cluster")

// ErrForked means that two nodes of one cluster each went on as its only voter. Only the
// operator can tell which of them is right.
var ErrForked = errors.New("the cluster went on without this node on another line of its history")

func (f *fork) String() string {
	how := "by proof"
	if f.Forced {
		how = "by force"
	}
	return fmt.Sprintf("%s went on as the only voter %s: %s", f.By.Node, how, f.Reason)
}
