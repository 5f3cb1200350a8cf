package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// canned is a daemon whose answers are fixed by its kind. Of the kinds that begin with "standby", gamma is
// on standby and holds nothing, and can be rehearsed.
type canned struct {
	kind string

	mu         sync.Mutex
	operations []api.Operation // of rehearsals, newest first
	boots      int             // of gamma
	looks      int             // at the status since the last rehearsal

	changed *api.ChangeResult // the last change
	since   int               // looks at the status since then
	keys    *api.NodeKeys     // alpha's
}

func newCanned(kind string) *canned { return &canned{kind: kind} }

func (c *canned) Status(context.Context) (api.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := healthy()
	gamma := &s.Nodes[2]
	switch c.kind {
	case "noquorum":
		return noQuorum(), nil
	case "operated":
		return underOperators(), nil
	case "maintenance":
		return allInMaintenance(), nil
	case "noquorum-self":
		s = noQuorum()
		s.Node = "gamma"
		return s, nil
	case "dead":
		gamma.State = api.NodeDead
	case "self":
		s.Node, gamma.Standby, s.Groups = "gamma", true, nil
	case "holding":
		gamma.Standby = true
	case "unfenced":
		gamma.Standby, s.Groups, gamma.Fencing.Levels = true, nil, nil
	case "standby", "standby-stuck", "standby-off-before", "standby-gone", "standby-lost", "standby-refused", "standby-mute", "standby-half-mute":
		gamma.Standby, s.Groups = true, nil
		gamma.Boot = fmt.Sprintf("g%d", c.boots)
		s.Operations = slices.Clone(c.operations)
		if c.looks++; len(c.operations) > 0 && c.looks == 1 || c.kind == "standby-gone" && len(c.operations) > 0 {
			gamma.State = api.NodeDead
		}
	}
	c.changes(&s)
	return s, nil
}

func (c *canned) FenceStatus(_ context.Context, node string) (api.FenceStatus, error) {
	if node != "gamma" {
		return api.FenceStatus{}, fmt.Errorf("no node %q: %w", node, api.ErrNotFound)
	}
	s := api.FenceStatus{Node: node, ReadBy: "alpha", Power: "on", Plugs: []api.PlugStatus{
		{Level: 1, Device: "gamma-bmc", Agent: "redfish", State: "on", Detail: "On", TookMS: 12},
	}}
	if c.kind == "mute" {
		s.Power = "unknown"
		s.Plugs = append(s.Plugs, api.PlugStatus{Level: 2, Device: "pdu-a", Agent: "snmp", Plug: "3", State: "unknown", Error: "no answer\x1b[2J", TookMS: 20000})
	}
	return s, nil
}

func (c *canned) Fence(_ context.Context, req api.FenceRequest, observe func(api.FenceEvent)) (api.FenceResult, error) {
	switch c.kind {
	case "noquorum":
		return api.FenceResult{}, &api.Error{Code: api.ErrNoQuorum, Message: "no quorum: 1 of 3 voters is reached", Hint: "bring another voter back"}
	case "unsafe":
		return api.FenceResult{}, fmt.Errorf("fence %s: %w", req.Node, api.ErrUnsafe)
	case "slow":
		return api.FenceResult{}, fmt.Errorf("operation 7 goes on: %w", api.ErrUnknownOutcome)
	case "broken":
		observe(api.FenceEvent{Op: 7, Phase: api.PhaseOff, Text: "off ordered", Device: "gamma-bmc", Error: "401 Unauthorized"})
		return api.FenceResult{}, fmt.Errorf("fence %s: every level failed: %w", req.Node, api.ErrFailed)
	}
	if req.By != "anna" {
		return api.FenceResult{}, errors.New("by " + req.By)
	}
	if req.Action == api.ActionRehearse {
		return c.rehearse(req, observe)
	}
	if req.Action == api.ActionConfirm {
		return api.FenceResult{
			Op: 7, Node: req.Node, Boot: "b3", Action: req.Action, Phase: api.PhaseDone,
			Proof: "an operator's word: anna confirmed it by hand: " + req.Reason, Note: "an operator's word, no fencing",
		}, nil
	}
	observe(api.FenceEvent{Op: 7, Phase: api.PhaseOff, Text: "off ordered at gamma-bmc"})
	r := api.FenceResult{Op: 7, Node: req.Node, Boot: "b3", Action: req.Action, Phase: api.PhaseDone, TookMS: 212}
	if req.Action != api.ActionOn {
		r.Proof = "level 1: gamma-bmc read off twice"
	}
	if c.kind == "half" {
		r.Phase, r.Note = api.PhaseProven, "power-on refused"
	}
	return r, nil
}

