package consensus

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestStartRefuses(t *testing.T) {
	ok := Config{Self: "a", Voters: []string{"a", "b"}, Link: deadLink{}, FSM: &history{}, DetectionTime: time.Second, Stores: MemoryStores()}
	for name, change := range map[string]func(*Config){
		"no link":         func(c *Config) { c.Link = nil },
		"no fsm":          func(c *Config) { c.FSM = nil },
		"no folder":       func(c *Config) { c.Stores = nil },
		"too fast":        func(c *Config) { c.DetectionTime = time.Millisecond },
		"not a voter":     func(c *Config) { c.Self = "c" },
		"voter twice":     func(c *Config) { c.Voters = []string{"a", "b", "b"} },
		"slash in a name": func(c *Config) { c.Voters = []string{"a", "b/c"} },
	} {
		cfg := ok
		cfg.Voters = slices.Clone(ok.Voters)
		change(&cfg)
		if _, err := Start(context.Background(), cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// deadLink is never used.
type deadLink struct{ Link }

func TestTimingIsAcceptedByRaft(t *testing.T) {
	for _, d := range []time.Duration{minDetection, 500 * time.Millisecond, 3 * time.Second, time.Minute} {
		timing := DeriveTiming(d)
		c := raft.DefaultConfig()
		c.LocalID, c.HeartbeatTimeout, c.ElectionTimeout = "a", timing.Heartbeat, timing.Election
		c.LeaderLeaseTimeout, c.CommitTimeout = timing.Lease, timing.Commit
		if err := raft.ValidateConfig(c); err != nil {
			t.Errorf("%s: %v", d, err)
		}
		if timing.RPC >= timing.Lease || timing.StoreDeadline >= d {
			t.Errorf("%s: %+v", d, timing)
		}
	}
}
