package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// story is one cluster's life, as data: it can be written down, told again, and told shorter.
type story struct {
	Seed    uint64        `json:"seed"` // of the network
	Members int           `json:"members"`
	Witness bool          `json:"witness"`  // and one that only votes
	TwoNode bool          `json:"two_node"` // two members alone
	Pace    time.Duration `json:"pace"`     // the detection time
	Outlets bool          `json:"outlets"`  // a second fencing level: the outlets of a PDU
	Dogs    string        `json:"dogs"`     // a last one: watchdogs, "tested" or "untested"; empty for none
	Old     bool          `json:"old"`      // all daemons begin with an older version of the log
	Freezes bool          `json:"freezes"`  // without a quorum nothing is stopped
	Brake   bool          `json:"brake"`    // the storm brake is on
	Groups  int           `json:"groups"`
	Events  []event       `json:"events"`
}

// event is one thing that happens. A and B name nodes and groups: they count over those that there are when it does. At puts another
// node in place of A.
type event struct {
	After time.Duration `json:"after"` // the event before
	Do    string        `json:"do"`
	At    string        `json:"at,omitempty"` // "holder" of a group, or "coordinator"
	A     int           `json:"a"`
	B     int           `json:"b"`
	For   time.Duration `json:"for"` // how long it lasts, or until its second part
	X     float64       `json:"x"`   // how much of it, or which way, 0 to 1
	Seed  uint64        `json:"seed"`
}

func (e event) String() string {
	return fmt.Sprintf("+%s %s %s %d %d for %s, %.2f", e.After.Round(time.Millisecond), e.Do, e.At, e.A, e.B, e.For.Round(time.Millisecond), e.X)
}

// shapes are the kinds of clusters that stories are told of.
const shapes = 6

// drawStory draws a cluster of a shape and what becomes of it.
func drawStory(seed uint64, shape, events int) story {
	rng := rand.New(rand.NewPCG(seed, 7))
	s := story{Seed: seed, Members: 3, Pace: time.Second, Groups: 2 + rng.IntN(2), Freezes: rng.IntN(6) == 0, Brake: rng.IntN(3) == 0}
	if rng.IntN(8) == 0 {
		s.Pace = 3 * time.Second
	}
	switch shape % shapes {
	case 0:
		s.Outlets = rng.IntN(2) == 0
	case 1:
		s.Members, s.TwoNode = 2, true
		s.Outlets = rng.IntN(2) == 0
	case 2:
		s.Members, s.Witness = 2+2*rng.IntN(2), true
		s.Outlets = true
	case 3:
		s.Members = 4 + rng.IntN(2)
		s.Dogs, s.Outlets = "tested", rng.IntN(3) == 0
		if rng.IntN(4) == 0 {
			s.Dogs = "untested"
		}
		s.Freezes = false // a watchdog would not be armed
	case 4:
		s.Old = true
		s.Members += 2 * rng.IntN(2)
		s.Outlets = rng.IntN(2) == 0
	case 5:
		s.Members = 5 + rng.IntN(5)
		s.Outlets = rng.IntN(2) == 0
	}
	names := drawNames(s.Dogs == "")
	for range events {
		s.Events = append(s.Events, drawEvent(rng, names[rng.IntN(len(names))]))
	}
	if s.Dogs != "" { // a watchdog takes more than a minute, and its node must be lost for that long
		for i := range s.Events {
			s.Events[i].After *= 10
			if s.Events[i].At == "coordinator" { // a new one measures the silence anew
				s.Events[i].At = ""
			}
		}
		lost := &s.Events[rng.IntN((len(s.Events)+3)/4)]
		lost.Do, lost.At, lost.X, lost.For, s.Brake = "dead, and no device answers", "holder", 1, time.Minute, false
	}
	if s.Old { // node by node
		for range s.Members + 2 {
			s.Events[rng.IntN(len(s.Events))].Do = "upgrade"
		}
	}
	return s
}

func drawEvent(rng *rand.Rand, do string) event {
	return event{
		// Half of them come at once, so that several are under way together; the others leave time to recover.
		After: drawTime(rng, 10*time.Millisecond, []time.Duration{300 * time.Millisecond, 5 * time.Second}[rng.IntN(2)]),
		Do:    do, At: []string{"", "", "holder", "holder", "coordinator"}[rng.IntN(5)],
		A: rng.IntN(720720), B: rng.IntN(720720), // divisible by 1 to 16
		For: drawTime(rng, 50*time.Millisecond, time.Minute), X: rng.Float64(), Seed: rng.Uint64(),
	}
}

// drawTime draws from a range in which short times are as frequent as long ones.
func drawTime(rng *rand.Rand, least, most time.Duration) time.Duration {
	steps := 1
	for d := least; d < most; d *= 2 {
		steps++
	}
	d := least << rng.IntN(steps)
	return min(d+time.Duration(rng.Int64N(int64(d))), most)
}

// drawNames are the names of all faults, each as often as its weight says; with or without those that begin by healing all.
func drawNames(healing bool) (names []string) {
	healers := []string{"calm"}
	for _, f := range scenes() {
		healers = append(healers, f.name)
	}
	for _, f := range tortures() {
		if !healing && slices.Contains(healers, f.name) {
			f.weight = 0
		}
		names = append(names, slices.Repeat([]string{f.name}, f.weight)...)
	}
	return names
}

// shrink looks for a shorter story that still fails, until the time is over: without one stretch of events after the other, long ones
// first; then without the features of the cluster.
func (s story) shrink(until time.Time, fails func(story) bool) story {
	for n := (len(s.Events) + 1) / 2; n > 0; n /= 2 {
		for from := 0; from < len(s.Events) && time.Now().Before(until); {
			shorter := s
			shorter.Events = without(s.Events, from, n)
			if fails(shorter) {
				s = shorter
			} else {
				from += n
			}
		}
	}
	for _, simpler := range []func(*story){
		func(s *story) { s.Old = false }, func(s *story) { s.Dogs = "" }, func(s *story) { s.Outlets = false },
		func(s *story) { s.Freezes, s.Brake = false, false }, func(s *story) { s.Members, s.Witness = min(s.Members, 3), false }, func(s *story) { s.Groups = 1 },
	} {
		changed := s
		if simpler(&changed); fmt.Sprint(changed) != fmt.Sprint(s) && time.Now().Before(until) && fails(changed) {
			s = changed
		}
	}
	return s
}

// without leaves a stretch of events out. What comes after it comes as late as it did.
func without(events []event, from, n int) []event {
	to := min(from+n, len(events))
	rest := slices.Clone(events[:from])
	var gap time.Duration
	for _, e := range events[from:to] {
		gap += e.After
	}
	for i, e := range events[to:] {
		if i == 0 {
			e.After += gap
		}
		rest = append(rest, e)
	}
	return rest
}

func (s story) json() []byte {
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		panic(err) // plain data
	}
	return b
}
