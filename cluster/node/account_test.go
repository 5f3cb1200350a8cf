package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/resources"
)

// What the holder says is shown as long as it speaks of the grant that the cluster knows; whatever else it says, or that
// it says nothing, is told in its place.
func TestAccountsAreOfTheGrant(t *testing.T) {
	active := []api.ResourceStatus{{Name: "data", Kind: "filesystem", State: "active"}}
	runs := func(r running) testimony { return testimony{account: account{Runs: map[string]running{"db": r}}} }
	for name, c := range map[string]struct {
		said testimony
		note string // a part of it; empty if the resources are shown
	}{
		"told":            {runs(running{Token: 7, Resources: active, Restarts: &api.GroupRestarts{Done: 2, Of: 3}}), ""},
		"silent":          {testimony{silent: "did not answer within 750ms"}, "beta did not answer within 750ms: how its resources are is not known"},
		"old grant there": {runs(running{Token: 6, Resources: active}), "beta does not drive it under token 7"},
		"old state here":  {runs(running{Token: 8, Resources: active}), "is old"},
		"not begun":       {testimony{}, "beta does not drive it under token 7"},
		"too much":        {runs(running{Token: 7, Omitted: true}), "too many"},
	} {
		st := api.GroupStatus{Name: "db", Node: "beta", Token: 7}
		addAccounts(&st, map[string]testimony{"beta": c.said}, []string{"alpha", "beta"})
		if c.note == "" != (len(st.Resources) == 1 && st.ResourcesNote == "" && st.Restarts != nil) || !strings.Contains(st.ResourcesNote, c.note) {
			t.Errorf("%s: %+v", name, st)
		}
	}
	held := api.GroupStatus{Name: "db"}
	if addAccounts(&held, nil, []string{"alpha"}); held.ResourcesNote != "" {
		t.Errorf("nobody holds it: %+v", held)
	}
}

// Where a group would not start is a warning, told once for the nodes that say the same, and never of its holder.
func TestNotReadyIsShown(t *testing.T) {
	says := func(why string) testimony { return testimony{account: account{NotReady: map[string]string{"db": why}}} }
	said := map[string]testimony{"alpha": says("data: old"), "beta": says("data: no disk"), "gamma": says("data: no disk"), "delta": says("ip: link down"), "epsilon": says("data: no disk")}
	st := api.GroupStatus{Name: "db", Node: "alpha"}
	addAccounts(&st, said, []string{"alpha", "beta", "gamma", "delta", "epsilon"})
	var warnings []string
	s := &state.State{Groups: map[string]*state.Group{"db": {Failures: map[string]state.Failure{"epsilon": {Error: "no disk", Count: 1}}}}}
	readyProblems(s, []api.GroupStatus{st}, func(text, cure string) { warnings = append(warnings, text) })
	want := []string{"group db would not start on beta, gamma: data: no disk", "group db would not start on delta: ip: link down"}
	if fmt.Sprint(warnings) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", warnings, want)
	}
}

// However many groups a node drives, and whatever their resources say, its account fits into a call.
func TestAccountIsBounded(t *testing.T) {
	n := aloneNode(t)
	for i := range 3000 {
		name := fmt.Sprintf("group%04d", i)
		r := newRunner(n, name, state.Grant{Token: uint64(i + 1)})
		r.group.Name = name
		for j := range 10 {
			r.parts = append(r.parts, &part{conf: config.Resource{Name: fmt.Sprint("r", j), Kind: "fake"}, state: resources.Failed, detail: strings.Repeat("é", 1000)})
		}
		n.groups.runners[name] = r
	}
	n.ready.reasons = map[string]string{"db": strings.Repeat("x", 10_000)}
	a := n.ownAccount()
	b := mustMarshal(a)
	if len(b) > 2*mostAccount || len(b) > api.MaxCall {
		t.Errorf("%d bytes", len(b))
	}
	if first, last := a.Runs["group0000"], a.Runs["group2999"]; len(first.Resources) != 10 || !last.Omitted || last.Token != 3000 {
		t.Errorf("first %+v, last %+v", first.Omitted, last)
	}
	if d := a.Runs["group0000"].Resources[0].Detail; len(d) > mostWords+8 || !utf8.ValidString(d) {
		t.Errorf("%d bytes: %q", len(d), d)
	}
}

