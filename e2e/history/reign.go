package history

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// reign is one grant of a group, as far as it was seen.
type reign struct {
	group, node, boot string
	token             uint64
	evidence          time.Duration // the first that was seen of it
	held              bool          // something of the group ran there by it
	writes            History       // by time
	over              time.Duration // when it was first proven that nothing of it can write any more
	proven            bool
}

func (r *reign) String() string {
	return fmt.Sprintf("token %d of %s on %s in boot %q", r.token, r.group, r.node, r.boot)
}

// overAt reports whether it was proven by then that the reign is over.
func (r *reign) overAt(at time.Duration) bool { return r.proven && r.over <= at }

// seen is a history in the shape in which it is judged.
type seen struct {
	marks  History // all but the writes, sorted
	groups []string
	reigns map[string][]*reign // of a group, by their evidence
}

// look finds the reigns. Those of one token on two nodes, or in two boots, are two.
func look(h History) *seen {
	s := &seen{reigns: map[string][]*reign{}}
	all := h.sorted()
	for _, e := range all {
		if e.Kind != Write {
			s.marks = append(s.marks, e)
		}
	}
	for _, e := range all {
		if e.Kind == Granted || e.Kind == Started || e.Kind == Write {
			s.note(e)
		}
	}
	s.groups = slices.Sorted(maps.Keys(s.reigns))
	for _, g := range s.groups {
		for _, r := range s.reigns[g] {
			s.findProof(r)
		}
	}
	return s
}

// note takes an event to its reign. One that names no boot is of the boot in which its node was.
func (s *seen) note(e Event) {
	if e.Boot == "" {
		e.Boot = s.bootAt(e.Node, e.At)
	}
	var r *reign
	for _, of := range s.reigns[e.Group] {
		if of.token == e.Token && of.node == e.Node && of.boot == e.Boot {
			r = of
		}
	}
	if r == nil {
		r = &reign{group: e.Group, node: e.Node, boot: e.Boot, token: e.Token, evidence: e.At}
		s.reigns[e.Group] = append(s.reigns[e.Group], r)
	}
	if e.Kind == Write {
		r.writes = append(r.writes, e)
	}
	r.held = r.held || e.Kind != Granted
}

// findProof finds the first proof, of those of S3, that a reign is over. That a grant was stopped is one if nothing was
// written after it: a resource that restarts where it is stops as well.
func (s *seen) findProof(r *reign) {
	for _, e := range s.marks {
		if e.Node != r.node || e.At < r.evidence {
			continue
		}
		switch e.Kind {
		case Stopped:
			r.proven = e.Group == r.group && e.Token == r.token && (len(r.writes) == 0 || r.writes[len(r.writes)-1].At <= e.At)
		case SeenOff:
			r.proven = s.bootAt(e.Node, e.At) == r.boot
		case Boot:
			r.proven = e.Boot != r.boot
		case Word:
			r.proven = e.Boot == r.boot
		}
		if r.proven {
			r.over = e.At
			return
		}
	}
}

// bootAt is the boot that a node was in, or in which it was last. Empty: none was seen.
func (s *seen) bootAt(node string, at time.Duration) (boot string) {
	for _, e := range s.marks {
		if e.At > at {
			break
		}
		if e.Kind == Boot && e.Node == node {
			boot = e.Boot
		}
	}
	return boot
}