// rehearse is a rehearsal of gamma, of which level 1 is its BMC and level 2 two outlets.
func (c *canned) rehearse(req api.FenceRequest, observe func(api.FenceEvent)) (api.FenceResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kind == "standby-refused" {
		return api.FenceResult{}, &api.Error{Code: api.ErrUnsafe, Message: "rehearse gamma: it may hold db"}
	}
	op := uint64(60 + len(c.operations))
	devices := []api.DeviceResult{{Level: 1, Device: "gamma-bmc", State: "off", Detail: "Off", Commands: 1, TookMS: 900}}
	if req.Level == 2 {
		devices = []api.DeviceResult{
			{Level: 2, Device: "pdu-a", Plug: "3", State: "off", Commands: 1, TookMS: 400},
			{Level: 2, Device: "pdu-b", Plug: "3", State: "off", Commands: 1, TookMS: 500},
		}
	}
	o := api.Operation{
		Op: op, Node: req.Node, Boot: fmt.Sprintf("g%d", c.boots), Action: req.Action, Level: req.Level, Phase: api.PhaseDone, By: req.By,
		Proof: "power read back off", StartedAt: noon, TookMS: 1200, Executor: "beta",
	}
	var err error
	switch {
	case c.kind == "standby-stuck" && req.Level == 1:
		devices[0].State, devices[0].Error, devices[0].Trouble = "on", "reads on after 3 commands", "error"
		o.Proof, o.Note = "", "level 1 failed"
		err = fmt.Errorf("the rehearsal of level 1 failed: gamma-bmc reads on: %w", api.ErrFailed)
	case c.kind == "standby-off-before" && req.Level == 2:
		devices[1].WasOff, devices[1].Commands = true, 0
	case c.kind == "standby-lost":
		err = fmt.Errorf("operation %d goes on by itself: %w", op, api.ErrUnknownOutcome)
	}
	o.Attempts = []api.FenceAttempt{{Executor: "beta", At: noon, Proven: o.Proof != "", Devices: devices, Opinions: []string{"pdu-a 3 says on"}}}
	c.operations = slices.Insert(c.operations, 0, o)
	c.looks = 2
	if o.Proof != "" {
		c.looks = 0
		c.boots++
		observe(api.FenceEvent{Op: op, Phase: api.PhaseProven, Text: "proven off"})
	}
	if err != nil {
		return api.FenceResult{}, err
	}
	return api.FenceResult{Op: op, Node: req.Node, Action: req.Action, Phase: api.PhaseDone, Proof: o.Proof, TookMS: 1200}, nil
}

func (c *canned) FenceTest(_ context.Context, node string) (api.FenceTest, error) {
	if node != "" && node != "gamma" {
		return api.FenceTest{}, fmt.Errorf("no node %q: %w", node, api.ErrNotFound)
	}
	t := api.FenceTest{Node: node, Devices: []api.DeviceHealth{}}
	for _, n := range healthy().Nodes {
		for i, level := range n.Fencing.Levels {
			for _, device := range level {
				h := api.DeviceHealth{Node: n.Name, Level: i + 1, Device: device, Agent: "redfish", ReadBy: "alpha", OK: true, State: "on", Detail: "On", TookMS: 12}
				switch {
				case node != "" && n.Name != node, c.kind == "unread" && device == "beta-bmc":
					continue
				case c.kind == "mute" && device == "pdu-a":
					h.OK, h.State, h.Trouble, h.Error = false, "unknown", "wrong credentials", "no answer to community\x1b[2J"
				}
				t.Devices = append(t.Devices, h)
				if strings.HasSuffix(c.kind, "-mute") && device == "pdu-a" {
					h.ReadBy, h.OK, h.State, h.Trouble, h.Error = "beta", false, "unknown", "unreachable", "no route to it"
					if t.Devices = append(t.Devices, h); c.kind == "standby-mute" {
						h.ReadBy = "alpha"
						t.Devices[len(t.Devices)-2] = h
					}
				}
			}
		}
	}
	if c.kind == "patient" {
		time.Sleep(1200 * time.Millisecond)
	}
	return t, nil
}

func (c *canned) FenceHistory(_ context.Context, node string) (api.FenceHistory, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if node != "" && node != "gamma" {
		return api.FenceHistory{}, fmt.Errorf("no node %q: %w", node, api.ErrNotFound)
	}
	h := api.FenceHistory{Node: node, Operations: slices.Clone(c.operations)}
	if c.kind == "healthy" {
		h.Operations = midFailover().Operations[:2]
		h.Operations[0].Attempts = []api.FenceAttempt{{
			Executor: "beta", At: noon, Error: "every level failed", Devices: []api.DeviceResult{
				{Level: 1, Device: "gamma-bmc", State: "unknown", TookMS: 20_000, Trouble: "wrong credentials", Error: "401\x1b[2J"},
				{Level: 2, Device: "pdu-a", Plug: "3", State: "off", Detail: "2", Commands: 2, TookMS: 400},
			},
			Opinions: []string{"pdu-b 3 says on"},
		}}
	}
	return h, nil
}
