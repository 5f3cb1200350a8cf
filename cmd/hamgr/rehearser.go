package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

const (
	lookEvery  = 500 * time.Millisecond // at the status, while a node is waited for
	tellEvery  = 5 * time.Second
	foundAfter = 30 * time.Second // an operation that no status shows for so long was never committed
)

// rehearser takes a node through a rehearsal, level by level. Whatever goes wrong ends it: the next level would cut
// the power of a node that is not well.
type rehearser struct {
	*cli
	client  *api.Client
	plan    rehearsalPlan
	reason  string
	timeout time.Duration // of one level
}

func (r *rehearser) run(ctx context.Context) error {
	out := rehearsal{Schema: api.Schema, Node: r.plan.node, Levels: []rehearsedLevel{}}
	var failed error
	for i, number := range r.plan.levels {
		r.say("level %d: %s", number, strings.Join(r.plan.fencing[number-1], "+"))
		level, err := r.level(ctx, number)
		if i == 0 && err != nil && nothingDone(err) {
			return err
		}
		out.Levels = append(out.Levels, level)
		if err != nil {
			failed = fmt.Errorf("level %d: %w", number, err)
			break
		}
	}
	out.OK = failed == nil
	if r.json {
		if err := r.printJSON(out); err != nil {
			return err
		}
	} else {
		writeRehearsal(r.out, out, r.plan)
	}
	r.say("%s is still on standby; to let it hold groups again: hamgr node online %s", r.plan.node, r.plan.node)
	if failed != nil {
		return &outcome{statusOf(api.CodeOf(failed)), failed.Error()}
	}
	return nil
}

// nothingDone reports whether an error says that no power was touched.
func nothingDone(err error) bool {
	return slices.Contains([]api.Code{api.ErrUnsafe, api.ErrNoQuorum, api.ErrNoCoordinator, api.ErrNotFound, api.ErrInvalid, api.ErrUnreachable}, api.CodeOf(err))
}

