package history

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// lock is the state of the model: who has the group by its newest token, if anybody has.
type lock struct {
	token uint64
	held  bool
}

// operation is what the model does: give, use or end the grant of a token.
type operation struct {
	kind Kind // Granted, Write or Stopped
	held bool // Granted: something ran by it
	r    *reign
}

// patience is how long the search for an order may take. It takes milliseconds: tokens leave few orders to try.
const patience = 10 * time.Second

// Linearizable finds the groups whose grants cannot be put in one order that a lock would allow.
//
// The model is a lock with a number: a grant takes it when nobody has it, by a number higher than all before; a write
// needs it, by the number of its grant; the proof that a grant is over frees it. That is what the cluster promises of
// a group: S1, S2 and S3 say nothing else of its grants.
//
// A grant is not seen happening. It takes effect when a majority has it on disk, and no observer stands there; but it had
// not yet happened when the one before was last seen to write, alone, and it had when anything was first seen of it: a line
// of a log, a write. So a grant is an interval; a write is a point, for the storage takes it at one time, and so is a
// proof. Whether there is an order in which each grant is at a point of its interval, and which the lock allows, is the
// question of linearizability (Herlihy and Wing, 1990). Check asks it rule by rule; this asks it once.
func Linearizable(h History) (all []Violation) {
	s := look(h)
	for _, g := range s.groups {
		switch porcupine.CheckOperationsTimeout(model, operations(s.reigns[g]), patience) {
		case porcupine.Illegal:
			all = append(all, Violation{Lock, fmt.Sprintf("no lock would have given %s so: %v", g, s.reigns[g])})
		case porcupine.Unknown:
			all = append(all, Violation{Lock, fmt.Sprintf("whether a lock would have given %s so was not found within %v", g, patience)})
		}
	}
	return all
}

// operations are those of one group. Of the writes of a grant, the first and the last say it all.
func operations(reigns []*reign) (ops []porcupine.Operation) {
	add := func(o operation, call, ret time.Duration) {
		ops = append(ops, porcupine.Operation{Input: o, Call: int64(call), Return: int64(ret)})
	}
	for _, r := range reigns {
		add(operation{Granted, r.held, r}, lastOther(reigns, r), r.evidence)
		if n := len(r.writes); n > 0 {
			for _, w := range (History{r.writes[0], r.writes[n-1]}) {
				add(operation{Write, true, r}, w.At, w.At)
			}
		}
		if r.held && r.proven {
			add(operation{Stopped, true, r}, r.over, r.over)
		}
	}
	return ops
}

// lastOther is when another grant was last seen to write, before anything was seen of this one.
func lastOther(reigns []*reign, r *reign) (at time.Duration) {
	for _, other := range reigns {
		for _, w := range other.writes {
			if other != r && w.At < r.evidence {
				at = max(at, w.At)
			}
		}
	}
	return at
}

var model = porcupine.Model{
	Init: func() any { return lock{} },
	Step: func(state, input, _ any) (bool, any) {
		l, o := state.(lock), input.(operation)
		switch o.kind {
		case Granted:
			return !l.held && o.r.token > l.token, lock{o.r.token, o.held}
		case Write:
			return l == lock{o.r.token, true}, l
		default:
			return l == lock{o.r.token, true}, lock{l.token, false}
		}
	},
}
