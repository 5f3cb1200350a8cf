package sim

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
)

// TestManyGroupsFailOver: a node is lost that held many groups, and a disk takes its time for each write of the log. It
// must not take that time for each group, one after the other.
func TestManyGroupsFailOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const groups, write = 100, 5 * time.Millisecond
		o := Options{Prefer: []string{"beta"}}
		for i := range groups {
			o.Groups = append(o.Groups, fmt.Sprintf("group%02d", i))
		}
		c := New(t, o)
		for _, h := range c.hosts {
			h.stores.Delay(write)
		}
		c.Start()
		c.Crash("beta")
		c.WaitFor(20*time.Second, "beta is proven off", func() bool { return !c.State().Nodes["beta"].Up })
		began := time.Now()
		c.WaitRunning(10 * time.Second)
		// One by one, each costs a write of the coordinator and then one of another voter.
		if took := time.Since(began); took > groups*write {
			t.Errorf("%s for %d groups", took, groups)
		} else {
			t.Logf("%s for %d groups", took, groups)
		}
		tokens := map[uint64]string{}
		for name, g := range c.State().Groups {
			if g.Grant.Phase != state.Started || tokens[g.Grant.Token] != "" {
				t.Errorf("%s: %+v, and %q", name, g.Grant, tokens[g.Grant.Token])
			}
			tokens[g.Grant.Token] = name
		}
	})
}
