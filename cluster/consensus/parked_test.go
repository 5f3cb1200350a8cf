package consensus

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestParkedVoter: of two voters, one takes its leave. The other commits without it, for as long as it is away; when it is
// counted on again, it catches up, and votes.
func TestParkedVoter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Second, 2)
		var parked atomic.Pointer[[]string]
		parked.Store(&[]string{})
		for _, n := range c.nodes {
			n.start(func(cfg *Config) { cfg.Parked = func() []string { return *parked.Load() } })
		}
		c.allVote(5 * time.Second)
		stays := c.coordinator(5 * time.Second)
		goes := c.others(stays)[0]
		leave := []string{goes.name}
		parked.Store(&leave)
		c.within(2*time.Second, "parked", func() bool { return stays.votersAre(stays.name) })
		goes.stop()
		for range 20 {
			stays.mustPropose("alone")
			time.Sleep(c.detection / 4)
		}
		goes.start()
		time.Sleep(5 * c.detection)
		if !stays.votersAre(stays.name) || len(c.coordinators()) != 1 || c.coordinators()[0] != stays {
			t.Errorf("one that is parked votes: %+v", stays.log.Status().Voters)
		}
		parked.Store(&[]string{})
		both := slices.Sorted(slices.Values(c.names))
		c.within(5*time.Second, "both vote", func() bool { return stays.votersAre(both...) })
		stays.mustPropose("together")
		c.mustAgree()
	})
}
