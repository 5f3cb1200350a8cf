package consensus

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Role is what a node is to the log.
type Role string

// The roles.
const (
	RoleNone        Role = "none"        // belongs to no cluster yet, or was removed from it
	RoleCoordinator Role = "coordinator" // leads, and has proven it
	RoleVoter       Role = "voter"
	RoleNonVoter    Role = "non-voter" // catches up, and will be made a voter
	RoleFailed      Role = "failed"    // its store failed
)

// Voter is an entry of the configuration that the log itself holds. An Absent one stands
// for a configured voter that has not been seen since the cluster formed.
type Voter struct {
	Node   string
	ID     string
	Votes  bool
	Absent bool
	Heard  bool   // it is this node, or this node coordinates and has its answers under this identity
	Remark string // what is going on with it, in words; empty when all is well or this node does not know
}

// Status is a picture of this node's part of the log.
type Status struct {
	Formed   bool   // there is a cluster, and this node is or was part of it
	Waiting  string // what this node waits for, in words; empty when there is a coordinator
	Removed  bool   // this node's voter was removed from the cluster; Waiting says what to do
	Stranded bool   // so many voters lost their data that the others can never elect a coordinator; Waiting says which
	Alone    string // why this node is the only voter, while it is so by Alone
	Returned string // why this Start set older data aside, when it did: its voter had been dismissed
	Role     Role
	ID       string // this node's own identity
	Cluster  string // the cluster's ID, empty until it has one
	Line     string // of the cluster's history on which this node is (see fork.go); empty for the first
	Term     uint64
	Commit   uint64 // last entry known to be committed
	Applied  uint64 // last entry applied by the FSM, or one of our own
	Voters   []Voter
	Outside  map[string]string // configured nodes that answer the coordinator, which this is, and why it cannot add them
	Progress time.Time         // see Log.Progress
}

// Status returns the picture of now. It never blocks.
func (l *Log) Status() Status {
	index, cluster := l.fsm.position()
	s := Status{
		Formed: l.formed(), ID: l.id.ID, Cluster: cluster, Line: l.fsm.line(), Role: l.role(), Progress: l.Progress(),
		Term: l.raft.CurrentTerm(), Commit: l.raft.CommitIndex(), Applied: index,
	}
	l.mu.Lock()
	s.Waiting, s.Removed, s.Stranded, s.Returned = l.waiting, l.removed, l.stranded, l.returned
	s.Outside = maps.Clone(l.remarks)
	l.mu.Unlock()
	if err := l.failed(); err != nil {
		s.Waiting = err.Error()
	}
	servers := l.raft.GetConfiguration().Configuration()
	for _, server := range servers.Servers {
		id := parseIdentity(string(server.ID))
		v := Voter{Node: id.Node, ID: id.ID, Votes: server.Suffrage == raft.Voter, Absent: id.ID == absent, Heard: l.hears(server), Remark: s.Outside[id.Node]}
		if v.Remark == "" {
			v.Remark = l.remark(v)
		}
		delete(s.Outside, id.Node)
		s.Voters = append(s.Voters, v)
	}
	s.Alone = l.alone(servers)
	return s
}

// remark is what can be said of a voter without asking it.
func (l *Log) remark(v Voter) string {
	coordinates := l.IsCoordinator()
	switch {
	case v.Absent:
		return "was not seen since the cluster formed"
	case !slices.Contains(l.cfg.Voters, v.Node):
		return "is not configured any more; the coordinator removes it as soon as the others can do without it"
	case coordinates && !v.Heard:
		return "does not answer"
	case !v.Votes && slices.Contains(l.parked(), v.Node):
		return "took its leave; votes again when it is back"
	case !v.Votes:
		return "catches up, and votes then"
	default:
		return ""
	}
}

// alone tells by which fork this node is the only voter, if it is.
func (l *Log) alone(servers raft.Configuration) string {
	forks := l.fsm.history()
	if len(forks) == 0 || voters(servers) != 1 || !(standing{servers: servers}).lists(l.id) || forks[len(forks)-1].By != l.id {
		return ""
	}
	return forks[len(forks)-1].Reason
}

func (l *Log) role() Role {
	switch err := l.failed(); {
	case errors.Is(err, ErrDismissed), errors.Is(err, ErrStopped):
		return RoleNone
	case err != nil:
		return RoleFailed
	}
	if l.IsCoordinator() {
		return RoleCoordinator
	}
	server, listed := l.server(l.id)
	switch {
	case !listed:
		return RoleNone
	case server.Suffrage == raft.Voter:
		return RoleVoter
	default:
		return RoleNonVoter
	}
}
