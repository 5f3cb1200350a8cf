package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Rule is a safety rule of the design.
type Rule string

const (
	// OneWriter, S1: between the first and the last write of a grant nobody writes for that group by another one, neither
	// by the clock nor in the order in which the storage took the writes; and nobody writes whose token was over by then.
	OneWriter Rule = "S1 one writer"
	// TokensGrow, S2: each grant of a group has a higher token than those before, and no token is given twice.
	TokensGrow Rule = "S2 tokens only grow"
	// ProofFirst, S3: when a grant was first seen, all that held the group before had stopped, was in a newer boot, had been
	// seen off, or was down by an operator's word.
	ProofFirst Rule = "S3 proof before takeover"
	// OldBoot, S8: nothing is written by a boot that a newer one followed, or that was seen off.
	OldBoot Rule = "S8 an old boot is over"
	// Lock: the grants of a group are linearizable.
	Lock Rule = "linearizable"
)

// Violation is one that was found.
type Violation struct {
	Rule Rule
	What string
}

func (v Violation) String() string { return string(v.Rule) + ": " + v.What }

// Check finds what breaks a rule.
func Check(h History) (all []Violation) {
	s := look(h)
	bad := func(rule Rule, format string, args ...any) {
		all = append(all, Violation{rule, fmt.Sprintf(format, args...)})
	}
	for _, g := range s.groups {
		checkWriters(s.reigns[g], bad)
		checkProofs(s.reigns[g], bad)
	}
	for _, e := range s.marks {
		if e.Kind == Refused {
			bad(OneWriter, "%v", e)
		}
	}
	checkTokens(s, bad)
	checkBoots(s, bad)
	return all
}

type report func(rule Rule, format string, args ...any)

// checkWriters wants the spans of the grants' writes apart, and the later one with the higher token, in each of two orders.
func checkWriters(reigns []*reign, bad report) {
	orders := map[string]func(Event) int64{
		"by the clock":   func(e Event) int64 { return int64(e.At) },
		"in the storage": func(e Event) int64 { return int64(e.Line) },
	}
	for order, place := range orders {
		var newest, open *reign // by token, and by how far its writes reach
		var until int64
		spans := slices.DeleteFunc(slices.Clone(reigns), func(r *reign) bool {
			return len(r.writes) == 0 || place(last(r.writes, place)) == 0 // the order is not known
		})
		slices.SortStableFunc(spans, func(a, b *reign) int {
			return cmp.Compare(place(first(a.writes, place)), place(first(b.writes, place)))
		})
		for _, r := range spans {
			if open != nil && place(first(r.writes, place)) <= until {
				bad(OneWriter, "%s: %v began while %v still wrote: %v, %v", order, r, open, first(r.writes, place), last(open.writes, place))
			}
			if newest != nil && newest.token > r.token {
				bad(OneWriter, "%s: %v wrote, whose token was over, for %v had written", order, r, newest)
			} else {
				newest = r
			}
			if end := place(last(r.writes, place)); open == nil || end > until {
				open, until = r, end
			}
		}
	}
}

func first(writes History, place func(Event) int64) Event {
	return slices.MinFunc(writes, func(a, b Event) int { return cmp.Compare(place(a), place(b)) })
}

func last(writes History, place func(Event) int64) Event {
	return slices.MaxFunc(writes, func(a, b Event) int { return cmp.Compare(place(a), place(b)) })
}

// checkProofs wants all holders over when a later grant was first seen. Of a grant by which nothing ever ran, nothing is
// asked: what it could have written would be seen.
func checkProofs(reigns []*reign, bad report) {
	for i, r := range reigns {
		if !r.held {
			continue
		}
		for _, next := range reigns[i+1:] {
			if next.token != r.token && !r.overAt(next.evidence) {
				bad(ProofFirst, "%v was seen at %v, when nothing proved that %v was over", next, next.evidence, r)
				break
			}
		}
	}
}

// checkTokens wants one meaning of each token in all groups, and rising ones in each.
func checkTokens(s *seen, bad report) {
	given := map[uint64]*reign{}
	for _, g := range s.groups {
		var newest *reign
		for _, r := range s.reigns[g] {
			if was := given[r.token]; was != nil {
				bad(TokensGrow, "%v is also %v", was, r)
			}
			given[r.token] = r
			if newest != nil && r.token < newest.token {
				bad(TokensGrow, "%v came after %v", r, newest)
			}
			if newest == nil || r.token > newest.token {
				newest = r
			}
		}
	}
	granted := map[uint64]Event{}
	for _, e := range s.marks {
		if e.Kind != Granted {
			continue
		}
		if was, again := granted[e.Token]; again {
			bad(TokensGrow, "%v, and again %v", was, e)
		}
		granted[e.Token] = e
	}
}

// checkBoots wants no write of a boot after its end.
func checkBoots(s *seen, bad report) {
	for _, g := range s.groups {
		for _, r := range s.reigns[g] {
			if len(r.writes) == 0 {
				continue
			}
			final := r.writes[len(r.writes)-1]
			if e, over := s.bootOver(r.node, r.boot); over && e.At < final.At {
				bad(OldBoot, "%v, after %v", final, e)
			}
		}
	}
}

// bootOver is the first event after which a boot of a node is over.
func (s *seen) bootOver(node, boot string) (_ Event, over bool) {
	began := time.Duration(-1)
	for _, e := range s.marks {
		switch {
		case e.Node != node:
		case e.Kind == Boot && e.Boot == boot:
			began = e.At
		case began >= 0 && (e.Kind == Boot || e.Kind == SeenOff):
			return e, true
		}
	}
	return Event{}, false
}
