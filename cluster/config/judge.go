package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Facts are what is known of the running cluster when a change is judged. Who calls collects them; what is not
// known is left out, and is never taken for the better.
type Facts struct {
	Nodes  map[string]NodeFacts
	Groups map[string]GroupFacts
	// Voters are those that the replicated log counts now. A configured node that has not caught up yet is
	// none, nor one that was put out. Empty: those of the configuration so far.
	Voters []string
	// Silent are those of them that do not answer as voters, whether or not their nodes answer: one that was never seen,
	// or that comes back with an empty disk, votes once the log has taken it in again.
	Silent []string
	// Maintenance says that the whole cluster is left alone.
	Maintenance bool
	// Minute is the time of day at the coordinator, in minutes since midnight, for parts of the day in failback.
	Minute int
}

// NodeFacts are what is known of one node. The zero value is one of which nothing was heard, and that may hold nothing.
type NodeFacts struct {
	Answers bool   // the coordinator has contact with it now, or it is the coordinator
	Up      bool   // its boot joined, and was neither proven over nor left
	Left    bool   // it took its leave, holding nothing
	Unclean string // why it needs fencing
	Op      uint64 // its open fencing operation; 0: none
	Standby bool
	// Reached are those of its addresses over which there is contact now; nil if that is not known, as of the
	// coordinator itself.
	Reached []string
	// LongestGap is the longest that its daemon stood still since it was started, and WriteP99 what 99 of 100 of its
	// last writes to its log took at most; 0 if not measured.
	LongestGap, WriteP99 time.Duration
	// Rejects is why it cannot run with the new configuration, which it was asked to try: a file that is missing there.
	Rejects string
}

// GroupFacts are what is known of one group.
type GroupFacts struct {
	Holders []string // the nodes that may have it active, the one with the grant first
	Running bool     // it was started, and is not to stop
	// Resources are those that it was started with, where they may differ from those of the configuration so far.
	Resources []Resource
	// Unknown is why it is not known with which resources it was started: a holder that gives no answer. Empty if it is.
	Unknown string
}

// Objection is one thing that speaks against a change.
type Objection struct {
	Key  string `json:"key"` // as of a Problem
	Msg  string `json:"message"`
	Cure string `json:"cure"` // what to do about it; may be empty
}

// String gives "key: msg; cure".
func (o Objection) String() string {
	s := o.Msg
	if o.Key != "" {
		s = o.Key + ": " + s
	}
	if o.Cure != "" {
		s += "; " + o.Cure
	}
	return s
}

// Verdict is what is to be said of a change before it is made.
type Verdict struct {
	Refused  []Objection // it is not to be made: there is at least one
	Warnings []Objection // it is doubtful
}

// Judge says what speaks against putting a new configuration in the place of the one by which a cluster runs. It
// accepts only what can be carried out on each node and at each step between, with nothing that runs stopped on the way,
// and no proof of a node's end made easier while that is looked for. Both configurations are valid ones. Without
// facts (nil) it says only what needs none, and nothing may be applied by that alone.
func Judge(old, new *Config, facts *Facts) Verdict {
	j := &judge{old: old, new: new, facts: facts}
	j.cluster()
	j.secrets()
	j.doubts()
	if facts == nil {
		return j.verdict
	}
	j.acceptance()
	j.removedNodes()
	j.quorum()
	j.addresses()
	j.port()
	j.pace()
	j.twoNode()
	j.roles()
	j.fencing()
	j.watchdogs()
	j.removedGroups()
	j.placement()
	j.room()
	j.failback()
	j.taken()
	return j.verdict
}

type judge struct {
	old, new *Config
	facts    *Facts
	verdict  Verdict
}

func (j *judge) refuse(key, msg, cure string) {
	j.verdict.Refused = append(j.verdict.Refused, Objection{key, msg, cure})
}

func (j *judge) warn(key, msg, cure string) {
	j.verdict.Warnings = append(j.verdict.Warnings, Objection{key, msg, cure})
}

// keyOf names a key as problems do; without a key, the table.
func keyOf(what What, name, key string) string {
	table := Change{What: what, Name: name}.Table()
	if key == "" {
		return table
	}
	return table + ": " + key
}

