package resourcetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hamgr/hamgr/resources"
)

var faultChecks = []check{
	{"trouble", []string{"Troubles"}, trouble},
	{"cannot be told", []string{"Blind"}, cannotBeTold},
	{"cannot be stopped", []string{"Stuck"}, cannotBeStopped},
}

// while is how long calls are given that cannot succeed, and might try until their time is over.
const while = 200 * time.Millisecond

func (s *suite) while() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), min(while, s.host.patience()))
	s.Cleanup(cancel)
	return ctx
}

// names gives the names of faults in a fixed order.
func names[F any](faults map[string]F) []string { return slices.Sorted(maps.Keys(faults)) }

var sentinels = []error{resources.ErrNode, resources.ErrSetup, resources.ErrElsewhere}

// blames demands that an error wraps one sentinel, and no other.
func (s *suite) blames(what string, err, is error) {
	s.Helper()
	for _, sentinel := range sentinels {
		if wraps := errors.Is(err, sentinel); wraps != (sentinel == is) {
			s.Errorf("%s: wraps %q: %v; the error is: %v", what, sentinel, wraps, err)
		}
	}
}

// trouble: a start that cannot succeed says so, and whose fault it is; Check says the same beforehand. A stop after it
// succeeds: the resource is not active, and nobody is to be shot for that.
func trouble(s *suite) {
	for _, name := range names(s.host.Troubles) {
		t := s.host.Troubles[name]
		s.begin(t.Fault)
		h := s.open()
		if c, ok := h.res.(resources.Checker); ok && !t.Late {
			before := s.picture()
			if err := c.Check(s.ctx()); err == nil {
				s.Errorf("%s: check finds nothing wrong", name)
			} else {
				s.blames(name+": check", err, t.Is)
			}
			s.unchanged(before, name+": check")
		}
		if err := h.call("start", s.ctx()).err; err == nil {
			s.Errorf("%s: it starts", name)
		} else {
			s.blames(name+": start", err, t.Is)
		}
		if active := s.host.Active(); len(active) != 0 && errors.Is(t.Is, resources.ErrElsewhere) {
			s.Errorf("%s: it is held elsewhere, and active here: %v", name, active)
		}
		h.readsNot(resources.Active)
		if err := h.call("stop", s.ctx()).err; err != nil {
			s.Errorf("%s: stop: %v", name, err)
		}
		if t.End == nil {
			continue
		}
		s.mend()
		h.starts()
		h.stops()
	}
}

// cannotBeTold: what nobody can tell is not inactive, neither for a probe nor for a stop, whatever the truth is; and
// not active either.
func cannotBeTold(s *suite) {
	for _, name := range names(s.host.Blind) {
		for _, active := range []bool{true, false} {
			h := s.open()
			if active {
				h.starts()
			}
			s.begin(s.host.Blind[name])
			for range 2 {
				if o := h.call("probe", s.while()); o.state == resources.Inactive || o.state == resources.Active {
					s.Errorf("%s: probe says %v (%q)", name, o.state, o.detail)
				}
			}
			if active {
				h.call("stop", s.while()) // which the judge looks at
				s.open().call("stop", s.while())
			}
			s.mend()
			h.stops()
		}
	}
}

// cannotBeStopped: a stop that does not succeed is an error, however often it is tried, and what is still there
// is not inactive. When the fault is over, a stop succeeds.
func cannotBeStopped(s *suite) {
	for _, name := range names(s.host.Stuck) {
		h := s.open()
		h.starts()
		s.begin(s.host.Stuck[name])
		for _, h := range []*handle{h, h, s.open()} {
			if err := h.call("stop", s.while()).err; err == nil {
				s.Errorf("%s: it stops", name)
			}
			if len(s.host.Active()) == 0 {
				s.Fatalf("%s: the host does not keep it", name)
			}
			h.call("probe", s.while()) // which the judge looks at
		}
		s.mend()
		h.stops()
	}
}
