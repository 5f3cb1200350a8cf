package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/scheduler"
	"github.com/hamgr/hamgr/cluster/state"
)

// working is a node alpha that coordinates, with beta beside it; alpha runs db under token 1, and web is on its way.
func working(tb testing.TB) backend {
	n := aloneNode(tb)
	commit := func(cmds ...state.Command) {
		for _, cmd := range cmds {
			cmd.Version = state.Version
			b, err := cmd.Encode()
			if err != nil {
				tb.Fatal(err)
			}
			if res := n.replica.Apply(n.replica.State().Applied+1, b).(state.Result); res.Err != nil {
				tb.Fatal(res.Err)
			}
		}
	}
	commit(
		state.Command{Configure: &state.Configure{Cluster: "web", Digest: "d", Nodes: seed(n.Config).Nodes, Groups: []state.ConfigGroup{
			{Name: "db"}, {Name: "web", Rules: state.Rules{After: []string{"db"}, Allow: []string{"alpha", "beta"}}},
		}}},
		state.Command{Join: &state.Join{Node: "alpha", Boot: "a1", Session: "s"}},
		state.Command{Join: &state.Join{Node: "beta", Boot: "b1", Session: "s"}},
		state.Command{Grant: &state.GrantGroup{Group: "db", Node: "alpha", Boot: "a1", Reason: "nobody holds it"}},
		state.Command{Started: &state.Report{Group: "db", Token: 1, Node: "alpha", Boot: "a1", Session: "s"}},
	)
	n.coord = coordinator.New(coordinator.Config{
		Self: "alpha", Boot: "a1", DetectionTime: time.Second, Replicated: leader{n.replica}, State: n.replica.State,
		Look: func() map[string]coordinator.Sighting {
			return map[string]coordinator.Sighting{"beta": {Gossip: "alive", GossipBoot: "b1", Contact: time.Now(), Heard: true}}
		},
		Log: n.Log,
	})
	return backend{n}
}

// do has the coordinator carry out a change for beta's operator.
func do(t *testing.T, b backend, r api.ChangeRequest) (api.ChangeResult, *api.Error) {
	t.Helper()
	r.By = "anna"
	a, err := b.change(t.Context(), "beta", r)
	if err != nil {
		t.Fatal(err)
	}
	return a.Result, a.Refused
}

func steps(r api.ChangeResult) string {
	var all []string
	for _, s := range r.Steps {
		all = append(all, fmt.Sprintf("%s %s on %s", s.Action, s.Group, s.Node))
	}
	return strings.Join(all, ", ")
}

func TestChanges(t *testing.T) {
	for name, c := range map[string]struct {
		r     api.ChangeRequest
		steps string
		node  string // where db is then
		is    func(*state.State) bool
	}{
		"move": {api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Node: "beta"}, "stop db on alpha, start db on beta, start web on", "beta",
			func(s *state.State) bool {
				w := s.Groups["db"].Wish
				return w != nil && w.To == "beta" && w.Once && w.By == "anna on beta"
			}},
		"away, for a time": {api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Node: "alpha", Away: true, ForMS: 60_000}, "stop db on alpha, start db on beta, start web on", "beta",
			func(s *state.State) bool {
				w := s.Groups["db"].Wish
				return w != nil && w.From == "alpha" && w.To == "" && !w.Once && w.Until == s.Clock+60_000
			}},
		"disable": {api.ChangeRequest{Verb: api.ChangeDisable, Group: "db"}, "stop db on alpha", "",
			func(s *state.State) bool { return s.Groups["db"].Disabled }},
		"standby": {api.ChangeRequest{Verb: api.ChangeStandby, Node: "alpha"}, "stop db on alpha, start db on beta, start web on beta", "beta",
			func(s *state.State) bool { return s.Nodes["alpha"].Standby }},
		"restart": {api.ChangeRequest{Verb: api.ChangeRestart, Group: "db", Token: 1}, "stop db on alpha, start db on alpha, start web on", "alpha",
			func(s *state.State) bool {
				w := s.Groups["db"].Wish
				return w != nil && w.Restart && w.Once && w.To == "alpha"
			}},
		"maintenance of the cluster": {api.ChangeRequest{Verb: api.ChangeMaintenanceOn}, "", "",
			func(s *state.State) bool { return s.Maintenance }},
		"maintenance of a node": {api.ChangeRequest{Verb: api.ChangeMaintenanceOn, Node: "alpha"}, "start web on beta", "",
			func(s *state.State) bool { return s.Nodes["alpha"].Maintenance && !s.Maintenance }},
		"maintenance of a group": {api.ChangeRequest{Verb: api.ChangeMaintenanceOn, Group: "db"}, "start web on", "alpha",
			func(s *state.State) bool { return s.Groups["db"].Maintenance && !s.Maintenance }},
	} {
		t.Run(name, func(t *testing.T) {
			b := working(t)
			before := b.n.replica.State()
			dry := c.r
			dry.DryRun = true
			told, refused := do(t, b, dry)
			if refused != nil {
				t.Fatal(refused)
			}
			if b.n.replica.State() != before {
				t.Fatal("a dry run changed the state")
			}
			done, refused := do(t, b, c.r)
			if refused != nil || !done.Changed || done.DryRun || !told.DryRun {
				t.Fatal(done, refused)
			}
			if s := b.n.replica.State(); !c.is(s) {
				t.Errorf("committed: %+v, %+v, %+v", s.Groups["db"], s.Groups["db"].Grant, s.Groups["db"].Wish)
			}
			if steps(told) != steps(done) || !strings.HasPrefix(steps(done), c.steps) || c.steps == "" && len(done.Steps) > 0 {
				t.Errorf("foretold %q, then %q, want %q", steps(told), steps(done), c.steps)
			}
			i := slices.IndexFunc(done.Groups, func(g api.ChangedGroup) bool { return g.Group == "db" })
			if i < 0 != (c.r.Group != "db" && c.node == "") || i >= 0 && (done.Groups[i].Node != c.node || done.Groups[i].Token != 1 || (c.node == "") != (done.Groups[i].Waits != "")) {
				t.Errorf("db: %+v", done.Groups)
			}
		})
	}
}

