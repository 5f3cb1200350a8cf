package election

import (
	"slices"
	"testing"
)

func upTo(n int) []int {
	var ids []int
	for id := 1; id <= n; id++ {
		ids = append(ids, id)
	}
	return ids
}

// TestBullyOfTheTextbook: 5 is down and 2 begins: it asks 3 and 4 (and 5 in vain), and 4 tells the three others.
func TestBullyOfTheTextbook(t *testing.T) {
	trace := Bully(Group{IDs: upTo(5), Down: []int{5}}, 2)
	asked := 0
	for _, m := range trace.Messages {
		if m.From == 2 && m.Kind == Election && !m.Lost {
			asked++
		}
	}
	if told, lost := trace.Count(Coordinator); asked != 2 || told != 3 || lost != 0 {
		t.Errorf("asked %d, told %d, lost %d: %v", asked, told, lost, trace.Messages)
	}
	for _, id := range upTo(4) {
		if trace.Leads[id] != 4 {
			t.Errorf("%d follows %d", id, trace.Leads[id])
		}
	}
}

// TestLargestLeads: whoever begins and whoever is down, each side of a cut ends with its largest node as the only leader.
func TestLargestLeads(t *testing.T) {
	for name, elect := range map[string]func(Group, int) Trace{"bully": Bully, "ring": Ring} {
		for n := 1; n <= 7; n++ {
			for down := range 1 << n {
				for cut := range n {
					g := Group{IDs: upTo(n), Sides: [][]int{upTo(n)[:cut], upTo(n)[cut:]}}
					for _, id := range g.IDs {
						if down&(1<<(id-1)) != 0 {
							g.Down = append(g.Down, id)
						}
					}
					for _, side := range g.Sides {
						up := slices.DeleteFunc(slices.Clone(side), func(id int) bool { return !slices.Contains(g.Up(), id) })
						for _, starter := range up {
							trace := elect(g, starter)
							if leaders := trace.Leaders(up); !slices.Equal(leaders, up[len(up)-1:]) {
								t.Fatalf("%s, %+v, begun by %d: %v lead", name, g, starter, leaders)
							}
							for _, id := range up {
								if trace.Leads[id] != up[len(up)-1] {
									t.Fatalf("%s, %+v, begun by %d: %d follows %d", name, g, starter, id, trace.Leads[id])
								}
							}
						}
					}
				}
			}
		}
	}
}

// TestMessages: a ring takes two rounds, the bully's worst case grows with the square.
func TestMessages(t *testing.T) {
	for _, n := range []int{2, 5, 10, 100} {
		g := Group{IDs: upTo(n)}
		if got := len(Ring(g, 1).Messages); got != 2*n {
			t.Errorf("ring of %d: %d messages", n, got)
		}
		pairs := n * (n - 1) / 2 // each pair: one ELECTION, one ANSWER
		if got := len(Bully(g, 1).Messages); got != 2*pairs+n-1 {
			t.Errorf("bully of %d: %d messages, want %d", n, got, 2*pairs+n-1)
		}
	}
}

// TestInputIsLeftAlone: they are functions: the same group gives the same trace again.
func TestInputIsLeftAlone(t *testing.T) {
	g := Group{IDs: upTo(5), Leads: map[int]int{1: 5, 2: 5}}
	for name, elect := range map[string]func(Group, int) Trace{"bully": Bully, "ring": Ring} {
		a, b := elect(g, 1), elect(g, 1)
		if len(a.Messages) != len(b.Messages) || g.Leads[1] != 5 || len(g.Leads) != 2 {
			t.Errorf("%s: %v", name, g)
		}
	}
}