// Restarts in place are counted within their window, and the count goes down again.
func TestRestartsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &script{}
		s := newStage(t, config.OnFailRestart, x)
		s.begin(t, state.Granted)
		synctest.Wait()
		if a := s.r.account(); a.Token != 7 || a.Restarts != nil || len(a.Resources) != 1 || a.Resources[0].State != "active" {
			t.Errorf("%+v", a)
		}
		close(x.died)
		x.mu.Lock()
		x.died = make(chan struct{})
		x.mu.Unlock()
		synctest.Wait()
		if a := s.r.account(); a.Restarts == nil || *a.Restarts != (api.GroupRestarts{Done: 1, Of: 1, WindowMS: 60_000}) {
			t.Errorf("%+v", a.Restarts)
		}
		time.Sleep(61 * time.Second)
		if a := s.r.account(); a.Restarts != nil {
			t.Errorf("after the window: %+v", a.Restarts)
		}
		s.cancel()
	})
}

// A group that cannot stop is a warning only where it takes somebody to end a maintenance.
func TestDelayedStopIsTold(t *testing.T) {
	s := &state.State{Nodes: map[string]*state.Node{}, Groups: map[string]*state.Group{
		"db":  {Name: "db", Grant: &state.Grant{Node: "alpha", Phase: state.Started}},
		"web": {Name: "web", Rules: state.Rules{After: []string{"db"}}, Grant: &state.Grant{Node: "alpha", Phase: state.Started}},
	}}
	why := "is to stop (alpha is on standby), and waits for what runs after it: web (it is in maintenance)"
	warnings := func() (all []string) {
		st := groupStatus(s, map[string]string{"db": why}, "", s.Groups["db"])
		if st.State != api.GroupRunning || st.Detail != why {
			t.Errorf("%+v", st)
		}
		delayProblems(s, []api.GroupStatus{st}, func(text, cure string) { all = append(all, text+" | "+cure) })
		return all
	}
	if all := warnings(); len(all) != 0 {
		t.Errorf("it goes on by itself: %q", all)
	}
	s.Groups["web"].Maintenance = true
	if all := warnings(); len(all) != 1 || !strings.HasPrefix(all[0], "group db "+why) || !strings.Contains(all[0], "hamgr group disable web") {
		t.Errorf("%q", all)
	}
}

// FuzzAccount: whatever a node says, it is shown or explained, and nothing panics.
func FuzzAccount(f *testing.F) {
	f.Add([]byte(`{"runs":{"db":{"token":7,"restarts":{"done":1,"of":2},"resources":[{"name":"data","state":"active"}]}},"not_ready":{"db":"no disk"}}`))
	f.Add([]byte(`{"runs":{"db":{"token":18446744073709551615}}}`))
	f.Add([]byte(`{"runs":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a account
		if json.Unmarshal(b, &a) != nil {
			return
		}
		st := api.GroupStatus{Name: "db", Node: "beta", Token: 7}
		addAccounts(&st, map[string]testimony{"beta": {account: a}}, []string{"alpha", "beta"})
		if st.ResourcesNote == "" && a.Runs["db"].Token != 7 {
			t.Errorf("shown: %+v", st)
		}
	})
}

// Whatever was found before: a group that has started here would start here.
func TestStartEndsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, config.OnFailMove, &script{})
		s.n.ready.reasons = map[string]string{"db": "part0: no such disk"}
		s.begin(t, state.Granted)
		synctest.Wait()
		if why := s.n.notReady(); len(why) != 0 {
			t.Errorf("%v", why)
		}
		s.cancel()
	})
}

// While something is known against a group, it is looked at often: the warning does not outlive its cause for long.
func TestMendedIsSeenSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &script{checked: fmt.Errorf("%w: no such disk", resources.ErrNode)}
		s := newStage(t, config.OnFailMove, x)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.n.ready.run(ctx); close(ended) }()
		synctest.Wait()
		if len(s.n.notReady()) != 1 {
			t.Error("nothing is known against it")
		}
		x.mu.Lock()
		x.checked = nil
		x.mu.Unlock()
		time.Sleep(30 * time.Second)
		if why := s.n.notReady(); len(why) != 0 {
			t.Errorf("%v", why)
		}
		cancel()
		<-ended
	})
}
