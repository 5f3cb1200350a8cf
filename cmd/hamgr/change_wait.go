package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

const (
	waitLook = 200 * time.Millisecond
	// Nothing more is to be expected where all stood still for so long: of groups that have come to an end of their
	// own, and of groups that wait for something.
	restEnded, restWaiting = 2 * time.Second, 10 * time.Second
)

// waited is what came of a change that was waited for.
type waited struct {
	OK     bool          `json:"ok"` // all is as foretold
	TookMS int64         `json:"took_ms"`
	Groups []waitedGroup `json:"groups"`
}

type waitedGroup struct {
	Group  string `json:"group"`
	OK     bool   `json:"ok"`
	State  string `json:"state"`
	Node   string `json:"node,omitempty"`
	Token  uint64 `json:"token,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// waiter follows the groups of a change. That the operator sees it is all it is for: the change goes on without it.
type waiter struct {
	*cli
	client *api.Client
	result api.ChangeResult

	began, told, moved time.Time // moved: when anything last happened
	groups             []waitedGroup
}

func (w *waiter) run(ctx context.Context) (waited, error) {
	w.began = time.Now()
	w.told, w.moved = w.began, w.began
	for _, g := range w.result.Groups {
		w.groups = append(w.groups, waitedGroup{Group: g.Group, State: "unknown"})
	}
	err := w.follow(ctx)
	return waited{OK: err == nil, TookMS: time.Since(w.began).Milliseconds(), Groups: append([]waitedGroup{}, w.groups...)}, err
}

func (w *waiter) follow(ctx context.Context) error {
	missing := len(w.groups) > 0
	for missing {
		s, err := w.client.Status(ctx)
		switch {
		case ctx.Err() != nil:
			return w.leave(ctx)
		case err != nil:
			w.moved = time.Now()
			w.tell("no answer: %v", err)
		case !s.Quorate:
			w.moved = time.Now()
			w.tell("no quorum: %s", or(s.Note, s.Waiting))
		default:
			if missing = !w.look(s); missing && w.atRest() {
				return &outcome{exitFailed, w.ended() + w.words() + "; " + follows(w.result) + " tells more"}
			}
		}
		if missing {
			w.tell("waiting for %s", w.words())
			select {
			case <-ctx.Done():
				return w.leave(ctx)
			case <-time.After(waitLook):
			}
		}
	}
	return nil
}

// ended says how it is where nothing happens any more.
func (w *waiter) ended() string {
	for i, g := range w.groups {
		if want := w.result.Groups[i]; !g.OK && (want.Node == "" || want.Waits == "") {
			return "it did not come as foretold: "
		}
	}
	return "it still waits, as foretold: "
}

// leave ends the wait, and nothing else.
func (w *waiter) leave(ctx context.Context) error {
	why := "no longer waiting"
	if ctx.Err() == context.DeadlineExceeded {
		why = "not done in time"
	}
	return &outcome{exitUnknown, fmt.Sprintf("%s: %s; it goes on by itself: %s", why, or(w.words(), "nothing is missing"), follows(w.result))}
}

// look takes in a status, says what happened, and reports whether all is as foretold.
func (w *waiter) look(s api.Status) bool {
	all := true
	for i, want := range w.result.Groups {
		now := waitedGroup{Group: want.Group, State: "gone"}
		if n := slices.IndexFunc(s.Groups, func(g api.GroupStatus) bool { return g.Name == want.Group }); n >= 0 {
			g := s.Groups[n]
			now = waitedGroup{Group: g.Name, State: g.State, Node: g.Node, Token: g.Token, Detail: g.Detail}
		}
		now.OK = w.reached(want, now)
		if now != w.groups[i] {
			w.groups[i], w.moved, w.told = now, time.Now(), time.Now()
			w.say("%s %s", w.moved.Format("15:04:05.000"), now.words())
		}
		all = all && now.OK
	}
	return all
}

// reached reports whether a group is where it was foretold. One that was to be started has a newer token than before:
// a status may be older than the change.
func (w *waiter) reached(want api.ChangedGroup, now waitedGroup) bool {
	started := slices.ContainsFunc(w.result.Steps, func(s api.ChangeStep) bool { return s.Group == want.Group && s.Action == api.StepStart })
	switch {
	case want.Node == "":
		return now.Node == ""
	case want.Waits != "": // what was asked for is still to come
		return now.Node != want.Node
	case started && now.Token <= want.Token:
		return false
	}
	return now.Node == want.Node && now.State == api.GroupRunning
}

// atRest reports whether nothing happens any more.
func (w *waiter) atRest() bool {
	rest := restEnded
	for i, g := range w.groups {
		switch {
		case g.State == api.GroupStarting, g.State == api.GroupStopping, g.State == api.GroupBlocked && g.Node != "":
			return false
		case g.State == api.GroupRunning && g.Token > w.result.Groups[i].Token, g.State == api.GroupFailed, g.OK:
		default:
			rest = restWaiting
		}
	}
	return time.Since(w.moved) > rest
}

// tell says that there is nothing new, now and then.
func (w *waiter) tell(format string, args ...any) {
	if time.Since(w.told) < tellEvery {
		return
	}
	w.told = time.Now()
	w.say("%s (%s)", fmt.Sprintf(format, args...), shortMS(time.Since(w.began).Milliseconds()))
}

// words tells of the groups that are not yet as foretold.
func (w *waiter) words() string {
	var all []string
	for _, g := range w.groups {
		if !g.OK {
			all = append(all, g.words())
		}
	}
	return strings.Join(all, "; ")
}

func (g waitedGroup) words() string {
	words := g.Group + " is " + g.State
	if g.Node != "" {
		words += " on " + g.Node
	}
	if g.State == api.GroupRunning {
		words += fmt.Sprintf(", token %d", g.Token)
	}
	return strings.TrimSuffix(words+": "+g.Detail, ": ")
}

// doneWords is the last line of a wait.
func doneWords(w waited) string {
	var all []string
	for _, g := range w.Groups {
		all = append(all, g.words())
	}
	return strings.TrimSuffix(fmt.Sprintf("done after %s: %s", shortMS(w.TookMS), strings.Join(all, "; ")), ": ")
}
