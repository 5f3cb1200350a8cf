package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/link"
	"github.com/hamgr/hamgr/cluster/state"
)

func TestPowerOfSeveralPlugs(t *testing.T) {
	plug := func(level int, s string) api.PlugStatus { return api.PlugStatus{Level: level, State: s} }
	for _, c := range []struct {
		plugs []api.PlugStatus
		want  agents.PowerState
	}{
		{nil, agents.Unknown},
		{[]api.PlugStatus{plug(1, "off")}, agents.Off},
		{[]api.PlugStatus{plug(1, "off"), plug(1, "unknown")}, agents.Unknown},
		{[]api.PlugStatus{plug(1, "unknown"), plug(1, "off")}, agents.Unknown},
		{[]api.PlugStatus{plug(1, "off"), plug(1, "on")}, agents.On},
		{[]api.PlugStatus{plug(1, "unknown"), plug(2, "off"), plug(2, "off")}, agents.Off},
		{[]api.PlugStatus{plug(1, "off"), plug(2, "on")}, agents.On},
	} {
		if got := power(c.plugs); got != c.want {
			t.Errorf("%+v: %s, want %s", c.plugs, got, c.want)
		}
	}
}

func TestRunDirIsOfThisBoot(t *testing.T) {
	base := t.TempDir()
	old, err := runDir(Setup{RunDir: base, Boot: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old, "pid"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := runDir(Setup{RunDir: base, Boot: "one"}); err != nil || again != old {
		t.Fatal(again, err)
	}
	if _, err := os.Stat(filepath.Join(old, "pid")); err != nil {
		t.Errorf("a restart in the same boot lost what it ran: %v", err)
	}
	if _, err := runDir(Setup{RunDir: base, Boot: "two"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old boot's directory is still there: %v", err)
	}
}

func TestReplicaRestores(t *testing.T) {
	woken := 0
	var fatal error
	r := newReplica(state.Version, nil, func(err error) { fatal = err })
	r.onChange(func() { woken++ })
	b, err := state.Command{Configure: &state.Configure{Cluster: "web", Digest: "d", Nodes: []state.ConfigNode{{Name: "alpha", Role: state.Member}}}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if res := r.Apply(7, b).(state.Result); res.Err != nil {
		t.Fatal(res.Err)
	}
	if res := r.Apply(8, []byte("{")).(state.Result); res.Err == nil {
		t.Error("half a command was taken")
	}
	if fatal != nil {
		t.Errorf("half a command is fatal: %v", fatal)
	}
	snap, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	other := newReplica(state.Version, nil, func(error) {})
	if err := other.Restore(snap); err != nil {
		t.Fatal(err)
	}
	if s := other.State(); s.Cluster != "web" || s.Applied != 7 || s.Nodes["alpha"] == nil {
		t.Errorf("restored %+v", s)
	}
	for _, bad := range []string{"[", `{"cluster":"x"}{}`, `{"cluster":"x","promoted":{}}`} {
		if err := other.Restore([]byte(bad)); err == nil || other.State().Cluster != "web" {
			t.Errorf("%s replaced the state", bad)
		}
	}
	if r.Apply(9, []byte(`{"v":99}`)); !errors.Is(fatal, state.ErrVersion) {
		t.Errorf("a command of a newer format was passed over: %v", fatal)
	}
	if _, err := r.Snapshot(); err == nil {
		t.Error("a state that misses an entry became a snapshot")
	}
	if woken < 2 {
		t.Error("nobody was told")
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	for kind, err := range errorKinds {
		if got := kindOf(err); got != kind {
			t.Errorf("%v is %q, want %q", err, got, kind)
		}
	}
	if kindOf(errors.New("other")) != "" {
		t.Error("any error has a kind")
	}
}

func TestDigestIsOfWhatIsReplicated(t *testing.T) {
	a := &config.Config{Cluster: config.Cluster{Name: "web"}, Groups: []config.Group{{Name: "db"}}}
	b := &config.Config{Cluster: config.Cluster{Name: "web", DataDir: "/elsewhere"}, Groups: []config.Group{{Name: "db"}}}
	c := &config.Config{Cluster: config.Cluster{Name: "web"}, Groups: []config.Group{{Name: "db", Prefer: []string{"alpha"}}}}
	if seed(a).Digest != seed(b).Digest || seed(a).Digest == seed(c).Digest {
		t.Error(seed(a), seed(b), seed(c))
	}
}

func TestStartWithoutOwnNode(t *testing.T) {
	_, err := Start(t.Context(), Setup{
		Config: &config.Config{Path: "hamgr.toml", Nodes: []config.Node{{Name: "alpha"}}}, Self: "omega", Log: slog.New(slog.DiscardHandler),
	})
	if err == nil || !strings.Contains(err.Error(), `"omega"`) || !strings.Contains(err.Error(), "--node") {
		t.Errorf("got %v", err)
	}
}

func TestTimings(t *testing.T) {
	c := &config.Config{Cluster: config.Cluster{DetectionTime: 3 * time.Second}, Nodes: []config.Node{{Name: "alpha", Role: config.Member}}}
	times, worst := Timings(c)
	if len(times) == 0 || len(worst) != 1 || worst[0].Total() < 3*time.Second {
		t.Errorf("%v %v", times, worst)
	}
	if coordinator.StallLimit(time.Second) < 11*time.Second {
		t.Error("a follower that lags 11 s after a long cut would be shot")
	}
}

func TestLinkErrorEndsWithTheNextReceipt(t *testing.T) {
	for _, c := range []struct {
		packet, stream, failed int64
		shown                  bool
	}{
		{link.Never, link.Never, 5, true},
		{20, link.Never, 5, true},
		{3, link.Never, 5, false},
		{link.Never, 3, 5, false},
	} {
		n := &Node{Setup: Setup{Self: "alpha", Config: &config.Config{Cluster: config.Cluster{DetectionTime: time.Second}}}}
		st := n.linkStatus("beta", link.LinkHealth{InAgeMS: c.packet, StreamAgeMS: c.stream, LastError: "refused", LastErrorAgeMS: c.failed})
		if (st.Error != "") != c.shown {
			t.Errorf("%+v: error %q", c, st.Error)
		}
	}
}
