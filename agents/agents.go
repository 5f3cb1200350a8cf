// Package agents is the contract between the fencing engine and the code that
// drives one kind of fence device, and the registry of those kinds.
//
// An agent talks to one device: it reads the power state of a plug, and asks for
// it to be switched off or on. It decides nothing. Levels, retries, read-back and
// proofs are the engine's (package stonith); an agent knows neither the cluster
// nor the node behind a plug.
package agents

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// PowerState is what a device says of a plug. The zero value is Unknown, and
// Unknown is never off: a missing, null, transitional or odd answer stays Unknown.
type PowerState int8

// The three power states.
const (
	Unknown PowerState = iota
	On
	Off
)

// String gives the state's word as shown to operators.
func (s PowerState) String() string {
	switch s {
	case On:
		return "on"
	case Off:
		return "off"
	default:
		return "unknown"
	}
}

// MarshalText makes the state readable in JSON.
func (s PowerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote; every other word is Unknown.
func (s *PowerState) UnmarshalText(b []byte) error {
	switch string(b) {
	case "on":
		*s = On
	case "off":
		*s = Off
	default:
		*s = Unknown
	}
	return nil
}

// Reading is one fresh answer of a device about a plug.
type Reading struct {
	State PowerState
	// Detail is the device's own word ("PoweringOff", "<missing>"), for logs.
	Detail string
}

// Agent is a handle on one device. Status is always read from the device, never
// from a cache. A nil error from Off or On means only that the device accepted
// the command; what happened is learned by Status. An Agent is used by one
// goroutine at a time. Every call returns soon after its context ends.
type Agent interface {
	Status(ctx context.Context, plug string) (Reading, error)
	Off(ctx context.Context, plug string) error
	On(ctx context.Context, plug string) error
	// Close releases sessions and sockets. It is called once, has a context of
	// its own because the operation's may have ended, and is safe after errors.
	Close(ctx context.Context) error
}

// Identity is what a device knows of the machine behind a plug. Empty fields are
// not known.
type Identity struct {
	UUID   string // SMBIOS system UUID
	Serial string // chassis or system serial number
	Name   string // outlet name
}

// Identifier is implemented by agents whose devices can tell whom they power.
type Identifier interface {
	Identity(ctx context.Context, plug string) (Identity, error)
}

// Checker is implemented by agents that can tell, by reading alone, whether the device would
// let them switch the plug: that the account has the privilege, that the plug exists and is
// the one that was meant, that the device can be switched at all. It changes nothing.
type Checker interface {
	Check(ctx context.Context, plug string) error
}

// Sees says whose power state a device reads.
type Sees int8

const (
	// SeesFeed: an outlet. On means only that the machine behind it could draw power.
	SeesFeed Sees = iota
	// SeesMachine: the machine itself, as a BMC does. On means that it runs.
	SeesMachine
)

// Observer is implemented by Options whose devices do not see a mere feed.
type Observer interface {
	Sees() Sees
}

// Plugged is implemented by Options whose agents can tell a plug's spelling before they see the device.
type Plugged interface {
	// Plug gives the one spelling of a plug, so that two spellings of one are not taken for two plugs; an
	// error, if it can be no plug of such a device.
	Plug(plug string) (same string, err error)
}

// Options are the keys of one device in hamgr.toml, as a pointer to a struct
// whose fields carry the tags `toml:"key"` and `doc:"what it is"`; the struct
// comes from Kind.Options with its defaults filled in. A field of type Secret with
// key K is also filled from K_file, K_env or K_credential. A table whose names are not known
// beforehand is a map[string]string, and behind it, under the same key, a map[string]Secret for what
// its tag `secret:"regular expression"` says is secret.
type Options interface {
	// Validate checks the keys without touching the device. Each wrong key is a
	// *KeyError (several joined by errors.Join).
	Validate() error
	// Open makes a handle. It neither blocks nor touches the network.
	Open(log *slog.Logger) (Agent, error)
}

// Kind is one entry of the registry.
type Kind struct {
	Name    string
	Doc     string
	Options func() Options
	// Example is a [[fence_device]] table in TOML, ready to be edited.
	Example string
	// Programs, if not nil, lists the programs of this host that the kind drives, as far as their
	// names tell. It runs none.
	Programs func() []string
	// Describe, if not nil, describes one of several programs behind the kind, as in
	// exec:fence_apc. It may run that program, within ctx.
	Describe func(ctx context.Context, program string) (Description, error)
}

// Description is what is known of a program that a kind drives.
type Description struct {
	Program string            `json:"program"`
	Doc     string            `json:"doc"`
	Options []DescribedOption `json:"options"`
	Example string            `json:"example"`
	// Notes are what an operator should know before trusting it.
	Notes []string `json:"notes"`
}

// DescribedOption is one option of such a program.
type DescribedOption struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"` // in words
	Default  string   `json:"default,omitempty"`
	Required bool     `json:"required,omitempty"`
	Choices  []string `json:"choices,omitempty"`
	Doc      string   `json:"doc"`
	// Set says that hamgr fills it in by itself, so that a file must not.
	Set bool `json:"set,omitempty"`
}

// KeyError says what is wrong with one key of a device.
type KeyError struct {
	Key  string
	Msg  string // what is wrong
	Cure string // what to write instead; may be empty
}

func (e *KeyError) Error() string {
	if e.Cure == "" {
		return fmt.Sprintf("%s: %s", e.Key, e.Msg)
	}
	return fmt.Sprintf("%s: %s; %s", e.Key, e.Msg, e.Cure)
}

// Registry maps agent names to kinds. It is a value: tests make their own.
type Registry map[string]Kind

// NewRegistry panics on a duplicate name, which is a programming error.
func NewRegistry(kinds ...Kind) Registry {
	r := Registry{}
	for _, k := range kinds {
		if _, ok := r[k.Name]; ok {
			panic("agents: duplicate kind " + k.Name)
		}
		r[k.Name] = k
	}
	return r
}

// Names lists the kinds in alphabetical order.
func (r Registry) Names() []string {
	names := make([]string, 0, len(r))
	for n := range r {
		names = append(names, n)
	}
	slices.SortFunc(names, strings.Compare)
	return names
}
