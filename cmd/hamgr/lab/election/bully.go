package election

import (
	"maps"
	"slices"
)

// bully is an election under way.
type bully struct {
	Group
	trace    Trace
	queue    []Message // on their way, oldest first
	asked    []int     // who began an election, in this order
	answered map[int]bool
}

// Bully runs the bully algorithm, begun by one node: it sends ELECTION to all with a larger ID. Who receives
// one answers and does the same. Who gets no answer is the largest that it can hear, and tells all smaller ones
// that it leads. Messages arrive in the order in which they were sent.
func Bully(g Group, starter int) Trace {
	b := &bully{Group: g, trace: Trace{Leads: maps.Clone(g.Leads)}, answered: map[int]bool{}}
	if b.trace.Leads == nil {
		b.trace.Leads = map[int]int{}
	}
	b.begin(starter)
	b.deliver()
	for _, id := range b.asked {
		if !b.answered[id] {
			b.lead(id)
		}
	}
	b.deliver()
	return b.trace
}

// begin has a node ask all larger ones, once.
func (b *bully) begin(id int) {
	if slices.Contains(b.asked, id) {
		return
	}
	b.asked = append(b.asked, id)
	for _, other := range slices.Sorted(slices.Values(b.IDs)) {
		if other > id {
			b.send(Message{From: id, To: other, Kind: Election})
		}
	}
}

// lead has a node tell all smaller ones.
func (b *bully) lead(id int) {
	b.trace.Leads[id] = id
	for _, other := range slices.Sorted(slices.Values(b.IDs)) {
		if other < id {
			b.send(Message{From: id, To: other, Kind: Coordinator})
		}
	}
}

func (b *bully) send(m Message) {
	m.Lost = !b.hears(m.From, m.To)
	b.queue = append(b.queue, m)
}

// deliver hands over what is on its way, and what that causes, until nothing is.
func (b *bully) deliver() {
	for len(b.queue) > 0 {
		m := b.queue[0]
		b.queue = b.queue[1:]
		b.trace.Messages = append(b.trace.Messages, m)
		if m.Lost {
			continue
		}
		switch m.Kind {
		case Election:
			b.send(Message{From: m.To, To: m.From, Kind: Answer})
			b.begin(m.To)
		case Answer:
			b.answered[m.To] = true
		case Coordinator:
			b.trace.Leads[m.To] = m.From
		}
	}
}
