package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/cluster/state"
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

// signsOfLife asks every node and every device whether the node is alive, all at once.
func (c *Coordinator) signsOfLife(ctx context.Context, node string) (signs, silence []string) {
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
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
	own := c.cfg.Look()[node]
	heard(c.cfg.Self, time.Since(own.Contact), own.Heard)
	readers := c.readers(node)
	for _, reader := range readers {
		if reader == c.cfg.Self {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, c.cfg.DetectionTime)
			defer cancel()
			age, ever, err := c.cfg.Elsewhere.Contact(ctx, reader, node)
			if err != nil {
				say(false, "%s was not asked: %v", reader, err)
				return
			}
			heard(reader, age, ever)
		})
	}
	wg.Go(func() { c.askDevices(ctx, readers, node, say) })
	wg.Wait()
	return signs, silence
}

// askDevices has the node's devices read, by the first reader that gets an answer of each.
func (c *Coordinator) askDevices(ctx context.Context, readers []string, node string, say func(bool, string, ...any)) {
	ctx, cancel := context.WithTimeout(ctx, longest(c.cfg.Levels(node))+c.cfg.DetectionTime)
	defer cancel()
	type plug struct{ device, plug string }
	answered, open := map[plug]bool{}, map[plug]string{}
	for _, reader := range readers {
		for _, h := range c.checkDevices(ctx, reader, node) {
			key := plug{h.Device, h.Plug}
			switch {
			case answered[key]:
			case h.State == agents.Unknown:
				open[key] = fmt.Sprintf("%s gives no state to %s: %s", strings.TrimSpace(h.Device+" "+h.Plug), reader, h.Error)
			default:
				answered[key] = true
				delete(open, key)
				say(h.State == agents.On, "%s says %s", strings.TrimSpace(h.Device+" "+h.Plug), h.State)
			}
		}
		if len(answered) > 0 && len(open) == 0 {
			return
		}
	}
	for _, why := range open {
		say(false, "%s", why)
	}
}

// SetStandby has a node hold no groups, or hold them again.
func (c *Coordinator) SetStandby(ctx context.Context, node string, on bool, by string) error {
	if !c.cfg.Replicated.IsCoordinator() {
		return ErrNotCoordinator
	}
	cmd := state.Command{Standby: &state.Standby{Node: node, On: on, By: by}}
	res, err := c.commit(ctx, cmd)
	if err != nil {
		return err
	}
	c.logCommitted(cmd, res, "")
	c.Wake()
	return nil
}
