package node

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/link"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/fake"
)

// leader is a log that leads, and commits to nothing but memory.
type leader struct{ r *replica }

func (l leader) Propose(_ context.Context, b []byte) (any, uint64, error) {
	return l.r.Apply(l.r.State().Applied+1, b), l.r.State().Applied, nil
}
func (l leader) Barrier(context.Context) (uint64, error) { return l.r.State().Applied, nil }
func (leader) IsCoordinator() bool                       { return true }
func (leader) Transfer(context.Context) error            { return nil }

// aloneNode is a node that coordinates and is reached by nobody.
func aloneNode(tb testing.TB) *Node {
	c := &config.Config{Nodes: []config.Node{{Name: "alpha", Role: config.Member}, {Name: "beta", Role: config.Member}}}
	c.Cluster.Name, c.Cluster.DetectionTime = "web", time.Second
	n := &Node{Setup: Setup{
		Pace:   &Pace{},
		Config: c, Self: "alpha", Boot: "a1", RunDir: tb.TempDir(), Log: slog.New(slog.DiscardHandler),
		Kinds: config.Kinds{Resources: resources.NewRegistry(fake.Kind(fake.NewWorld(), "alpha"))},
	}}
	n.replica = newReplica(state.Version, nil, func(error) {})
	b, err := state.Command{Configure: &state.Configure{Cluster: "web", Digest: "d", Nodes: seed(c).Nodes, Groups: []state.ConfigGroup{{Name: "db"}}}}.Encode()
	if err != nil {
		tb.Fatal(err)
	}
	n.replica.Apply(1, b)
	n.coord = coordinator.New(coordinator.Config{
		Self: "alpha", DetectionTime: time.Second, Replicated: leader{n.replica}, State: n.replica.State,
		Look: func() map[string]coordinator.Sighting { return nil }, Log: n.Log,
	})
	n.link, n.groups, n.ready, n.probes = &link.Link{}, newGroups(n), newReadiness(n), newProbes(n)
	n.keys = newKeys("", n.Keys, nil, n.Log)
	n.configs, n.trust, n.isolation = newConfigs(), newTrust(time.Second, n.uptime, n.Pace, n.Log), &isolation{n: n}
	return n
}

// startAlone starts what of a daemon the runners need, and is not there without its start.
func (n *Node) startAlone(tb testing.TB) {
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.progress = newProgress(n)
	if err := n.startDog(n.ctx); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		n.cancel()
		n.wg.Wait()
		if err := n.dog.end(context.Background()); err != nil {
			tb.Error(err)
		}
	})
}

// FuzzCall: whatever another node says, the state stays one that can be, and nothing panics.
func FuzzCall(f *testing.F) {
	for _, seed := range []struct{ verb, body string }{
		{verbHello, `{"boot":"b1","session":"s","applied":3,"found":{"db":"process 7"},"ask":true}`},
		{verbReport, `{"v":1,"stopped":{"group":"db","token":1,"node":"beta","boot":"b1","session":"s"}}`},
		{verbAccount, `{}`},
		{verbTry, `{"text":"[cluster]\nname = 5"}`},
		{verbReport, `{"v":2,"away":{"node":"beta","boot":"b1","session":"s","for_ms":5}}`},
		{verbReport, `{"v":1,"leave":{"node":"beta","boot":"b1"}}`},
		{verbReport, `{"v":1,"configure":{"cluster":"web"}}`},
		{verbActive, `{"group":"db"}`},
		{verbActive, `{"group":"../db"}`},
		{verbRelayed, `{"from":"beta","verb":"hello","body":{"boot":"b1"}}`},
		{verbRelayed, `{"from":"nobody","verb":"relay","body":null}`},
	} {
		f.Add(seed.verb, []byte(seed.body))
	}
	f.Fuzz(func(t *testing.T, verb string, body []byte) {
		if verb == verbRelay {
			return // asks the log who leads
		}
		n := aloneNode(t)
		before := n.replica.State()
		if _, err := (backend{n}).Call(t.Context(), "beta", verb, body); err != nil {
			return
		}
		after := n.replica.State()
		if err := state.CheckStep(before, after); err != nil {
			t.Error(err)
		}
		if me := after.Nodes["alpha"]; me.Up {
			t.Error("beta spoke for alpha")
		}
	})
}

// FuzzRecall: a record that was damaged is an error, and no panic.
func FuzzRecall(f *testing.F) {
	f.Add([]byte(`{"token":3,"resources":[{"name":"data","kind":"fake","stop_timeout_ns":1000,"options":{"StopDelay":5}}]}`))
	f.Add([]byte(`{"token":3,"resources":[{"name":"data","kind":"other","options":null}]}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := aloneNode(t)
		if err := os.MkdirAll(n.heldDir(), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(n.heldFile("db"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		parts, err := n.partsHere("db")
		if err == nil && len(b) == 0 {
			t.Errorf("an empty record gave %d resources", len(parts))
		}
	})
}
