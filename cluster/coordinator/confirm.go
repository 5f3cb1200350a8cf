package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// ErrAlive: something says that the node is not down; nothing was done.
var ErrAlive = errors.New("it is not down")

// aliveTimes is for how many detection times a node must have been silent before an operator's
// word that it is down is taken.
const aliveTimes = 2

// Confirm takes an operator's word that a node is down, which voids all that the node holds. Unless it is
// forced, it is refused while any node hears it, or any of its fence devices says that it has power.
// What was seen is recorded with the word either way.
func (c *Coordinator) Confirm(ctx context.Context, word state.Confirm) (state.Operation, error) {
	if !c.cfg.Replicated.IsCoordinator() {
		return state.Operation{}, ErrNotCoordinator
	}
	n := c.cfg.State().Nodes[word.Node]
	switch {
	case n == nil:
		return state.Operation{}, fmt.Errorf("confirm %s: %w", word.Node, state.ErrUnknown)
	case word.Node == c.cfg.Self:
		return state.Operation{}, fmt.Errorf("confirm %s: %w: it is the coordinator", word.Node, ErrAlive)
	}
	word.Boot = n.Boot
	signs, silence := c.signsOfLife(ctx, word.Node)
	if err := ctx.Err(); err != nil {
		return state.Operation{}, err
	}
	if len(signs) > 0 && !word.Force {
		return state.Operation{}, fmt.Errorf("confirm %s: %w: %s", word.Node, ErrAlive, strings.Join(signs, "; "))
	}
	word.Evidence = append(signs, silence...)
	cmd := state.Command{Confirm: &word}
	res, err := c.commit(ctx, cmd)
	if err != nil {
		return state.Operation{}, err
	}
	c.logCommitted(cmd, res, word.Reason)
	c.Wake()
	if o := c.cfg.State().Operations[res.Op]; o != nil {
		return *o, nil
	}
	return state.Operation{ID: res.Op, Node: word.Node, Boot: word.Boot}, nil
}

// signsOfLife asks every device and every node whether the node is alive. Devices may take long, so they come
// first: what the nodes heard meanwhile counts.
func (c *Coordinator) signsOfLife(ctx context.Context, node string) (signs, silence []string) {
	var mu sync.Mutex
	say := func(sign bool, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if text := fmt.Sprintf(format, args...); sign {
			signs = append(signs, text)
		} else {
			silence = append(silence, text)
		}
	}
	limit := aliveTimes * c.cfg.DetectionTime
	heard := func(by string, age time.Duration, ever bool) {
		if !ever {
			say(false, "%s never heard it", by)
			return
		}
		say(age < limit, "%s heard it %s ago", by, age.Round(time.Millisecond))
	}
	c.askDevices(ctx, c.readers(node), node, say)
	c.askContacts(ctx, node, func(reader string, age time.Duration, ever bool, err error) {
		if err != nil {
			say(false, "%s was not asked: %v", reader, err)
			return
		}
		heard(reader, age, ever)
	})
	own := c.cfg.Look()[node]
	heard(c.cfg.Self, time.Since(own.Contact), own.Heard)
	return signs, silence
}

// feed is one plug of one device.
type feed struct{ device, plug string }

func (f feed) String() string { return strings.TrimSpace(f.device + " " + f.plug) }

// askDevices has the node's devices read, by the first reader that gets an answer of each. Where shots
// keep one busy, what they read there counts.
func (c *Coordinator) askDevices(ctx context.Context, readers []string, node string, say func(bool, string, ...any)) {
	levels := c.cfg.Levels(node)
	ctx, cancel := context.WithTimeout(ctx, longest(levels)+c.cfg.DetectionTime)
	defer cancel()
	feeds := feedsOf(levels)
	answers := map[feed]stonith.Health{}
	known := func(f feed) bool { a, ok := answers[f]; return ok && a.State != agents.Unknown }
	for _, reader := range readers {
		for _, h := range c.checkDevices(ctx, reader, node) {
			if f := (feed{h.Device, h.Plug}); !h.GaveWay && !known(f) {
				answers[f] = h
			}
		}
		if !slices.ContainsFunc(feeds, func(f feed) bool { return !known(f) }) {
			break
		}
	}
	op := c.cfg.State().OpenOperation(node)
	for _, f := range feeds {
		switch h, asked := answers[f]; {
		case known(f):
			say(h.State == agents.On, "%s says %s", f, h.State)
		case asked:
			say(false, "%s gives no state: %s", f, h.Error)
		case op == nil:
			say(true, "%s is in use and could not be asked: try again", f)
		default:
			on, read := lastRead(op, f)
			switch {
			case !read:
				say(true, "operation %d is at %s, and has read nothing yet: try again", op.ID, f)
			case on:
				say(true, "%s said on in the last attempt of operation %d", f, op.ID)
			default:
				say(false, "%s did not say on in the last attempt of operation %d", f, op.ID)
			}
		}
	}
}

// lastRead is whether a feed was on when an executor of the operation read it last, for any of them.
func lastRead(o *state.Operation, f feed) (on, read bool) {
	seen := map[string]bool{}
	for _, a := range slices.Backward(o.Trail) {
		for _, d := range a.Devices {
			if d.Device == f.device && d.Plug == f.plug && !seen[a.Executor] {
				seen[a.Executor], read = true, true
				on = on || d.State == agents.On.String()
			}
		}
	}
	return on, read
}

func feedsOf(levels [][]stonith.Device) (feeds []feed) {
	for _, level := range levels {
		for _, d := range level {
			for _, plug := range d.Plugs {
				feeds = append(feeds, feed{d.Name, plug})
			}
		}
	}
	return feeds
}
