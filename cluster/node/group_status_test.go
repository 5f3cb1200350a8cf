package node

import (
	"strings"
	"testing"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/state"
)

func TestWishWords(t *testing.T) {
	s := &state.State{Groups: map[string]*state.Group{
		"to":   {Name: "to", Wish: &state.Wish{To: "beta", By: "anna", Until: 4_800_000}},
		"away": {Name: "away", Wish: &state.Wish{From: "alpha", By: "anna on gamma", Until: 600_000, Once: true}},
		"over": {Name: "over", Wish: &state.Wish{To: "beta", By: "anna", Until: 5}},
		"new":  {Name: "new", Wish: &state.Wish{To: "beta", By: "anna", Until: 600_000, Once: true, Restart: true}},
		"none": {Name: "none"},
	}}
	known := wishes(s, 5)
	for group, want := range map[string]string{
		"to": "moved to beta by anna for another 1h20m", "away": "moved away from alpha by anna on gamma, until it runs again, or for another 10m",
		"new": "being restarted by anna, until it runs again, or for another 10m", "over": "", "none": "",
	} {
		if got := wish(s, s.Groups[group], known); got != want {
			t.Errorf("%s: %q, want %q", group, got, want)
		}
	}
	// Without the coordinator nobody knows what time it is.
	if got := wish(s, s.Groups["to"], nil); got != "moved to beta by anna" {
		t.Error(got)
	}
	s.Clock = 4_800_000
	if got := wish(s, s.Groups["to"], nil); got != "" {
		t.Errorf("a wish that has run out: %s", got)
	}
	for ms, want := range map[int64]string{-5: "1s", 1: "1s", 45_000: "45s", 60_000: "1m", 90_400: "1m30s", 3_600_000: "1h", 4_799_999: "1h20m", 7 * 24 * 3_600_000: "168h"} {
		if got := left(ms); got != want {
			t.Errorf("%d ms: %q, want %q", ms, got, want)
		}
	}
}

func TestGroupStates(t *testing.T) {
	failed := func(expired bool) map[string]state.Failure {
		return map[string]state.Failure{"alpha": {Resource: "data", Error: "no such device", Count: 1, Expired: expired}}
	}
	for name, c := range map[string]struct {
		g        state.Group
		want     string
		problem  string // its severity and a part of its text; empty for none
		failures int
	}{
		"waits":               {state.Group{}, api.GroupWaiting, "warning: does not run: because", 0},
		"disabled":            {state.Group{Disabled: true}, api.GroupStopped, "notice: is disabled by an operator", 0},
		"disabled and failed": {state.Group{Disabled: true, Failures: failed(false)}, api.GroupStopped, "notice: is disabled", 1},
		"failed":              {state.Group{Failures: failed(false)}, api.GroupFailed, "alarm: does not run", 1},
		"an expired failure":  {state.Group{Failures: failed(true)}, api.GroupWaiting, "warning: does not run", 0},
		"halted":              {state.Group{Halted: "data failed on alpha: gone"}, api.GroupFailed, "alarm: was stopped everywhere, as the resource's on_fail says: data failed on alpha: gone", 0},
		"found":               {state.Group{Found: map[string]string{"beta": "mounted"}}, api.GroupBlocked, "alarm: does not run", 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.g.Name = "db"
			s := &state.State{Groups: map[string]*state.Group{"db": &c.g}}
			st := groupStatus(s, map[string]string{"db": "because"}, "", &c.g)
			if st.State != c.want || st.Disabled != c.g.Disabled || st.Halted != c.g.Halted || st.Detail != "because" {
				t.Errorf("%+v", st)
			}
			if got := failureStatus(s); len(got) != c.failures {
				t.Errorf("failures: %+v", got)
			}
			var problems []string
			note := func(severity string) func(string, string) {
				return func(text, cure string) {
					problems = append(problems, severity+": "+strings.TrimPrefix(text, "group db ")+" | "+cure)
				}
			}
			groupProblems(s, api.Status{Groups: []api.GroupStatus{st}}, note("alarm"), note("warning"), note("notice"))
			if len(problems) != 1 || !strings.HasPrefix(problems[0], c.problem) {
				t.Errorf("problems: %q", problems)
			}
			if c.g.Halted != "" && !strings.Contains(problems[0], "hamgr group clear db") {
				t.Errorf("no cure: %q", problems)
			}
		})
	}
}

func TestMaintenanceIsLoud(t *testing.T) {
	s := &state.State{
		Nodes:  map[string]*state.Node{"alpha": {Name: "alpha", Maintenance: true}, "beta": {Name: "beta"}},
		Groups: map[string]*state.Group{"db": {Name: "db", Maintenance: true}, "web": {Name: "web", Grant: &state.Grant{Node: "alpha", Phase: state.Started}}},
	}
	st := api.Status{Nodes: []api.NodeStatus{{Name: "alpha", Maintenance: true}, {Name: "beta"}}}
	alarms := func() string {
		var all []string
		maintenanceProblems(s, st, func(text, cure string) { all = append(all, text+" | "+cure) })
		return strings.Join(all, "\n")
	}
	for _, want := range []string{
		"node alpha is in maintenance: what it holds is not monitored", "hamgr node maintenance alpha off",
		"group db is in maintenance: it is not started, stopped, monitored or taken over", "hamgr group maintenance db off",
	} {
		if got := alarms(); !strings.Contains(got, want) {
			t.Errorf("%q is not in: %s", want, got)
		}
	}
	for group, want := range map[string]string{"db": "it is in maintenance", "web": "alpha is in maintenance"} {
		if got := groupStatus(s, nil, "", s.Groups[group]).Maintenance; got != want {
			t.Errorf("%s: %q, want %q", group, got, want)
		}
	}
	s.Maintenance = true
	if got := alarms(); !strings.HasPrefix(got, "the cluster is in maintenance: nothing is") || strings.Contains(got, "\n") || !strings.Contains(got, "hamgr maintenance off") {
		t.Error(got)
	}
}

func TestRulesInWords(t *testing.T) {
	for want, f := range map[string]state.Failback{"never": {}, "always": {Always: true}, "22:00-05:30": {From: 1320, To: 330}, "00:00-06:00": {To: 360}} {
		if got := groupRules(state.Rules{Failback: f}).Failback; got != want {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
}
