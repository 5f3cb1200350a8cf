package consensus

import (
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
}

// Status is a picture of this node's part of the log.
type Status struct {
	Formed   bool   // there is a cluster, and this node is or was part of it
	Waiting  string // what this node waits for, in words; empty when there is a coordinator
	Role     Role
	ID       string // this node's own identity
	Cluster  string // the cluster's ID, empty until it has one
	Term     uint64
	Commit   uint64 // last entry known to be committed
	Applied  uint64 // last entry applied by the FSM, or one of our own
	Voters   []Voter
	Progress time.Time // see Log.Progress
}

// Status returns the picture of now. It never blocks.
func (l *Log) Status() Status {
	index, cluster := l.fsm.position()
	s := Status{
		Formed: l.formed(), ID: l.id.ID, Cluster: cluster, Role: l.role(), Progress: l.Progress(),
		Term: l.raft.CurrentTerm(), Commit: l.raft.CommitIndex(), Applied: index,
	}
	l.mu.Lock()
	s.Waiting = l.waiting
	l.mu.Unlock()
	if err := l.failed(); err != nil {
		s.Waiting = err.Error()
	}
	for _, server := range l.raft.GetConfiguration().Configuration().Servers {
		id := parseIdentity(string(server.ID))
		s.Voters = append(s.Voters, Voter{Node: id.Node, ID: id.ID, Votes: server.Suffrage == raft.Voter, Absent: id.ID == absent})
	}
	return s
}

func (l *Log) role() Role {
	if l.failed() != nil {
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
