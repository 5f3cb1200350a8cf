package stonith

import (
	"time"

	"github.com/hamgr/hamgr/agents"
)

// PlugProof is the evidence of one plug.
type PlugProof struct {
	Device string `json:"device"`
	Plug   string `json:"plug,omitempty"`
	Detail string `json:"detail"`  // the device's own word for off
	WasOff bool   `json:"was_off"` // off before any command of this operation
	// OffSince is when it was first read off, of the reads that prove it. It has a
	// monotonic reading, and stays in this process.
	OffSince time.Time `json:"-"`
}

// Proof says that a target's power was read back off at every feed, twice, with
// the settle time between. Only Fencer.Off makes one.
type Proof struct {
	Node  string      `json:"node"`
	Boot  string      `json:"boot"`
	Op    uint64      `json:"op"`
	Level int         `json:"level"` // from 1
	Plugs []PlugProof `json:"plugs"`
	// Opinions are what the node's other devices said of it meanwhile.
	Opinions []Opinion `json:"opinions,omitempty"`
	// Devices are the results of all devices that were used, also at levels that failed.
	Devices []DeviceResult `json:"devices"`
	Took    time.Duration  `json:"took_ns"`
}

// OffSince is when the last of the plugs was first read off: what is heard of the target
// after that contradicts the proof.
func (p Proof) OffSince() time.Time {
	var latest time.Time
	for _, plug := range p.Plugs {
		if plug.OffSince.After(latest) {
			latest = plug.OffSince
		}
	}
	return latest
}

// DeviceResult is what came of one plug in an operation.
type DeviceResult struct {
	Level    int               `json:"level"` // from 1
	Device   string            `json:"device"`
	Plug     string            `json:"plug,omitempty"`
	State    agents.PowerState `json:"state"` // as read last
	Detail   string            `json:"detail,omitempty"`
	WasOff   bool              `json:"was_off,omitempty"` // read back off without a command
	Commands int               `json:"commands"`          // how many went out
	TookMS   int64             `json:"took_ms"`           // of the device, its plugs together
	Trouble  agents.Trouble    `json:"trouble,omitempty"`
	Error    string            `json:"error,omitempty"` // empty if the plug got where it should
}

// Opinion is what a device of another level said while off was being proven.
type Opinion struct {
	Level  int               `json:"level"` // from 1
	Device string            `json:"device"`
	Plug   string            `json:"plug,omitempty"`
	State  agents.PowerState `json:"state"`
	Detail string            `json:"detail,omitempty"`
	Error  string            `json:"error,omitempty"` // why there is none
}
