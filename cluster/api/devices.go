package api

import "time"

// FenceTest is what every fence device says to every node that may have to use it, read
// afresh. Nothing was changed by it.
type FenceTest struct {
	Schema int    `json:"schema"`
	Node   string `json:"node,omitempty"` // asked about; empty for all
	// Devices has one entry a device, plug and reading node.
	Devices []DeviceHealth `json:"devices"`
}

// DeviceHealth is how one node last found one plug of one fence device. It is an observation:
// no shot depends on it.
type DeviceHealth struct {
	Node   string `json:"node"`  // that the device is to fence
	Level  int    `json:"level"` // from 1
	Device string `json:"device"`
	Agent  string `json:"agent"`
	Plug   string `json:"plug,omitempty"`
	ReadBy string `json:"read_by"` // the node that asked the device
	// OK says that the device would do, as far as reading it can tell.
	OK     bool   `json:"ok"`
	State  string `json:"state"`            // "on", "off", "unknown"
	Detail string `json:"detail,omitempty"` // the device's own word
	// Trouble is the kind of what is wrong, in words that do not change ("wrong credentials",
	// "wrong privilege", "unreachable", "wrong machine", "wrong plug", ...); Error says it in full.
	Trouble  string         `json:"trouble,omitempty"`
	Error    string         `json:"error,omitempty"`
	Identity DeviceIdentity `json:"identity,omitzero"`
	AgeMS    int64          `json:"age_ms"` // since it was read
	TookMS   int64          `json:"took_ms"`
}

// DeviceIdentity is whom a device says it powers. Empty fields are not known.
type DeviceIdentity struct {
	UUID   string `json:"uuid,omitempty"`
	Serial string `json:"serial,omitempty"`
	Name   string `json:"name,omitempty"` // of the outlet
}

// Rehearsal is when a device was last proven to cut its node's power: by a rehearsal, or
// because it was needed.
type Rehearsal struct {
	Device   string    `json:"device"`
	Level    int       `json:"level"`
	At       time.Time `json:"at,omitzero"` // absent: never
	OffMS    int64     `json:"off_ms,omitempty"`
	Executor string    `json:"executor,omitempty"`
	Op       uint64    `json:"op,omitempty"`
}

// FenceHistory is the fencing operations that the cluster remembers, newest first.
type FenceHistory struct {
	Schema     int         `json:"schema"`
	Node       string      `json:"node,omitempty"` // asked about; empty for all
	Operations []Operation `json:"operations"`
}

// FenceAttempt is one attempt at an operation.
type FenceAttempt struct {
	Executor string         `json:"executor,omitempty"`
	At       time.Time      `json:"at,omitzero"` // when it ended
	Proven   bool           `json:"proven"`
	Error    string         `json:"error,omitempty"`
	Devices  []DeviceResult `json:"devices"`
	// Opinions are what the node's other devices said while the proof was taken.
	Opinions []string `json:"opinions,omitempty"`
}

// DeviceResult is what one attempt did at one plug, and how that ended.
type DeviceResult struct {
	Level    int    `json:"level"` // from 1
	Device   string `json:"device"`
	Plug     string `json:"plug,omitempty"`
	State    string `json:"state"` // that was read last
	Detail   string `json:"detail,omitempty"`
	WasOff   bool   `json:"was_off"`  // off before any command
	Commands int    `json:"commands"` // that were sent
	TookMS   int64  `json:"took_ms"`
	Trouble  string `json:"trouble,omitempty"`
	Error    string `json:"error,omitempty"`
}
