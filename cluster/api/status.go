package api

import "time"

// Status is everything that one node knows about the cluster, for one screen. Durations
// are milliseconds, measured by monotonic clocks; absolute times come from wall
// clocks and are for display only.
type Status struct {
	Schema  int    `json:"schema"`
	Cluster string `json:"cluster"`
	Node    string `json:"node"` // the node that answers
	Version string `json:"version"`

	Quorate bool `json:"quorate"`
	// Coordinator is empty when none is known.
	Coordinator string `json:"coordinator,omitempty"`
	// Note says how far the rest is to be believed ("no quorum: what is shown may be old").
	Note string `json:"note,omitempty"`
	// Formed says that a cluster exists as far as this node knows; Waiting, why it does not
	// yet, in words.
	Formed  bool   `json:"formed"`
	Waiting string `json:"waiting,omitempty"`
	// Tolerates is how many more voters may fail right now, whichever, before the cluster stands still; ToleratesBy
	// says by what, or why none.
	Tolerates   int    `json:"tolerates"`
	ToleratesBy string `json:"tolerates_by,omitempty"`
	// Maintenance: an operator has all of the cluster left alone.
	Maintenance bool `json:"maintenance"`

	Nodes      []NodeStatus  `json:"nodes"`
	Groups     []GroupStatus `json:"groups"`
	Operations []Operation   `json:"operations"` // fencing, newest first
	Failures   []Failure     `json:"failures"`
	Problems   []Problem     `json:"problems"` // worst first
	// Dropped counts what link refused, by reason ("bad seal", "unknown peer", ...).
	Dropped map[string]uint64 `json:"dropped,omitempty"`
}

// The states of a node: SWIM's verdicts, as the answering node sees them.
const (
	NodeAlive   = "alive"
	NodeSuspect = "suspect"
	NodeDead    = "dead"
	NodeLeft    = "left"
	NodeUnknown = "unknown" // never seen since this daemon started
)

// NodeStatus is one configured node.
type NodeStatus struct {
	Name        string `json:"name"`
	Role        string `json:"role"` // "member" or "witness"
	State       string `json:"state"`
	Boot        string `json:"boot,omitempty"`
	Coordinator bool   `json:"coordinator"`
	// ContactAgeMS is how long ago this node had authenticated contact with it, on any link;
	// absent if never, 0 for the answering node itself.
	ContactAgeMS *int64 `json:"contact_age_ms,omitempty"`
	// Applied is the index of the last log entry that the node is known to have applied.
	Applied uint64        `json:"applied"`
	Links   []LinkStatus  `json:"links,omitempty"` // absent for the answering node itself
	Fencing FencingStatus `json:"fencing"`
	// Unclean: the node may hold something and is unproven.
	Unclean       bool   `json:"unclean"`
	UncleanReason string `json:"unclean_reason,omitempty"`
	// FenceOp is the number of the fencing operation that runs against the node, or 0.
	FenceOp uint64 `json:"fence_op,omitempty"`
	// Standby: an operator keeps the node from holding groups.
	Standby bool `json:"standby"`
	// Maintenance: an operator has the node, and what it holds, left alone.
	Maintenance bool `json:"maintenance"`
	// Quarantine says why, and for how long, the node is left off or kept from holding groups.
	Quarantine string `json:"quarantine,omitempty"`
	// Watchdog is nil for a node that has none.
	Watchdog *WatchdogStatus `json:"watchdog,omitempty"`
}

// LinkStatus is the answering node's contact with another over one link. UDP and TCP
// are apart because one may be lost alone, and so are the directions.
type LinkStatus struct {
	Local    string `json:"local"`
	Address  string `json:"address"`
	UDPAgeMS *int64 `json:"udp_age_ms,omitempty"` // since a packet came from there; absent if never
	// UDPOutAgeMS is since one came there, as the other node says; absent if never, or if it does not tell.
	UDPOutAgeMS *int64 `json:"udp_out_age_ms,omitempty"`
	TCPAgeMS    *int64 `json:"tcp_age_ms,omitempty"` // absent if never
	// Fails names the directions in which nothing comes through, "alpha -> beta" for one.
	Fails []string `json:"fails,omitempty"`
	// Error is why the link does not work now; an error before the last success is history.
	Error string `json:"error,omitempty"`
}

// FencingStatus is how a node would be fenced, and when that was last proven to work.
type FencingStatus struct {
	Levels     [][]string `json:"levels"` // device names
	LastProven time.Time  `json:"last_proven,omitzero"`
	// Rehearsals has one entry a device.
	Rehearsals []Rehearsal `json:"rehearsals,omitempty"`
	// Health is how the nodes that may have to use the devices last found them; absent where the coordinator
	// was not asked or has not looked yet.
	Health []DeviceHealth `json:"health,omitempty"`
}

// The states of a group.
const (
	GroupStopped  = "stopped" // disabled by an operator
	GroupStarting = "starting"
	GroupRunning  = "running"
	GroupStopping = "stopping"
	GroupFailed   = "failed"
	GroupBlocked  = "blocked" // something must be proven or done first; Detail says what
	GroupWaiting  = "waiting" // no node may run it now
)

