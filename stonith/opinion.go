package stonith

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// opinionTime bounds the second opinion, of all devices together.
const opinionTime = time.Second

// consultation is the second opinion on one level: what the devices of the node's other levels
// say while the level's own reads are settling. It begins when the last of the level's devices
// reads off, and anew whenever that happens again.
type consultation struct {
	op    *operation
	ctx   context.Context
	level int
	asked []witness

	feeds
	// Guarded by mu:
	round *round // nil unless all read off
}

// witness is a device that is asked, and what for.
type witness struct {
	level  int
	device Device // with those of its plugs that the level does not drive itself
}

// round is one asking of all the witnesses.
type round struct {
	cancel   context.CancelFunc
	done     chan struct{}
	opinions [][]Opinion // by witness; to be read after done
}

// consult prepares the second opinion on a level.
func (op *operation) consult(ctx context.Context, level int) *consultation {
	c := &consultation{op: op, ctx: ctx, level: level, feeds: newFeeds(len(op.order.Levels[level-1]))}
	own := map[[2]string]bool{}
	for _, d := range op.order.Levels[level-1] {
		for _, plug := range d.Plugs {
			own[[2]string{d.Name, plug}] = true
		}
	}
	for i, devices := range op.order.Levels {
		for _, d := range devices {
			d.Plugs = slices.DeleteFunc(slices.Clone(d.Plugs), func(plug string) bool {
				seen := own[[2]string{d.Name, plug}]
				own[[2]string{d.Name, plug}] = true // a device of several levels is asked once
				return seen
			})
			if len(d.Plugs) > 0 {
				c.asked = append(c.asked, witness{i + 1, d})
			}
		}
	}
	return c
}

// reached tells that all plugs of a device read off, the last of them since then.
func (c *consultation) reached(d *drive, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.arrive(d, since) || !c.all() {
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	r := &round{cancel: cancel, done: make(chan struct{})}
	c.round = r
	c.op.fencer.start(func() {
		defer close(r.done)
		c.ask(ctx, r)
	})
}

// left tells that they do no more, or that the device was given up.
func (c *consultation) left(d *drive) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave(d)
	if c.round != nil {
		c.round.cancel()
		c.round = nil
	}
}

func (c *consultation) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.round != nil {
		c.round.cancel()
	}
}

// ask asks all the witnesses at once.
func (c *consultation) ask(ctx context.Context, r *round) {
	var wg sync.WaitGroup
	for _, w := range c.asked {
		answer := make([]Opinion, len(w.device.Plugs))
		for i, plug := range w.device.Plugs {
			answer[i] = Opinion{Level: w.level, Device: w.device.Name, Plug: plug}
		}
		r.opinions = append(r.opinions, answer)
		wg.Go(func() { c.op.fencer.hear(ctx, w.device, c.op.order.Machine, answer) })
	}
	wg.Wait()
}

// hear asks one device. A feed is asked once. What sees the machine itself is asked until it
// says off, or its time is over: its view may lag behind what its power does.
func (f *Fencer) hear(ctx context.Context, d Device, m Machine, plugs []Opinion) {
	ctx, cancel := context.WithTimeoutCause(ctx, opinionShare(d), errNoAnswer)
	defer cancel()
	ctx, yield := context.WithCancelCause(ctx)
	defer yield(nil)
	s, err := f.join(ctx, d, false, yield)
	if err != nil {
		for i := range plugs {
			plugs[i].Error = err.Error()
		}
		return
	}
	defer s.end()
	open := make([]*Opinion, len(plugs))
	for i := range plugs {
		open[i] = &plugs[i]
	}
	for pause := pollFirst; ; pause = min(2*pause, pollLast) {
		open = slices.DeleteFunc(open, func(o *Opinion) bool { return s.opinion(ctx, m, o) })
		if len(open) == 0 || sleep(ctx, pause) != nil {
			return
		}
	}
}

// opinion asks for one plug, and reports whether the answer is final.
func (s *session) opinion(ctx context.Context, m Machine, o *Opinion) (final bool) {
	r, err := s.status(ctx, o.Plug)
	if err == nil && r.State != agents.Unknown && r.State != o.State {
		// What powers another machine has no opinion on this one.
		if err := s.identify(ctx, m, s.share(), o.Plug); errors.Is(err, agents.ErrIdentity) {
			o.Error = err.Error()
			return true
		}
	}
	o.note(r, err)
	return s.device.Sees == agents.SeesFeed || o.State == agents.Off || agents.Lasting(err)
}

// note takes down an answer. Nothing but off takes back an on.
func (o *Opinion) note(r agents.Reading, err error) {
	switch {
	case o.State == agents.On && r.State != agents.Off:
	case err != nil:
		o.Error = err.Error()
	default:
		o.State, o.Detail, o.Error = r.State, r.Detail, ""
	}
}

// judge waits for the second opinion and holds the level's own reads against it. With an error
// come the names of the devices that contradict.
func (c *consultation) judge(ctx context.Context) (opinions []Opinion, contradicted string, err error) {
	if !c.op.goal.twice {
		return nil, "", nil
	}
	select {
	case <-c.round.done:
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
	var against []string
	for i, w := range c.asked {
		for _, o := range c.round.opinions[i] {
			c.tell(o)
			if o.State == agents.On && w.device.Sees == agents.SeesMachine {
				against = append(against, o.name())
			}
			opinions = append(opinions, o)
		}
	}
	if against == nil {
		return opinions, "", nil
	}
	var off []string
	for _, d := range c.op.order.Levels[c.level-1] {
		off = append(off, d.Name)
	}
	contradicted = strings.Join(against, ", ")
	err = fmt.Errorf("%w: off by %s, on by %s", ErrContradiction, strings.Join(off, ", "), contradicted)
	c.op.log.Error("no proof", "fence_level", c.level, "err", err)
	return opinions, contradicted, err
}

func (c *consultation) tell(o Opinion) {
	step := Step{Level: o.Level, Device: o.Device, Plug: o.Plug, What: "opinion", State: o.State, Detail: o.Detail}
	if o.Error != "" {
		step.Err = errors.New(o.Error)
	}
	c.op.observe(step)
}

func (o Opinion) name() string {
	if o.Plug == "" {
		return o.Device
	}
	return o.Device + " plug " + o.Plug
}
