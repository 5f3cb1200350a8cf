package node

import (
	"maps"
	"math"
	"slices"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/scheduler"
	"github.com/hamgr/hamgr/cluster/state"
)

// Expected is what comes of a group's rules, all else being well: the scheduler's own answer, played through.
type Expected struct {
	Group string
	Turn  int    // from 1; a group starts after all of an earlier turn; 0 if it runs nowhere
	Node  string // with all members there; empty for nowhere
	Waits string // why nowhere
	With  []string
	// Astray is the node that it prefers most, if that is another one.
	Astray string
	// Then is where it goes if its node is lost; empty for nowhere, and then ThenWaits says why.
	Then, ThenWaits string
}

// Stranded is a group that does not run any more once one node, which need not be its own, is lost.
type Stranded struct {
	Lost, Group, Why string
}

// last puts what runs nowhere after all that does.
func last(turn int) int {
	if turn == 0 {
		return math.MaxInt32
	}
	return turn
}

// mostPlays bounds how many groups are placed, over all losses, for one answer.
const mostPlays = 200_000

// Expect plays the start of a cluster with all its members, and then the loss of each of them. The groups come in the order of
// their start.
func Expect(c *config.Config) ([]Expected, []Stranded) {
	all := newTrial(c)
	all.settle()
	nowhere := scheduler.Waiting(all.s, all.v)
	var expected []Expected
	for _, g := range c.Groups {
		e := Expected{Group: g.Name, Turn: all.turn[g.Name], Node: all.holder(g.Name), With: g.With}
		if e.Node == "" {
			e.Waits = nowhere[g.Name]
		} else if len(g.Prefer) > 0 && g.Prefer[0] != e.Node {
			e.Astray = g.Prefer[0]
		}
		expected = append(expected, e)
	}
	slices.SortStableFunc(expected, func(a, b Expected) int { return last(a.Turn) - last(b.Turn) })
	members := c.Members()
	if len(members) < 2 || len(members)*len(c.Groups) > mostPlays {
		return expected, nil
	}
	var stranded []Stranded
	for _, lost := range members {
		after := all.without(lost)
		why := scheduler.Waiting(after.s, after.v)
		for i := range expected {
			e := &expected[i]
			now := after.holder(e.Group)
			if e.Node != "" && now == "" {
				stranded = append(stranded, Stranded{lost, e.Group, why[e.Group]})
			}
			if e.Node == lost {
				e.Then, e.ThenWaits = now, why[e.Group]
			}
		}
	}
	return expected, stranded
}

// trial is a cluster that exists only in thought. Its nodes do at once what they are told.
type trial struct {
	s    *state.State
	v    scheduler.View
	turn map[string]int
}

func newTrial(c *config.Config) *trial {
	seed := seed(c)
	t := &trial{s: &state.State{}, v: scheduler.View{Nodes: map[string]scheduler.Liveness{}, Settled: true, Minute: -1}, turn: map[string]int{}}
	t.apply(state.Command{Configure: &seed})
	for _, name := range c.Members() {
		t.join(name, "1")
	}
	return t
}

func (t *trial) apply(cmd state.Command) {
	if next, res := state.Apply(t.s, t.s.Applied+1, cmd); res.Err == nil {
		t.s = next
	}
}

func (t *trial) join(node, boot string) {
	t.apply(state.Command{Join: &state.Join{Node: node, Boot: boot, Session: boot}})
	t.v.Nodes[node] = scheduler.Liveness{Reachable: true, Boot: boot}
}

// settle lets things take their course.
func (t *trial) settle() {
	for turn := 1; turn <= 2*len(t.s.Groups)+2; turn++ {
		next := state.NewBatch(t.s)
		happened := false
		for _, a := range scheduler.Plan(t.s, t.v) {
			if a.Commit == nil || a.Commit.Grant == nil && a.Commit.Stop == nil || next.Apply(*a.Commit).Err != nil {
				continue
			}
			happened = true
			if g := a.Commit.Grant; g != nil && t.turn[g.Group] == 0 {
				t.turn[g.Group] = turn
			}
		}
		if !happened {
			return
		}
		t.s = next.State()
		t.report()
	}
}

// report has every node say that it did what it was told.
func (t *trial) report() {
	next := state.NewBatch(t.s)
	for name, g := range t.s.Groups {
		if g.Grant == nil {
			continue
		}
		done := &state.Report{Group: name, Token: g.Grant.Token, Node: g.Grant.Node, Boot: g.Grant.Boot, Session: g.Grant.Boot}
		switch g.Grant.Phase {
		case state.Granted:
			next.Apply(state.Command{Started: done})
		case state.Stopping:
			next.Apply(state.Command{Stopped: done})
		}
	}
	t.s = next.State()
}

// without gives the trial in which a node was lost, and that was proven.
func (t *trial) without(lost string) *trial {
	after := &trial{s: t.s, v: t.v, turn: map[string]int{}}
	after.v.Nodes = maps.Clone(t.v.Nodes)
	after.join(lost, "2") // what it held is proven over; and then it is silent
	after.v.Nodes[lost] = scheduler.Liveness{}
	after.settle()
	return after
}

func (t *trial) holder(group string) string {
	if g := t.s.Groups[group]; g != nil && g.Grant != nil {
		return g.Grant.Node
	}
	return ""
}
