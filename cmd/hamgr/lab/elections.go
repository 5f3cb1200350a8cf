package lab

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/hamgr/hamgr/cmd/hamgr/lab/election"
)

// five is the group of the textbooks: nodes 1 to 5, all of which follow 5.
func five() election.Group {
	g := election.Group{Leads: map[int]int{}}
	for id := 1; id <= 5; id++ {
		g.IDs = append(g.IDs, id)
		g.Leads[id] = 5
	}
	return g
}

// halves is the cut that quorum has too: two of five on one side.
var halves = [][]int{{1, 2}, {3, 4, 5}}

func bullyStory(_ context.Context, partition bool) ([]Scene, error) {
	if partition {
		return []Scene{cutScene(election.Bully)}, nil
	}
	g := five()
	g.Down = []int{5}
	first := Scene{Title: "Nodes 1 to 5: 5, which led, is down, and 2 notices."}
	trace := election.Bully(g, 2)
	first.elect(trace, g.Up())
	asked := 0
	for _, m := range trace.Messages {
		if m.From == 2 && m.Kind == election.Election && !m.Lost {
			asked++
		}
	}
	told, _ := trace.Count(election.Coordinator)
	answers, _ := trace.Count(election.Answer)
	elections, lost := trace.Count(election.Election)
	first.Messages = asked + told
	first.Outcome = fmt.Sprintf("%s: 2 asked %d and the leader told %d: %d messages. With the answers (%d), what 3 and 4 asked in turn (%d) and the questions to the dead (%d): %d.",
		leads(first.Leaders), asked, told, first.Messages, answers, elections-asked, lost, len(trace.Messages))

	g.Down, g.Leads = nil, trace.Leads
	back := Scene{Title: "5 returns."}
	trace = election.Bully(g, 5)
	back.elect(trace, g.Up())
	back.Messages = len(trace.Messages)
	back.Outcome = fmt.Sprintf("%s after %d messages: nobody is larger, so it asks nobody, and takes over although 4 did well: the bully.", leads(back.Leaders), back.Messages)
	return []Scene{first, back}, nil
}

func ringStory(_ context.Context, partition bool) ([]Scene, error) {
	if partition {
		return []Scene{cutScene(election.Ring)}, nil
	}
	g := five()
	g.Down = []int{5}
	round := Scene{Title: "Nodes 1 to 5 in a ring: 5, which led, is down, and 2 notices."}
	trace := election.Ring(g, 2)
	round.elect(trace, g.Up())
	round.Messages = len(trace.Messages)
	_, lost := trace.Count(election.Election)
	round.Outcome = fmt.Sprintf("%s: two rounds of %d nodes, and %d try at the dead one: %d messages.", leads(round.Leaders), len(g.Up()), lost, round.Messages)

	sizes := Scene{Title: "How it grows: all run, and the smallest begins."}
	for _, n := range []int{5, 10, 100} {
		all := election.Group{}
		for id := 1; id <= n; id++ {
			all.IDs = append(all.IDs, id)
		}
		sizes.step(strconv.Itoa(n)+" nodes", "messages", "ring %d, bully %d", len(election.Ring(all, 1).Messages), len(election.Bully(all, 1).Messages))
	}
	sizes.Outcome = "A ring needs 2N messages, O(N); the bully's worst case is O(N²)."
	return []Scene{round, sizes}, nil
}

// cutScene is either algorithm in a network that falls in two: the side that lost its leader elects another one.
func cutScene(elect func(election.Group, int) election.Trace) Scene {
	g := five()
	g.Sides = halves
	s := Scene{Title: "Nodes 1 to 5 follow 5. The network is cut: 1 2 | 3 4 5. On its side, 1 hears nothing of 5."}
	trace := elect(g, 1)
	s.elect(trace, g.Up())
	s.Messages = len(trace.Messages)
	s.Outcome = fmt.Sprintf("%d leaders at once: %s. Both went by the book, and neither can find out: the other side looks dead from here.", len(s.Leaders), ids(s.Leaders, " and "))
	return s
}

// elect tells an election.
func (s *Scene) elect(t election.Trace, up []int) {
	for _, m := range t.Messages {
		step := Step{Who: strconv.Itoa(m.From), To: strconv.Itoa(m.To), What: string(m.Kind), Lost: m.Lost}
		switch {
		case len(m.IDs) > 0 && m.Kind == election.Coordinator:
			step.Text = ids(m.IDs, " ") + " leads"
		case len(m.IDs) > 0:
			step.Text = "seen so far: " + ids(m.IDs, " ")
		}
		if m.Lost {
			step.Text = strings.TrimPrefix(step.Text+"; no answer", "; ")
		}
		s.Steps = append(s.Steps, step)
	}
	s.Leaders = t.Leaders(up)
}

func leads(leaders []int) string { return ids(leaders, " and ") + " leads" }

func ids(all []int, between string) string {
	var words []string
	for _, id := range all {
		words = append(words, strconv.Itoa(id))
	}
	return strings.Join(words, between)
}