// level has one level cut the power, waits until the node is back, and finds out what each device did.
func (r *rehearser) level(ctx context.Context, number int) (l rehearsedLevel, err error) {
	l = rehearsedLevel{Level: number, Devices: []rehearsedDevice{}}
	defer func() {
		if l.OK = err == nil; !l.OK {
			l.Error = err.Error()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	status, err := r.client.Status(ctx)
	if err != nil {
		return l, err
	}
	before, err := nodeOf(status, r.plan.node)
	if err != nil {
		return l, err
	}
	began := time.Now()
	req := api.FenceRequest{Node: r.plan.node, Action: api.ActionRehearse, Level: number, By: operator(), Reason: r.reason}
	result, err := r.client.Fence(ctx, req, r.follow)
	if errors.Is(err, api.ErrUnknownOutcome) && ctx.Err() == nil {
		r.say("%v; following it by the status", err)
		result, err = r.pursue(ctx, number, newest(status), err)
	}
	l.Op, l.Proof, l.TookMS = result.Op, result.Proof, time.Since(began).Milliseconds()
	if err != nil {
		return l, err
	}
	if result.Phase == api.PhaseProven {
		r.say("%s is proven off; it does not come on yet: %s", r.plan.node, result.Note)
	}
	if err := r.awaitBack(ctx, before.Boot); err != nil {
		return l, err
	}
	l.BackAfterMS = max(1, time.Since(began).Milliseconds()) // 0 is: not back
	r.say("%s is back, %s after the order", r.plan.node, shortMS(l.BackAfterMS))
	l.Devices, err = r.devices(ctx, number, result.Op)
	return l, err
}

// newest is the number of the newest operation that a status shows.
func newest(s api.Status) (op uint64) {
	for _, o := range s.Operations {
		op = max(op, o.Op)
	}
	return op
}

// pursue follows a rehearsal whose coordinator was lost, as that of the coordinator itself always is.
func (r *rehearser) pursue(ctx context.Context, level int, after uint64, lost error) (api.FenceResult, error) {
	began, seen := time.Now(), false
	for ; ; r.pause(ctx) {
		if ctx.Err() != nil || !seen && time.Since(began) > foundAfter {
			return api.FenceResult{}, lost
		}
		s, err := r.look(ctx)
		if err != nil {
			continue // a daemon between two coordinators may be slow to answer
		}
		for _, o := range s.Operations {
			if o.Op <= after || o.Node != r.plan.node || o.Action != api.ActionRehearse || o.Level != level {
				continue
			}
			seen = true
			result := api.FenceResult{Op: o.Op, Node: o.Node, Action: o.Action, Phase: o.Phase, Proof: o.Proof, Note: or(o.Error, o.Note)}
			switch {
			case o.Phase == api.PhaseDone && o.Proof != "", o.Phase == api.PhaseProven:
				return result, nil
			case slices.Contains([]string{api.PhaseDone, api.PhaseFailed, api.PhaseCalledOff}, o.Phase):
				return result, &api.Error{Code: api.ErrFailed, Message: fmt.Sprintf("operation %d: %s: %s", o.Op, o.Phase, result.Note)}
			}
		}
	}
}

// awaitBack waits until the node is in the cluster again, in another boot.
func (r *rehearser) awaitBack(ctx context.Context, boot string) error {
	began, told, words := time.Now(), time.Now(), "not heard yet"
	for ; ; r.pause(ctx) {
		if ctx.Err() != nil {
			return &api.Error{Code: api.ErrFailed, Message: fmt.Sprintf("%s was proven off, but is not back after %s: %s", r.plan.node, shortMS(time.Since(began).Milliseconds()), words)}
		}
		if s, err := r.look(ctx); err != nil {
			if ctx.Err() == nil {
				words = err.Error()
			}
		} else if n, err := nodeOf(s, r.plan.node); err != nil {
			words = err.Error()
		} else if words = notBack(n, boot); words == "" {
			return nil
		}
		if time.Since(told) >= tellEvery {
			told = time.Now()
			r.say("waiting for %s to come back: %s (%s)", r.plan.node, words, shortMS(time.Since(began).Milliseconds()))
		}
	}
}

// notBack says what is missing until a node is back in another boot; nothing if it is.
func notBack(n api.NodeStatus, boot string) string {
	switch {
	case n.State != api.NodeAlive:
		return "it is " + n.State
	case n.Boot == "" || n.Boot == boot:
		return "its new boot has not joined"
	case n.Unclean:
		return "it is unclean: " + n.UncleanReason
	case n.FenceOp != 0:
		return fmt.Sprintf("operation %d is not over", n.FenceOp)
	default:
		return ""
	}
}

// look asks for one status, and does not wait for ever for one of many.
func (r *rehearser) look(ctx context.Context) (api.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, tellEvery)
	defer cancel()
	return r.client.Status(ctx)
}

func (r *rehearser) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(lookEvery):
	}
}

// devices gives what each device of the level did in the operation. One that was not told off, or was off before,
// has proven nothing.
func (r *rehearser) devices(ctx context.Context, level int, op uint64) ([]rehearsedDevice, error) {
	all := []rehearsedDevice{}
	history, err := r.client.FenceHistory(ctx, r.plan.node)
	if err != nil {
		return all, err
	}
	var bad []string
	for _, o := range history.Operations {
		if o.Op != op || len(o.Attempts) == 0 {
			continue
		}
		for _, d := range o.Attempts[len(o.Attempts)-1].Devices {
			if d.Level != level {
				continue
			}
			result := rehearsedDevice{Device: d.Device, Plug: d.Plug, State: d.State, OffMS: d.TookMS, Error: d.Error}
			result.Proven = d.State == "off" && !d.WasOff && d.Commands > 0 && d.Error == ""
			if d.Error == "" && !result.Proven {
				result.Error = "was off without a command, and has shown nothing"
			}
			if !result.Proven {
				bad = append(bad, d.Device)
			}
			all = append(all, result)
		}
	}
	for _, name := range r.plan.fencing[level-1] {
		if !slices.ContainsFunc(all, func(d rehearsedDevice) bool { return d.Device == name }) {
			all = append(all, rehearsedDevice{Device: name, State: "unknown", Error: "the history has no word of it"})
			bad = append(bad, name)
		}
	}
	if len(bad) > 0 {
		return all, &api.Error{Code: api.ErrFailed, Message: "not proven: " + strings.Join(slices.Compact(bad), ", ")}
	}
	return all, nil
}