// A restart that reaches the coordinator twice, as after a lost answer, restarts once.
func TestRestartTwice(t *testing.T) {
	b := working(t)
	r, err := settled(api.ChangeRequest{Verb: api.ChangeRestart, Group: "db"}, b.n.replica.State())
	if err != nil || r.Token != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	apply := func(cmd state.Command) {
		t.Helper()
		cmd.Version = state.Version
		body, err := cmd.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if res := b.n.replica.Apply(b.n.replica.State().Applied+1, body).(state.Result); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	again := func(when string, refuse bool) {
		t.Helper()
		before := b.n.replica.State().Groups["db"].Grant
		_, refused := do(t, b, r)
		if refuse != (refused != nil) || refuse && (refused.Code != api.ErrUnsafe || refused.Hint == "") {
			t.Errorf("%s: %v", when, refused)
		}
		if after := b.n.replica.State().Groups["db"].Grant; *after != *before {
			t.Errorf("%s: the grant is %+v, was %+v", when, after, before)
		}
	}
	again("at first", false)
	again("before it stops", false)
	report := &state.Report{Group: "db", Token: 1, Node: "alpha", Boot: "a1", Session: "s"}
	apply(state.Command{Stop: &state.StopGroup{Group: "db", Token: 1, Reason: "restarted"}})
	again("while it stops", true)
	apply(state.Command{Stopped: report})
	apply(state.Command{Grant: &state.GrantGroup{Group: "db", Node: "alpha", Boot: "a1"}})
	again("when it is held again", true)
	report.Token = 2
	apply(state.Command{Started: report})
	again("when it runs again", true)
	if w := b.n.replica.State().Groups["db"].Wish; w != nil {
		t.Errorf("it would be restarted once more: %+v", w)
	}
}

// What a request leaves to the present state is settled where it is asked.
func TestSettled(t *testing.T) {
	s := working(t).n.replica.State()
	for name, c := range map[string]struct {
		r    api.ChangeRequest
		want api.ChangeRequest
		code api.Code
	}{
		"away from the holder":      {api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Away: true}, api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Away: true, Node: "alpha"}, ""},
		"away from where it is not": {api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Away: true, Node: "beta"}, api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Away: true, Node: "beta"}, ""},
		"away, held by nobody":      {api.ChangeRequest{Verb: api.ChangeMove, Group: "web", Away: true}, api.ChangeRequest{}, api.ErrUnsafe},
		"a token that is given":     {api.ChangeRequest{Verb: api.ChangeRestart, Group: "db", Token: 9}, api.ChangeRequest{Verb: api.ChangeRestart, Group: "db", Token: 9}, ""},
		"restart, held by nobody":   {api.ChangeRequest{Verb: api.ChangeRestart, Group: "web"}, api.ChangeRequest{}, api.ErrUnsafe},
		"nothing to settle":         {api.ChangeRequest{Verb: api.ChangeMove, Group: "web", Node: "beta"}, api.ChangeRequest{Verb: api.ChangeMove, Group: "web", Node: "beta"}, ""},
	} {
		got, err := settled(c.r, s)
		if c.code != "" {
			if api.CodeOf(err) != c.code || api.AsError(err).Hint == "" {
				t.Errorf("%s: %v", name, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestRefusedChanges(t *testing.T) {
	b := working(t)
	if _, refused := do(t, b, api.ChangeRequest{Verb: api.ChangeStandby, Node: "beta"}); refused != nil {
		t.Fatal(refused)
	}
	for name, c := range map[string]struct {
		r          api.ChangeRequest
		code       api.Code
		text, hint string
	}{
		"to a node on standby": {api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Node: "beta"}, api.ErrUnsafe, "beta cannot take db: it is on standby", "choose another node: hamgr group show db"},
		"nowhere to go":        {api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Node: "alpha", Away: true}, api.ErrUnsafe, "no node but alpha can take db", "hamgr node list"},
		"an older token":       {api.ChangeRequest{Verb: api.ChangeRestart, Group: "db", Token: 7}, api.ErrUnsafe, "token 7", "hamgr group show db"},
		"held by nobody":       {api.ChangeRequest{Verb: api.ChangeRestart, Group: "web", Token: 7}, api.ErrUnsafe, "nobody holds it", "hamgr group show web"},
		"unknown group":        {api.ChangeRequest{Verb: api.ChangeEnable, Group: "dv"}, api.ErrNotFound, "dv", ""},
		"unknown node":         {api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Node: "omega"}, api.ErrNotFound, "omega", ""},
		"of another daemon":    {api.ChangeRequest{Verb: "explode", Group: "db"}, api.ErrInvalid, "explode", ""},
	} {
		before := b.n.replica.State()
		_, refused := do(t, b, c.r)
		if refused == nil || refused.Code != c.code || !strings.Contains(refused.Message, c.text) || !strings.Contains(refused.Hint, c.hint) {
			t.Errorf("%s: %+v", name, refused)
		}
		if refused != nil && strings.Count(refused.Message, scheduler.ErrImpossible.Error()) > 1 {
			t.Errorf("%s is said twice: %s", name, refused.Message)
		}
		after := b.n.replica.State()
		if before.Groups["db"] != after.Groups["db"] || before.Groups["web"] != after.Groups["web"] {
			t.Errorf("%s: refused, and done", name)
		}
	}
}

// What was not committed in time may still be; a lost leadership is another coordinator's to answer.
func TestChangeWithoutOutcome(t *testing.T) {
	for _, c := range []struct {
		err     error
		unknown bool
	}{
		{consensus.ErrUnknownOutcome, true}, {context.DeadlineExceeded, true}, {context.Canceled, true},
		{consensus.ErrNotCoordinator, false}, {coordinator.ErrNotCoordinator, false},
	} {
		b := working(t)
		b.n.coord = coordinator.New(coordinator.Config{
			Self: "alpha", Boot: "a1", DetectionTime: time.Second, Replicated: failing{leader{b.n.replica}, c.err}, State: b.n.replica.State,
			Look: func() map[string]coordinator.Sighting { return nil }, Log: b.n.Log,
		})
		a, err := b.change(t.Context(), "alpha", api.ChangeRequest{Verb: api.ChangeDisable, Group: "db"})
		switch {
		case c.unknown && (err != nil || a.Refused == nil || a.Refused.Code != api.ErrUnknownOutcome || a.Refused.Hint == ""):
			t.Errorf("%v: %+v, %v", c.err, a, err)
		case !c.unknown && kindOf(err) != "not_coordinator":
			t.Errorf("%v: %+v, %v", c.err, a, err)
		}
	}
}

// failing is a log that leads, and commits nothing.
type failing struct {
	leader
	err error
}

func (f failing) Propose(context.Context, []byte) (any, uint64, error) { return nil, 0, f.err }

// A question is asked again while nobody leads or nobody answers; what may have been done is never told as not done.
func TestInsist(t *testing.T) {
	lost := fmt.Errorf("change to beta: %w: %w", errTransport, api.ErrUnknownOutcome)
	unsent := fmt.Errorf("change to beta: %w: %w", errTransport, api.ErrUnreachable)
	nobody := coordinator.ErrNotCoordinator
	for name, c := range map[string]struct {
		answers  []error // the last one stays
		code     api.Code
		repeated bool
	}{
		"answered":                      {[]error{nil}, "", false},
		"answered in the end":           {[]error{nobody, unsent, nil}, "", false},
		"answered again":                {[]error{lost, nobody, nil}, "", true},
		"refused":                       {[]error{fmt.Errorf("no: %w", state.ErrConflict)}, api.ErrUnsafe, false},
		"refused after a loss":          {[]error{lost, fmt.Errorf("no: %w", state.ErrUnknown)}, api.ErrNotFound, true},
		"nobody leads":                  {[]error{nobody}, api.ErrNoCoordinator, false},
		"never sent":                    {[]error{unsent}, api.ErrNoCoordinator, false},
		"lost":                          {[]error{lost}, api.ErrUnknownOutcome, true},
		"lost, and then nobody leads":   {[]error{lost, nobody}, api.ErrUnknownOutcome, true},
		"lost, and then not reached":    {[]error{lost, unsent}, api.ErrUnknownOutcome, true},
		"nobody leads, and then it was": {[]error{nobody, lost, nobody}, api.ErrUnknownOutcome, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, asked := time.Now(), 0
				repeated, err := insist(t.Context(), 6*time.Second, 300*time.Millisecond, func() error {
					answer := c.answers[min(asked, len(c.answers)-1)]
					asked++
					return answer
				})
				if repeated != c.repeated || (err == nil) != (c.code == "") || err != nil && api.CodeOf(err) != c.code {
					t.Errorf("repeated %v, %v", repeated, err)
				}
				if took := time.Since(began); took > 6*time.Second+300*time.Millisecond {
					t.Errorf("insisted for %s", took)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := insist(ctx, time.Hour, time.Hour, func() error { return lost }); !errors.Is(err, api.ErrUnknownOutcome) {
		t.Error(err)
	}
}

// That a restart is refused when it is asked for again may be because it was done.
func TestAfterLoss(t *testing.T) {
	refused := &api.Error{Code: api.ErrUnsafe, Message: "superseded"}
	for _, c := range []struct {
		r    api.ChangeRequest
		want api.Code
	}{
		{api.ChangeRequest{Verb: api.ChangeRestart, Group: "db"}, api.ErrUnknownOutcome},
		{api.ChangeRequest{Verb: api.ChangeRestart, Group: "db", DryRun: true}, api.ErrUnsafe},
		{api.ChangeRequest{Verb: api.ChangeMove, Group: "db"}, api.ErrUnsafe},
	} {
		if got := afterLoss(c.r, refused); got.Code != c.want {
			t.Errorf("%+v: %+v", c.r, got)
		}
	}
}

func TestUnknownNames(t *testing.T) {
	b := working(t)
	_, err := b.Change(t.Context(), api.ChangeRequest{Verb: api.ChangeEnable, Group: "wev"})
	if e := api.AsError(err); e.Code != api.ErrNotFound || e.Hint != "the groups are web, db" {
		t.Errorf("%v: %q", err, e.Hint)
	}
	_, err = b.Change(t.Context(), api.ChangeRequest{Verb: api.ChangeStandby, Node: "omega"})
	if e := api.AsError(err); e.Code != api.ErrNotFound || e.Hint != "the nodes are alpha, beta" {
		t.Errorf("%v: %q", err, e.Hint)
	}
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("group%02d", i))
	}
	if got := nearestFirst("group19x", many); !strings.HasPrefix(got, "group19, group10, ") || !strings.HasSuffix(got, ", and 4 more: hamgr group list") {
		t.Error(got)
	}
}

// FuzzChange: whatever another node's operator asks, the state stays one that can be, and no dry run changes it.
func FuzzChange(f *testing.F) {
	for _, seed := range []string{
		`{"verb":"move","group":"db","node":"beta","for_ms":60000,"by":"anna"}`, `{"verb":"move","group":"db","node":"alpha","away":true}`,
		`{"verb":"restart","group":"db","token":1}`, `{"verb":"standby","node":"alpha"}`, `{"verb":"clear","group":"web","node":"beta"}`,
		`{"verb":"maintenance_on","dry_run":true}`, `{"verb":"disable","group":"db","by":"cluster"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b := working(t)
		before := b.n.replica.State()
		a, err := asked(body, func(r api.ChangeRequest) (any, error) { return b.change(t.Context(), "beta", r) })
		if err != nil {
			return
		}
		var got changed
		if err := json.Unmarshal(a.Body, &got); err != nil {
			t.Fatal(err)
		}
		after := b.n.replica.State()
		if err := state.CheckStep(before, after); err != nil {
			t.Error(err)
		}
		if (got.Refused != nil || got.Result.DryRun || !got.Result.Changed) && before != after && before.Groups["db"] != after.Groups["db"] {
			t.Errorf("%s changed db: %+v", body, got)
		}
		if got.Refused != nil && (got.Refused.Code == "" || errors.Is(got.Refused, api.ErrInternal)) {
			t.Errorf("%s: %+v", body, got.Refused)
		}
	})
}
