package node

import (
	"testing"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/state"
)

// TestStaleGrantStartsNothing: quorum was forced with a log that has a grant to this node. On the history that is left behind the
// group may have had a greater token since. What runs under the grant goes on; what does not is not started under it.
func TestStaleGrantStartsNothing(t *testing.T) {
	for _, c := range []struct {
		forced  bool
		running uint64 // under which token; 0: nothing runs
		want    state.GrantPhase
	}{
		{false, 0, state.Granted},
		{true, 0, state.Stopping},
		{true, 1, state.Granted},
		{true, 9, state.Stopping}, // it was granted again, and this log does not know
	} {
		s := newStage(t, config.OnFailRestart, &script{})
		say := func(c state.Command) {
			b, err := c.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if res := s.n.replica.Apply(s.n.replica.State().Applied+1, b).(state.Result); res.Err != nil {
				t.Fatal(res.Err)
			}
		}
		say(state.Command{Upgrade: &state.Upgrade{Version: state.Version}})
		say(state.Command{Join: &state.Join{Node: "alpha", Boot: "a1"}})
		say(state.Command{Grant: &state.GrantGroup{Group: "db", Node: "alpha", Boot: "a1"}})
		if c.running > 0 {
			if err := s.n.hold("db", nil, held{Token: c.running}); err != nil {
				t.Fatal(err)
			}
		}
		if c.forced {
			say(state.Command{Force: &state.Force{Node: "alpha", By: "anna"}})
		}
		now := s.n.replica.State()
		if gr := s.n.groups.unlessStale(now, "db", now.Groups["db"].Grant); gr.Phase != c.want || gr.Token != 1 {
			t.Errorf("forced %t, token %d running: %+v", c.forced, c.running, *gr)
		}
	}
}
