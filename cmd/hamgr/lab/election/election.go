// Package election has the two elections of the textbooks, bully (Garcia-Molina, 1982) and ring (as in Tanenbaum and
// van Steen, Distributed Systems), as functions over plain data. They are here to be looked at: hamgr
// elects its coordinator by a majority (cluster/consensus), because both of these give each side of a cut network
// a leader of its own.
package election

import "slices"

// Kind is what a message says.
type Kind string

// The kinds of messages.
const (
	Election    Kind = "ELECTION"    // who is there?
	Answer      Kind = "ANSWER"      // I am, and I am larger: leave it to me
	Coordinator Kind = "COORDINATOR" // I lead; or, in a ring: this one leads
)

// Message is one message that was sent.
type Message struct {
	From, To int
	Kind     Kind
	// IDs is what a ring's ELECTION collected so far, or whom its COORDINATOR names.
	IDs []int
	// Lost: nobody got it, because its receiver is down or on the other side of a cut.
	Lost bool
}

// Group is the nodes before an election.
type Group struct {
	IDs   []int       // all, in the order of the ring
	Down  []int       // those that do not run
	Sides [][]int     // of a cut network; none: all hear each other
	Leads map[int]int // whom each node takes for the leader
}

// Up lists the nodes that run.
func (g Group) Up() []int {
	return slices.DeleteFunc(slices.Clone(g.IDs), func(id int) bool { return slices.Contains(g.Down, id) })
}

// hears tells whether a message from one node gets to another.
func (g Group) hears(from, to int) bool {
	if slices.Contains(g.Down, from) || slices.Contains(g.Down, to) {
		return false
	}
	for _, side := range g.Sides {
		if slices.Contains(side, from) {
			return slices.Contains(side, to)
		}
	}
	return true
}

// Trace is what happened.
type Trace struct {
	Messages []Message
	Leads    map[int]int // whom each node takes for the leader now
}

// Leaders lists the nodes among these that take themselves for the leader.
func (t Trace) Leaders(among []int) []int {
	var leaders []int
	for _, id := range among {
		if t.Leads[id] == id {
			leaders = append(leaders, id)
		}
	}
	return leaders
}

// Count gives how many messages of a kind arrived, and how many were lost.
func (t Trace) Count(k Kind) (arrived, lost int) {
	for _, m := range t.Messages {
		switch {
		case m.Kind != k:
		case m.Lost:
			lost++
		default:
			arrived++
		}
	}
	return arrived, lost
}
