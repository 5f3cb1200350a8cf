// Package resources is the contract between a node and the things it runs, and
// the registry of their kinds.
//
// A resource is one managed thing in a group: a mount, an address, a process. A
// kind knows neither the cluster nor its neighbours in the group; order, deadlines,
// restarts and failover are the node's.
package resources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
)

// Env is what a resource is told about the grant it runs under.
type Env struct {
	Group    string
	Resource string
	Node     string
	Boot     string // kernel boot ID of this node
	Token    uint64 // the grant's fencing token
	// Dir is a private directory of the resource for what must survive a restart
	// of the daemon, but not of the kernel (process IDs). It exists.
	Dir string
	Log *slog.Logger
}

// Environ gives the variables that every process of a resource receives.
func (e Env) Environ() []string {
	return []string{
		"HAMGR_TOKEN=" + strconv.FormatUint(e.Token, 10),
		"HAMGR_GROUP=" + e.Group,
		"HAMGR_RESOURCE=" + e.Resource,
		"HAMGR_NODE=" + e.Node,
		"HAMGR_BOOT=" + e.Boot,
	}
}

// State is what a look at the real thing says. The zero value is Unknown.
type State int8

// The states of a resource.
const (
	Unknown  State = iota // cannot be told; treated as possibly active
	Inactive              // certainly not active here
	Active                // active and well
	Failed                // something of it is here, but it does not work
)

// String gives the state's word as shown to operators.
func (s State) String() string {
	return [...]string{"unknown", "inactive", "active", "failed"}[s]
}

// MarshalText makes the state readable in JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Resource is one resource under one grant. Calls come from one goroutine at a
// time, except Died. Every call returns soon after its context ends.
type Resource interface {
	// Probe looks at the real thing, with nothing assumed; it serves as monitor too.
	// The string is a short detail for operators.
	Probe(ctx context.Context) (State, string, error)
	// Start returns nil when the resource is active. Starting what is active already
	// under the same token is success. After an error the caller stops it.
	Start(ctx context.Context) error
	// Stop returns nil only when the resource is certainly inactive here.
	// Stopping what is inactive is success.
	Stop(ctx context.Context) error
}

// Watcher is implemented by resources that notice their own death at once, instead
// of at the next monitor. Died blocks until the started resource ends (its reason as
// the error) or ctx ends (ctx.Err).
type Watcher interface {
	Died(ctx context.Context) error
}

// Options are the keys of one resource in hamgr.toml: a pointer to a struct whose
// fields carry the tags `toml:"key"` and `doc:"what it is"`, with its defaults
// filled in by Kind.Options. Durations are fields of type time.Duration.
type Options interface {
	// Validate checks the keys without touching the host. Each wrong key is a
	// *KeyError (several joined by errors.Join).
	Validate() error
	// Exclusive names what only one group of a cluster may use, in a form in which two can be compared, and the key
	// that says so: two resources of a kind that name the same thing would be two who use it. Empty: others
	// may use all of it too. It does not touch the host; of keys that are not valid it may
	// say anything.
	Exclusive() (key, what string)
	// New makes the resource for a grant. It neither blocks nor changes anything.
	New(Env) (Resource, error)
}

// Checker is implemented by resources that can tell beforehand, by looking alone, that they would not start
// here, or must not be managed as they are set up. It changes nothing.
type Checker interface {
	Check(ctx context.Context) error
}

// Whose fault an error is, where a kind can tell: a caller that knows tries elsewhere, or does not. An
// error that wraps neither may be either.
var (
	// ErrNode: this host cannot run the resource now (a disk is gone, a link is down); another one may.
	ErrNode = errors.New("fault of this node")
	// ErrSetup: it is set up wrongly, here or in hamgr.toml, and an operator has to mend it.
	ErrSetup = errors.New("wrong setup")
	// ErrElsewhere: something outside holds what the resource needs (an address that another host answers
	// for, a disk that is mounted elsewhere): starting would make two of it.
	ErrElsewhere = errors.New("held elsewhere")
)

// Kind is one entry of the registry.
type Kind struct {
	Name    string
	Doc     string
	Options func() Options
	// Example is a [[group.resource]] table in TOML, ready to be edited.
	Example string
	// Describe, if not nil, describes one of several programs behind the kind, as in
	// ocf:heartbeat:IPaddr2. It may run that program, within ctx.
	Describe func(ctx context.Context, program string) (Description, error)
	// Programs, if not nil, lists those of this host.
	Programs func() []string
}

// Description is what is known of a program that a kind drives.
type Description struct {
	Program string
	Doc     string
	Options []DescribedOption
	Example string
	// Notes are what an operator should know before trusting it.
	Notes []string
}

// DescribedOption is one option of such a program.
type DescribedOption struct {
	Name     string
	Type     string // in words
	Default  string
	Required bool
	Choices  []string
	Doc      string
}

// KeyError says what is wrong with one key of a resource.
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

// Registry maps kind names to kinds. It is a value: tests make their own.
type Registry map[string]Kind

// NewRegistry panics on a duplicate name, which is a programming error.
func NewRegistry(kinds ...Kind) Registry {
	r := Registry{}
	for _, k := range kinds {
		if _, ok := r[k.Name]; ok {
			panic("resources: duplicate kind " + k.Name)
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