// cluster judges what no running cluster can change.
func (j *judge) cluster() {
	old, new := j.old.Cluster, j.new.Cluster
	if old.Name != new.Name {
		j.refuse(keyOf(OfCluster, "", "name"), fmt.Sprintf("this is the configuration of another cluster: %q, not %q", new.Name, old.Name),
			fmt.Sprintf("write name = %q; another name takes a new cluster", old.Name))
	}
	if old.DataDir != new.DataDir {
		j.refuse(keyOf(OfCluster, "", "data_dir"), fmt.Sprintf("a running daemon cannot move its log from %q to %q", old.DataDir, new.DataDir),
			fmt.Sprintf("leave %q here; node by node, stop hamgr, move the folder, and start it with --data-dir", old.DataDir))
	}
	if old.KeyFile != new.KeyFile {
		j.warn(keyOf(OfCluster, "", "key_file"), fmt.Sprintf("%q -> %q: a daemon that does not find the same key there does not come back", old.KeyFile, new.KeyFile), "copy the key on every node before")
	}
}

// secrets refuses those that stand in the text.
func (j *judge) secrets() {
	for _, key := range j.new.inline() {
		j.refuse(key, "a secret stands in the configuration itself, and would be sent to every node and kept in its log",
			fmt.Sprintf("write it to a file of its own on every node, with mode 0600, and name that in %s_file", key[strings.LastIndex(key, ": ")+2:]))
	}
}

// doubts passes on what is doubtful in the new configuration, and was not in the old one.
func (j *judge) doubts() {
	before := map[Objection]bool{}
	for _, w := range j.old.Warnings {
		before[Objection{w.Key, w.Msg, w.Cure}] = true
	}
	for _, w := range j.new.Warnings {
		if o := (Objection{w.Key, w.Msg, w.Cure}); !before[o] {
			j.warn(o.Key, o.Msg, o.Cure)
		}
	}
	if was, is := spare(len(j.old.Nodes)), spare(len(j.new.Nodes)); is < was {
		j.warn(keyOf(OfCluster, "", ""), fmt.Sprintf("%s tolerate the loss of %d, where %s tolerated %d", voters(len(j.new.Nodes)), is, voters(len(j.old.Nodes)), was), "")
	}
}

// spare is how many of n voters may fail.
func spare(n int) int { return (n - 1) / 2 }

func voters(n int) string {
	if n == 1 {
		return "1 voter"
	}
	return fmt.Sprintf("%d voters", n)
}

// acceptance refuses what a node cannot run with, and names those that nobody could ask.
func (j *judge) acceptance() {
	var silent []string
	for _, n := range j.new.Nodes {
		f := j.facts.Nodes[n.Name]
		if f.Rejects != "" {
			j.refuse(keyOf(OfNode, n.Name, ""), fmt.Sprintf("%s could not run with it: %s", n.Name, f.Rejects), "put that right on "+n.Name)
		}
		if _, stays := j.old.Node(n.Name); stays && !f.Answers {
			silent = append(silent, n.Name)
		}
	}
	if len(silent) > 0 {
		j.warn("", fmt.Sprintf("whether every node has the files that the new configuration names is not known: no answer from %s", strings.Join(silent, ", ")), "")
	}
}

// holds are the groups that a node may have active.
func (j *judge) holds(node string) []string {
	var held []string
	for name, g := range j.facts.Groups {
		if slices.Contains(g.Holders, node) {
			held = append(held, name)
		}
	}
	slices.Sort(held)
	return held
}

// held lists the groups that somebody holds.
func (j *judge) held() []string {
	var held []string
	for name, g := range j.facts.Groups {
		if len(g.Holders) > 0 {
			held = append(held, name)
		}
	}
	slices.Sort(held)
	return held
}

// voters are those whose votes count now.
func (j *judge) voters() []string {
	if len(j.facts.Voters) == 0 {
		return j.old.Voters()
	}
	return j.facts.Voters
}

// staying are the nodes of both configurations, by the names of the old one.
func (j *judge) staying() (both []pair[Node]) {
	for _, p := range pairs(j.old.Nodes, j.new.Nodes, func(n *Node) string { return n.Name }) {
		if p.old != nil && p.new != nil {
			both = append(both, p)
		}
	}
	return both
}

// silent are those of them that do not answer.
func (j *judge) silent() (names []string) {
	for _, p := range j.staying() {
		if !j.facts.Nodes[p.name].Answers {
			names = append(names, p.name)
		}
	}
	return names
}
