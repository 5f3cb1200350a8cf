package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Command is one entry of the replicated log: exactly one of the pointers is set.
type Command struct {
	Version int   `json:"v"`
	At      int64 `json:"at,omitempty"` // proposer's wall clock, Unix milliseconds, for display only
	// Elapsed is the monotonic milliseconds since the proposer, in its present term as coordinator, proposed its last
	// command, or since the term began. A proposal counts whether or not it came through: one that was
	// given up may be committed later, and no time may be counted twice.
	Elapsed int64 `json:"elapsed,omitempty"`

	Configure  *Configure  `json:"configure,omitempty"`
	Join       *Join       `json:"join,omitempty"`
	Leave      *Leave      `json:"leave,omitempty"`
	Order      *Order      `json:"order,omitempty"`
	CallOff    *CallOff    `json:"call_off,omitempty"`
	Shoot      *Shoot      `json:"shoot,omitempty"`
	ShotFailed *ShotFailed `json:"shot_failed,omitempty"`
	ShotProven *ShotProven `json:"shot_proven,omitempty"`
	PoweredOn  *PoweredOn  `json:"powered_on,omitempty"`
	Grant      *GrantGroup `json:"grant,omitempty"`
	Stop       *StopGroup  `json:"stop,omitempty"`
	Started    *Report     `json:"started,omitempty"`
	Stopped    *Report     `json:"stopped,omitempty"`
	Failed     *Report     `json:"failed,omitempty"`
	StopFailed *Report     `json:"stop_failed,omitempty"`
	Clear      *Clear      `json:"clear,omitempty"`
	Tick       *Tick       `json:"tick,omitempty"`
	Standby    *Standby    `json:"standby,omitempty"`
	Confirm    *Confirm    `json:"confirm,omitempty"`

	Enable   *Enable       `json:"enable,omitempty"`
	Maintain *Maintain     `json:"maintain,omitempty"`
	Move     *MoveGroup    `json:"move,omitempty"`
	Restart  *RestartGroup `json:"restart,omitempty"`
	Expire   *Expire       `json:"expire,omitempty"`
	Aim      *AimGroup     `json:"aim,omitempty"`

	Away    *Away    `json:"away,omitempty"`
	Leaving *Leaving `json:"leaving,omitempty"`
	Upgrade *Upgrade `json:"upgrade,omitempty"`
	Force   *Force   `json:"force,omitempty"`
}

// Configure makes the configuration file's nodes and groups the cluster's.
type Configure struct {
	Cluster string        `json:"cluster"`
	Digest  string        `json:"digest"`
	Nodes   []ConfigNode  `json:"nodes"`
	Groups  []ConfigGroup `json:"groups"`
	// Text is the configuration file itself, which every daemon then runs with.
	Text string `json:"text,omitempty"`
	// TwoNode says that of two voters one may go on alone, by proof of the other's being off.
	TwoNode bool `json:"two_node,omitempty"`
	// By is the operator who applied it; empty for the file that a cluster began with.
	By string `json:"by,omitempty"`
	// From is the index of the configuration that it was judged against; another one in between makes it void.
	From uint64 `json:"from,omitempty"`
	// LastToken is the newest token when it was judged; another one in between makes it void as well.
	LastToken uint64 `json:"last_token,omitempty"`
}

// ConfigNode is a node as configured.
type ConfigNode struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	// Capacity bounds the weights of the groups that are placed on the node; 0 is no bound.
	Capacity int `json:"capacity,omitempty"`
}

// ConfigGroup is a group as configured.
type ConfigGroup struct {
	Name string `json:"name"`
	Rules
}

// Join says that a node runs in this boot, and what it found active on itself, group by
// group. It is repeated whenever that changes.
type Join struct {
	Node string `json:"node"`
	Boot string `json:"boot"`
	// Session names this run of the node's daemon.
	Session string            `json:"session,omitempty"`
	Found   map[string]string `json:"found,omitempty"`
	// Machine is what the node runs on; empty if it cannot tell.
	Machine Machine `json:"machine,omitzero"`
	// Watchdog is what it claims of its watchdog; nil for none.
	Watchdog *WatchdogClaim `json:"watchdog,omitempty"`
}

// Leave says that a node that holds nothing goes away on purpose.
type Leave struct {
	Node string `json:"node"`
	Boot string `json:"boot"`
}

// Order opens a fencing operation against a node in one boot. Where the cluster's own operation is under way
// and nothing is proven yet, an operator's order takes it over.
type Order struct {
	Node   string      `json:"node"`
	Boot   string      `json:"boot"`
	Action FenceAction `json:"action"`
	Reason string      `json:"reason"`
	By     string      `json:"by"`
	Level  int         `json:"level,omitempty"` // for FenceRehearse: the level to prove; 0 is all in order
}

// CallOff ends an operation of which no command has gone out.
type CallOff struct {
	Op     uint64 `json:"op"`
	Reason string `json:"reason"`
}

// Shoot says that the executor is about to send commands for the operation.
type Shoot struct {
	Op       uint64 `json:"op"`
	Executor string `json:"executor"`
}

