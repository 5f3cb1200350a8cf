package consensus

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestReplay: a node that starts without the others knows nothing but its snapshot; all of its log can be looked at.
func TestReplay(t *testing.T) {
	t.Parallel()
	for _, snapshot := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, time.Second, 2)
			c.startAll()
			c.allVote(5 * time.Second)
			leads := c.coordinator(5 * time.Second)
			for i := range 20 {
				leads.mustPropose(fmt.Sprint("command-", i))
				if i == 10 && snapshot {
					if err := leads.log.raft.Snapshot().Error(); err != nil {
						t.Fatal(err)
					}
				}
			}
			all := leads.fsm.entries()
			for _, n := range c.nodes {
				n.stop()
			}
			leads.start()
			time.Sleep(3 * c.detection)
			var seen history
			if err := leads.log.Replay(&seen); err != nil {
				t.Fatal(err)
			}
			if have := len(leads.fsm.entries()); have >= len(all) || !slices.Equal(seen.entries(), all) {
				t.Errorf("snapshot %v: %d applied, %d replayed, %d were there", snapshot, have, len(seen.entries()), len(all))
			}
			if newest := all[len(all)-1].index; leads.log.LastIndex() < newest {
				t.Errorf("last index %d, newest command %d", leads.log.LastIndex(), newest)
			}
		})
	}
}
