package scheduler

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/hamgr/hamgr/cluster/state"
)

// Step is one thing that is going to happen to a group.
type Step struct {
	Group  string
	Node   string
	Stop   bool // else it is started
	Reason string
}

// Forecast is what would come of a command.
type Forecast struct {
	// Changed is false if all is so already.
	Changed bool
	Steps   []Step
	// Nodes tells where each group of the steps, and the command's own, would then be; empty for nowhere.
	Nodes map[string]string
	// Waits says of those that would be nowhere, why.
	Waits map[string]string
}

// ErrImpossible: an operator's wish cannot be fulfilled at present; nothing was done.
var ErrImpossible = errors.New("not possible now")

// Foresee plays a command, and what the scheduler makes of it, to the end, as if every node did at once what it
// is told and nothing failed meanwhile. An error of the state is returned as it is; a move that would not come about is
// ErrImpossible.
func Foresee(s *state.State, v View, cmd state.Command) (Forecast, error) {
	p := &play{s: s, v: v, f: Forecast{Nodes: map[string]string{}, Waits: map[string]string{}}}
	if err := p.apply(cmd); err != nil {
		return Forecast{}, err
	}
	p.f.Changed = !same(s, p.s)
	for _, group := range concerned(cmd) {
		p.f.Nodes[group] = ""
	}
	for range 4*len(s.Groups) + 16 {
		if !p.turn() {
			break
		}
	}
	waiting := Waiting(p.s, v)
	for group := range p.f.Nodes {
		if g := p.s.Groups[group]; g != nil && g.Grant != nil {
			p.f.Nodes[group] = g.Grant.Node
		} else {
			p.f.Waits[group] = waiting[group]
		}
	}
	return p.f, p.fulfilled(cmd.Move)
}

// same compares two states but for the passing of time.
func same(a, b *state.State) bool {
	x, y := *a, *b
	x.Applied, x.Clock = y.Applied, y.Clock
	return reflect.DeepEqual(x, y)
}

func concerned(cmd state.Command) []string {
	switch {
	case cmd.Enable != nil:
		return []string{cmd.Enable.Group}
	case cmd.Move != nil:
		return []string{cmd.Move.Group}
	case cmd.Restart != nil:
		return []string{cmd.Restart.Group}
	case cmd.Clear != nil:
		return []string{cmd.Clear.Group}
	case cmd.Maintain != nil && cmd.Maintain.Group != "":
		return []string{cmd.Maintain.Group}
	}
	return nil
}

// play is a cluster in which everything goes well.
type play struct {
	s *state.State
	v View
	f Forecast
}

func (p *play) apply(cmd state.Command) error {
	next, res := state.Apply(p.s, p.s.Applied+1, cmd)
	if res.Err == nil {
		p.s = next
	}
	return res.Err
}

// turn lets the nodes do what they were told, and the scheduler plan; false if nothing happened.
func (p *play) turn() bool {
	happened := false
	for _, name := range p.s.GroupNames() {
		g := p.s.Groups[name]
		if g.Grant == nil || !p.v.Nodes[g.Grant.Node].Reachable {
			continue
		}
		report := &state.Report{Group: name, Token: g.Grant.Token, Node: g.Grant.Node, Boot: g.Grant.Boot, Session: p.s.Nodes[g.Grant.Node].Session}
		switch g.Grant.Phase {
		case state.Granted:
			happened = p.apply(state.Command{Started: report}) == nil || happened
		case state.Stopping:
			if !slices.ContainsFunc(p.f.Steps, func(st Step) bool { return st.Group == name && st.Stop }) {
				p.step(Step{name, g.Grant.Node, true, g.Grant.StopReason})
			}
			happened = p.apply(state.Command{Stopped: report}) == nil || happened
		}
	}
	for _, a := range Plan(p.s, p.v) {
		switch c := a.Commit; {
		case c == nil || c.Stop == nil && c.Grant == nil:
			continue
		case p.apply(*c) != nil:
			continue
		case c.Stop != nil:
			p.step(Step{c.Stop.Group, p.s.Groups[c.Stop.Group].Grant.Node, true, a.Reason})
		default:
			p.step(Step{c.Grant.Group, c.Grant.Node, false, a.Reason})
		}
		happened = true
	}
	return happened
}

func (p *play) step(s Step) {
	p.f.Steps = append(p.f.Steps, s)
	p.f.Nodes[s.Group] = ""
}

// fulfilled says why a wish would not come true.
func (p *play) fulfilled(m *state.MoveGroup) error {
	if m == nil || m.To == "" && m.From == "" {
		return nil
	}
	at := p.f.Nodes[m.Group]
	g := p.s.Groups[m.Group]
	if m.To != "" && at == m.To || m.To == "" && at != m.From {
		return nil
	}
	b := look(p.s, p.v)
	node := m.To
	if node == "" {
		why := ""
		for _, n := range b.members {
			if n != m.From {
				why += fmt.Sprintf("; %s %s", n, b.hindrance(g, n))
			}
		}
		return fmt.Errorf("no node but %s can take %s%s: %w", m.From, m.Group, why, ErrImpossible)
	}
	return fmt.Errorf("%s cannot take %s: it %s: %w", node, m.Group, b.hindrance(g, node), ErrImpossible)
}

// hindrance says what keeps a group from being moved to a node.
func (b *board) hindrance(g *state.Group, node string) string {
	if o := b.refusal(g, node); o != fits {
		return b.words(g, node, o)
	}
	if why := b.s.GroupMaintained(g); why != "" {
		return "has to wait: " + why
	}
	for _, name := range b.set(g.Name) {
		other := b.s.Groups[name]
		if name != g.Name && slices.Contains(g.With, name) {
			if o := b.refusal(other, node); o != fits {
				return fmt.Sprintf("cannot take %s, with which it runs: %s", name, b.words(other, node, o))
			}
		}
	}
	if why := b.kept(g); why != "" {
		return "has to wait: " + why
	}
	return "is not where another wish, or a group that it runs with, wants it"
}
