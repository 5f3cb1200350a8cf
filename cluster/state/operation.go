package state

// FenceAction is what a fencing operation is to do.
type FenceAction string

// The actions.
const (
	FenceOff    FenceAction = "off"
	FenceReboot FenceAction = "reboot" // off, proven; then on
	FenceOn     FenceAction = "on"     // power on only; proves nothing
	// FenceRehearse is a reboot of a healthy node on standby that holds nothing, to prove that its devices
	// work. One that fails turns into FenceOn.
	FenceRehearse FenceAction = "rehearse"
	// FenceConfirm is no fencing: the entry that an operator's word leaves in the history.
	FenceConfirm FenceAction = "confirm"
)

// OpPhase is how far a fencing operation came.
type OpPhase string

// The phases of an operation. From Shooting on a command may have gone out, and it is
// carried through.
const (
	Ordered   OpPhase = "ordered"
	Shooting  OpPhase = "shooting"
	ProvenOff OpPhase = "proven_off" // power on is still due
	Done      OpPhase = "done"
	CalledOff OpPhase = "called_off" // the target came back before any command
)

// ByCluster is the author of the cluster's own operations; any other name is an
// operator's.
const ByCluster = "cluster"

// Operation is one fencing operation. Its ID is its index in the log.
type Operation struct {
	ID     uint64      `json:"id"`
	Node   string      `json:"node"`
	Boot   string      `json:"boot"`
	Action FenceAction `json:"action"`
	Level  int         `json:"level,omitempty"` // that a rehearsal is about; 0 is all in order
	Reason string      `json:"reason"`
	By     string      `json:"by"`
	Phase  OpPhase     `json:"phase"`
	// Lasting says that the target's answering does not end the cause (a stop that
	// failed), so that the operation is not called off by it.
	Lasting  bool   `json:"lasting,omitempty"`
	Executor string `json:"executor,omitempty"`
	Attempts int    `json:"attempts"`
	Failures int    `json:"failures"`
	Error    string `json:"error,omitempty"` // of the last attempt that failed
	Proof    *Proof `json:"proof,omitempty"`
	Note     string `json:"note,omitempty"` // how it came about and ended, where nothing else says it
	At       int64  `json:"at,omitempty"`
	EndedAt  int64  `json:"ended_at,omitempty"`
	// Clock and ShotClock are State.Clock at the order, and when the first command may have gone out.
	Clock     int64     `json:"clock,omitempty"`
	ShotClock int64     `json:"shot_clock,omitempty"`
	Trail     []Attempt `json:"trail,omitempty"` // the last attempts, newest last
}

// Attempt is what came of one attempt to carry out an operation.
type Attempt struct {
	Executor string         `json:"executor"`
	At       int64          `json:"at,omitempty"` // Unix milliseconds, for display
	Proven   bool           `json:"proven,omitempty"`
	Error    string         `json:"error,omitempty"`
	Devices  []DeviceResult `json:"devices,omitempty"`
	// Opinions are what devices beside the proof said of the node's power, where they were asked.
	Opinions []string `json:"opinions,omitempty"`
}

// DeviceResult is what one device did about one plug.
type DeviceResult struct {
	Level    int    `json:"level"` // from 1
	Device   string `json:"device"`
	Plug     string `json:"plug,omitempty"`
	State    string `json:"state,omitempty"` // last read: on, off or unknown
	Detail   string `json:"detail,omitempty"`
	WasOff   bool   `json:"was_off,omitempty"`  // before any command
	Commands int    `json:"commands,omitempty"` // that were sent
	TookMS   int64  `json:"took_ms,omitempty"`
	Trouble  string `json:"trouble,omitempty"` // the kind of what is wrong
	Error    string `json:"error,omitempty"`
}

// Open reports whether the operation still has something to do.
func (o *Operation) Open() bool { return o.Phase != Done && o.Phase != CalledOff }

// PowersOn reports whether what the operation has to do next is to switch the node on. Until it is
// proven off, everything but FenceOn has to switch it off.
func (o *Operation) PowersOn() bool { return o.Phase == ProvenOff || o.Action == FenceOn }

// CutsPower reports whether commands that cut power may be out, or are to go out.
func (o *Operation) CutsPower() bool { return o.Open() && !o.PowersOn() }
