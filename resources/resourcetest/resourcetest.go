// Package resourcetest holds a kind of resource to the contract of package resources, on a host: a real one, or
// something that stands for one, which can be looked at and broken from behind.
//
// What a resource says is never compared with what it said before, only with what the host itself shows to be
// active.
package resourcetest

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
)

// Subject is a kind, and the hosts to try it on.
type Subject struct {
	Kind resources.Kind
	// Host makes a host on which the resource is not active, and ends it with the test that it is given. It is
	// called for each check anew.
	Host func(t testing.TB) *Host
}

// Host is one host and all that can be done on it behind the resource's back. What is left nil cannot be done on this
// one; Cannot then says why, by the name of the field.
type Host struct {
	// New makes the resource for a grant, as a daemon does. It is called again for the next grant, and for the same
	// one, as after a restart of the daemon. What it makes must be as it is for the node: valid, and fit to start.
	New func(resources.Env) (resources.Resource, error)
	// Active is the judge: what of the resource is active on the host, each copy by a name that no other run of it has
	// (a process ID, the ID of a mount). It neither asks the resource nor hangs, whatever else does.
	Active func() []string
	// Picture shows everything on the host that a look at the resource must leave as it is.
	Picture func() string

	// Kill ends what is active, as a crash does or somebody who does not know of hamgr; Active is empty soon.
	Kill func()
	// Troubles are what keeps the resource from being started.
	Troubles map[string]Trouble
	// Hangs let calls wait for something that never comes.
	Hangs map[string]Hang
	// Blind are faults by which nobody on the host can tell whether it is active.
	Blind map[string]Fault
	// Stuck are faults by which nothing on the host can end it.
	Stuck map[string]Fault

	// Cannot gives the reason for each field that is nil, and for this word:
	// "Example": the kind has no example, because nobody configures it.
	Cannot map[string]string

	// Patience is how long a call that goes well may take on this host; default 10 s.
	Patience time.Duration
	// Operations is how many are done at random; default 100.
	Operations int
}

// Fault is something that befalls the host, and its end.
type Fault struct{ Begin, End func() }

// Hang is a fault under which calls hang.
type Hang struct {
	Fault
	Calls []string // of "probe", "start", "stop", "check"; nil: all of them
}

// Trouble is a fault under which no start succeeds.
type Trouble struct {
	Fault
	// Is the sentinel that errors wrap: ErrNode, ErrSetup or ErrElsewhere; nil where the kind cannot tell.
	Is error
	// Late is true where no look can tell it beforehand.
	Late bool
}

// check is one rule of the contract. It is tried where the host has all that it needs.
type check struct {
	name  string
	needs []string // fields of Host
	run   func(*suite)
}

// kindChecks need no host.
var kindChecks = []check{
	{"name and doc", nil, nameAndDoc},
	{"keys are described", nil, describedKeys},
	{"options without a value", nil, zeroOptions},
	{"example", []string{"Example"}, example},
}

var hostChecks = slices.Concat(lifeChecks, faultChecks, contextChecks, watchChecks, randomChecks)

// Run holds a kind to the contract.
func Run(t *testing.T, sub Subject) {
	t.Helper()
	var cannot map[string]string
	if !t.Run("host", func(t *testing.T) {
		h := sub.Host(t)
		cannot = h.Cannot
		h.complete(t)
		for _, name := range slices.Sorted(maps.Keys(cannot)) {
			t.Logf("not tried, %s: %s", name, cannot[name])
		}
	}) {
		return
	}
	for _, c := range slices.Concat(kindChecks, hostChecks) {
		if !slices.ContainsFunc(c.needs, func(need string) bool { return cannot[need] != "" }) {
			t.Run(c.name, func(t *testing.T) { c.try(t, sub) })
		}
	}
}

func (c check) try(t testing.TB, sub Subject) {
	s := &suite{TB: t, kind: sub.Kind}
	if slices.ContainsFunc(hostChecks, func(h check) bool { return h.name == c.name }) {
		s.host = sub.Host(t)
		s.settle()
		defer s.end()
	}
	c.run(s)
}

// always are the fields without which there is nothing to be held against.
var always = []string{"New", "Active"}

// complete demands a reason for each ability that is missing, and no reason for one that is there.
func (h *Host) complete(t testing.TB) {
	t.Helper()
	known := []string{"Example"}
	v := reflect.ValueOf(h).Elem()
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		if name == "Cannot" || field.Kind() != reflect.Func && field.Kind() != reflect.Map {
			continue
		}
		known = append(known, name)
		missing := field.IsNil() || field.Kind() == reflect.Map && field.Len() == 0
		switch reason := h.Cannot[name]; {
		case missing && slices.Contains(always, name):
			t.Fatalf("the host needs %s", name)
		case missing && reason == "":
			t.Errorf("the host lacks %s without a reason in Cannot", name)
		case !missing && reason != "":
			t.Errorf("the host has %s, and says that it cannot: %s", name, reason)
		}
	}
	for name, reason := range h.Cannot {
		if !slices.Contains(known, name) || reason == "" {
			t.Errorf("Cannot names %s, which is unknown, or gives no reason", name)
		}
	}
	if active := h.Active(); len(active) != 0 {
		t.Errorf("active at the start: %v", active)
	}
}

func (h *Host) patience() time.Duration {
	if h.Patience > 0 {
		return h.Patience
	}
	return 10 * time.Second
}

func (h *Host) operations() int {
	if h.Operations > 0 {
		return h.Operations
	}
	return 100
}
