package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

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
	// Waits says of those that would be nowhere, why; and of those that would be somewhere and are to stop, for what.
	Waits map[string]string
}

// ErrImpossible: an operator's wish cannot be fulfilled at present; nothing was done.
var ErrImpossible = errors.New("not possible now")

// Foresee plays a command, and what the scheduler makes of it, to the end, as if every node did at once what it
// is told and nothing failed meanwhile. An error of the state is returned as it is; a move that would not come about is
// ErrImpossible.
func Foresee(s *state.State, v View, cmd state.Command) (Forecast, error) {
	cmd.Elapsed, v.Since = v.Since, 0 // as it would be committed
	next, res := state.Apply(s, s.Applied+1, cmd)
	if res.Err != nil {
		return Forecast{}, res.Err
	}
	p := &play{s: next, batch: state.NewBatch(next), v: v, stopped: map[uint64]bool{}, f: Forecast{
		Changed: !same(s, next), Nodes: map[string]string{}, Waits: map[string]string{},
	}}
	for _, group := range concerned(cmd) {
		p.f.Nodes[group] = ""
	}
	for range 4*len(s.Groups) + 16 {
		if !p.turn() {
			break
		}
	}
	b := look(p.s, p.v)
	waits := Waiting(p.s, p.v)
	if late := p.late(waits); len(late) > 0 {
		before := Waiting(s, v)
		for _, group := range late {
			if before[group] == "" { // the command is the cause
				p.f.Nodes[group] = ""
			}
		}
	}
	for group := range p.f.Nodes {
		g := p.s.Groups[group]
		if g == nil {
			continue
		}
		if why := waits[group]; why != "" {
			p.f.Waits[group] = why
		}
		if g.Grant != nil {
			p.f.Nodes[group] = g.Grant.Node
		}
	}
	if r := cmd.Restart; r != nil && p.f.Nodes[r.Group] != "" && p.f.Waits[r.Group] != "" {
		return p.f, fmt.Errorf("%s has to wait for what runs after it: %s: %w", r.Group, strings.Join(b.followers(r.Group), ", "), ErrImpossible)
	}
	return p.f, p.fulfilled(b, cmd.Move)
}

// same compares a state with the one that came of it by a command, but for the passing of time. What the command
// did not touch, they share.
func same(before, after *state.State) bool {
	x, y := *before, *after
	x.Applied, x.Clock = y.Applied, y.Clock
	nodes := maps.EqualFunc(x.Nodes, y.Nodes, alike[state.Node])
	groups := maps.EqualFunc(x.Groups, y.Groups, alike[state.Group])
	x.Nodes, x.Groups = y.Nodes, y.Groups
	return nodes && groups && reflect.DeepEqual(x, y)
}

func alike[T any](a, b *T) bool { return a == b || reflect.DeepEqual(a, b) }

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
	s       *state.State
	batch   state.Batch // of what comes after s
	v       View
	f       Forecast
	stopped map[uint64]bool // tokens whose end is a step already
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
			happened = p.batch.Apply(state.Command{Started: report}).Err == nil || happened
		case state.Stopping:
			p.stop(name, g.Grant, g.Grant.StopReason)
			happened = p.batch.Apply(state.Command{Stopped: report}).Err == nil || happened
		}
	}
	p.s = p.batch.State()
	for _, a := range Plan(p.s, p.v) {
		switch c := a.Commit; {
		case c == nil || c.Stop == nil && c.Grant == nil && c.Aim == nil:
			continue
		case p.batch.Apply(*c).Err != nil:
			continue
		case c.Stop != nil:
			p.stop(c.Stop.Group, p.s.Groups[c.Stop.Group].Grant, a.Reason)
		case c.Aim != nil:
		default:
			p.step(Step{c.Grant.Group, c.Grant.Node, false, a.Reason})
		}
		happened = true
	}
	p.s = p.batch.State()
	return happened
}

// late gives the groups that are held, and wait for their stop.
func (p *play) late(waits map[string]string) []string {
	var all []string
	for name := range waits {
		if p.s.Groups[name].Grant != nil {
			all = append(all, name)
		}
	}
	return all
}

func (p *play) stop(group string, gr *state.Grant, reason string) {
	if !p.stopped[gr.Token] {
		p.stopped[gr.Token] = true
		p.step(Step{group, gr.Node, true, reason})
	}
}

func (p *play) step(s Step) {
	p.f.Steps = append(p.f.Steps, s)
	p.f.Nodes[s.Group] = ""
}

// fulfilled says why a wish would not come true.
func (p *play) fulfilled(b *board, m *state.MoveGroup) error {
	if m == nil || m.To == "" && m.From == "" {
		return nil
	}
	at := p.f.Nodes[m.Group]
	g := p.s.Groups[m.Group]
	switch {
	case at != "" && at == m.To || at != "" && m.To == "" && at != m.From:
		return nil
	case g == nil || g.Removed:
		return fmt.Errorf("%s is no longer configured: %w", m.Group, ErrImpossible)
	case m.To != "":
		return fmt.Errorf("%s cannot take %s: it %s: %w", m.To, m.Group, b.hindrance(g, b.member[m.To]), ErrImpossible)
	}
	var why []string
	for _, m2 := range b.members {
		if m2.Name != m.From && len(why) < mostReasons {
			why = append(why, m2.Name+" "+b.hindrance(g, m2))
		}
	}
	return fmt.Errorf("no node but %s can take %s: %s: %w", m.From, m.Group, strings.Join(why, "; "), ErrImpossible)
}

// hindrance says what keeps a group from being moved to a node.
func (b *board) hindrance(g *state.Group, m *member) string {
	if o := b.refusal(g, m); o != fits {
		return b.words(g, m, o)
	}
	if why := b.s.GroupMaintained(g); why != "" {
		return "has to wait: " + why
	}
	if first := b.followers(g.Name); g.Grant != nil && g.Grant.Node != m.Name && first != nil {
		return "has to wait for what runs after it: " + strings.Join(first, ", ")
	}
	for _, name := range b.set(g.Name) {
		other := b.s.Groups[name]
		if name == g.Name || !slices.Contains(g.With, name) {
			continue
		}
		if o := b.refusal(other, m); o != fits {
			return fmt.Sprintf("cannot take %s, with which it runs: %s", name, b.words(other, m, o))
		}
	}
	if g.Grant == nil {
		if why := b.idle(g); why != "" {
			return "has to wait: " + why
		}
	} else if g.Failback.Contains(b.v.Minute) && rank(g, g.Grant.Node) < rank(g, m.Name) {
		return fmt.Sprintf("would lose it to %s again at once, by failback: move it for a time", g.Grant.Node)
	}
	return "is not where another wish, or a group that it runs with, wants it"
}