// ShotFailed says that an attempt brought no proof. The operation stays open; a rehearsal goes on to switch
// its node on again.
type ShotFailed struct {
	Op       uint64         `json:"op"`
	Executor string         `json:"executor"`
	Error    string         `json:"error"`
	Devices  []DeviceResult `json:"devices,omitempty"`
	Opinions []string       `json:"opinions,omitempty"`
}

// ShotProven says that every feed of the target was read back off.
type ShotProven struct {
	Op       uint64         `json:"op"`
	Executor string         `json:"executor"`
	Evidence []string       `json:"evidence"`
	Devices  []DeviceResult `json:"devices,omitempty"`
	Opinions []string       `json:"opinions,omitempty"`
	// Kind is what proves it, if that is not the power switch.
	Kind ProofKind `json:"kind,omitempty"`
}

// PoweredOn ends an operation that was to switch the node on.
type PoweredOn struct {
	Op     uint64 `json:"op"`
	Reason string `json:"reason,omitempty"` // why it counts as on, where no device said so
}

// GrantGroup gives a group to a node in one boot. The token is made by Apply.
type GrantGroup struct {
	Group  string `json:"group"`
	Node   string `json:"node"`
	Boot   string `json:"boot"`
	Reason string `json:"reason"`
}

// StopGroup tells the holder of a grant to stop.
type StopGroup struct {
	Group  string `json:"group"`
	Token  uint64 `json:"token"`
	Reason string `json:"reason"`
	// Aim is the node to which it is to go, where that is the reason.
	Aim string `json:"aim,omitempty"`
}

// Report is what the holder of a grant says of it.
type Report struct {
	Group    string `json:"group"`
	Token    uint64 `json:"token"`
	Node     string `json:"node"`
	Boot     string `json:"boot"`
	Session  string `json:"session,omitempty"`  // of the daemon that speaks
	Resource string `json:"resource,omitempty"` // what failed
	Error    string `json:"error,omitempty"`
	// Verdict is what the configuration wants to become of a failure, beyond a move.
	Verdict Verdict `json:"verdict,omitempty"`
}

// Verdict is what becomes of a failed resource's group or node.
type Verdict string

// The verdicts; without one, the group moves.
const (
	Halt  Verdict = "halt"  // the group is stopped everywhere
	Fence Verdict = "fence" // the node is fenced
)

// Clear forgets why a group failed, on one node or (empty) on all, and why it was halted. It never ends the need for
// fencing.
type Clear struct {
	Group string `json:"group"`
	Node  string `json:"node,omitempty"`
}

// Tick only carries the clock on.
type Tick struct{}

// Standby says whether a member may hold groups.
type Standby struct {
	Node string `json:"node"`
	On   bool   `json:"on"`
	By   string `json:"by"`
}

// Confirm is an operator's word that a node is down in one boot. It proves what a read-back would, and is
// remembered as what it is.
type Confirm struct {
	Node   string `json:"node"`
	Boot   string `json:"boot"`
	By     string `json:"by"`
	Reason string `json:"reason"`
	// Force says that the operator insisted, against what still spoke for the node's being alive.
	Force    bool     `json:"force,omitempty"`
	Evidence []string `json:"evidence,omitempty"` // what was known at that time, one line each
}

// Encode gives the command's bytes for the log.
func (c Command) Encode() ([]byte, error) {
	c.Version = c.Needs()
	return json.Marshal(c)
}

// Decode reads a command from the log or from another node. One that says anything that this daemon does not know is of
// another version, whatever it calls itself: to apply the rest would part this node's state from the others'.
func Decode(b []byte) (Command, error) {
	var c Command
	if err := json.Unmarshal(b, &c); err != nil {
		return Command{}, fmt.Errorf("decode command: %w", err)
	}
	if c.Version < Oldest || c.Version > Version {
		return Command{}, fmt.Errorf("decode command: version %d of the log's format, this daemon knows %d to %d: %w", c.Version, Oldest, Version, ErrVersion)
	}
	strict := json.NewDecoder(bytes.NewReader(b))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&Command{}); err != nil {
		return Command{}, fmt.Errorf("decode command: %w: %w", err, ErrVersion)
	}
	return c, nil
}

// Why a command changed nothing. The text around them says more.
var (
	// ErrVersion: the command is of a format that this daemon does not know.
	ErrVersion = errors.New("unknown command version")
	// ErrFormat: the cluster does not keep to a format in which it can be said.
	ErrFormat = errors.New("not before all nodes know it")
	// ErrUnknown: it names a node, group or operation that does not exist.
	ErrUnknown = errors.New("unknown")
	// ErrBootEnded: the boot is proven over; whatever still speaks in its name must stop.
	ErrBootEnded = errors.New("boot is proven over")
	// ErrSuperseded: the grant, boot or operation it speaks of is no longer the current one.
	ErrSuperseded = errors.New("superseded")
	// ErrSession: it is of a daemon that the state does not know as the node's present one.
	ErrSession = errors.New("not of the node's present daemon")
	// ErrConflict: it contradicts what is committed.
	ErrConflict = errors.New("conflict")
)