// GroupStatus is one group and where it runs.
type GroupStatus struct {
	Name      string           `json:"name"`
	State     string           `json:"state"`
	Node      string           `json:"node,omitempty"`  // holder of the grant
	Token     uint64           `json:"token,omitempty"` // of the newest grant
	Since     time.Time        `json:"since,omitzero"`
	Detail    string           `json:"detail,omitempty"`
	Resources []ResourceStatus `json:"resources,omitempty"`
	// ResourcesNote says why the states of the resources are not known.
	ResourcesNote string `json:"resources_note,omitempty"`
	// Restarts in place under this grant; absent if there was none lately.
	Restarts *GroupRestarts `json:"restarts,omitempty"`
	// NotReady names the nodes on which it would not start, as they found by looking.
	NotReady []NotReady `json:"not_ready,omitempty"`

	// Disabled: an operator has it run nowhere.
	Disabled bool `json:"disabled"`
	// Halted is the failure for which it was stopped everywhere, as the resource's on_fail says.
	Halted string `json:"halted,omitempty"`
	// Maintenance says what keeps the cluster from touching it: an operator's word on it, its node, or the cluster.
	Maintenance string `json:"maintenance,omitempty"`
	// Wish is where an operator wants it, and for how much longer, in words.
	Wish  string     `json:"wish,omitempty"`
	Rules GroupRules `json:"rules"`
}

// GroupRestarts counts what the holder restarted in place.
type GroupRestarts struct {
	Done     int   `json:"done"`
	Of       int   `json:"of"`        // more are not tried: it moves
	WindowMS int64 `json:"window_ms"` // those of this time count; 0: all
}

// NotReady is why a group would not start on a node.
type NotReady struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// GroupRules is what the configuration says of where and when a group runs, as the cluster goes by it.
type GroupRules struct {
	Prefer []string `json:"prefer,omitempty"` // members, best first
	Allow  []string `json:"allow,omitempty"`  // the only members; absent for all
	After  []string `json:"after,omitempty"`  // groups that must run first
	With   []string `json:"with,omitempty"`   // groups on whose node it runs
	Apart  []string `json:"apart,omitempty"`  // groups that are never on its node
	Weight int      `json:"weight"`
	// Failback is "never", "always", or a part of the day ("22:00-05:30").
	Failback string `json:"failback"`
	// FailureExpiryMS is after how long a failure no longer keeps it from a node; 0 is never.
	FailureExpiryMS int64 `json:"failure_expiry_ms"`
}

// ResourceStatus is one resource as its node last reported it.
type ResourceStatus struct {
	Name   string `json:"name"`
	Kind   string `json:"kind,omitempty"`
	State  string `json:"state"` // "unknown", "inactive", "active", "failed"
	Detail string `json:"detail,omitempty"`
}

// The phases of a fencing operation.
const (
	PhaseCommitted = "committed"  // in the log, nothing sent yet
	PhaseOff       = "off"        // off ordered, or being read back
	PhaseProven    = "proven"     // proven off; an "off", or the takeover, ends here
	PhaseOn        = "on"         // a reboot's power-on is due or ordered
	PhaseDone      = "done"       // everything that was asked for is done
	PhaseFailed    = "failed"     // every level failed; retried if the node is unclean
	PhaseCalledOff = "called off" // the reason for it went away before the command went out
)

// Operation is one fencing operation, running or recent.
type Operation struct {
	Op        uint64    `json:"op"`
	Node      string    `json:"node"`
	Boot      string    `json:"boot,omitempty"`
	Action    string    `json:"action"`
	Phase     string    `json:"phase"`
	Executor  string    `json:"executor,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	By        string    `json:"by,omitempty"`    // who asked; empty if the cluster decided it
	Proof     string    `json:"proof,omitempty"` // in words
	Error     string    `json:"error,omitempty"` // of the last attempt
	StartedAt time.Time `json:"started_at,omitzero"`
	TookMS    int64     `json:"took_ms"` // until its end, or until now
	// Level is the level that a rehearsal is of.
	Level int `json:"level,omitempty"`
	// Note is how it ended, where no proof says it.
	Note string `json:"note,omitempty"`
	// Waits says why it is not carried out just now.
	Waits string `json:"waits,omitempty"`
	// Attempts are the last ones, oldest first.
	Attempts []FenceAttempt `json:"attempts,omitempty"`
}

// Failure is one failure of a resource or group that still counts.
type Failure struct {
	Group    string    `json:"group"`
	Resource string    `json:"resource,omitempty"`
	Node     string    `json:"node"`
	Reason   string    `json:"reason"`
	Count    int       `json:"count"`
	At       time.Time `json:"at,omitzero"` // of the last one
}

// The severities of a problem, worst first.
const (
	SeverityAlarm   = "alarm"   // a service is down, or nothing protects it
	SeverityWarning = "warning" // works, but the next failure may not be survived
	SeverityNotice  = "notice"
)

// Problem is something that an operator should know, and what to do about it.
type Problem struct {
	Severity string `json:"severity"`
	Text     string `json:"text"`
	Cure     string `json:"cure,omitempty"`
}
