package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// index is where an event first is, after a place; -1 if nowhere.
func index(all []string, after int, prefix string) int {
	for i := after; i < len(all); i++ {
		if strings.HasPrefix(all[i], prefix) {
			return i
		}
	}
	return -1
}

// history is what happened to all groups' resources, as "what group/resource".
func history(c *Cluster) (all []string) {
	for _, e := range c.Storage.Events() {
		all = append(all, fmt.Sprintf("%s %s/%s", e.What, e.Group, e.Resource))
	}
	return all
}

// TestAfterThroughLoss: the node of db is lost. web, elsewhere, is stopped before db is started again, and started after.
func TestAfterThroughLoss(t *testing.T) {
	keys := map[string]string{"web": "after = [\"db\"]\napart = [\"db\"]"}
	run(t, Options{Groups: []string{"db", "web"}, Keys: keys}, func(t *testing.T, c *Cluster) {
		if all := history(c); index(all, 0, "starting web/data") < index(all, 0, "started db/app") {
			t.Errorf("web did not wait: %v", all)
		}
		lost, before := c.Owner("db"), len(history(c))
		c.Crash(lost)
		c.WaitFor(30*time.Second, "both run elsewhere", func() bool { return c.Owner("db") != lost && c.Runs("db") && c.Runs("web") })
		all := history(c)
		stopped, again, started := index(all, before, "stopped web/data"), index(all, before, "started db/app"), index(all, before, "starting web/data")
		if stopped < 0 || started < again {
			t.Errorf("web stopped at %d, db started at %d, web started at %d: %v", stopped, again, started, all[before:])
		}
	})
}

// TestAfterThroughMove: db moves; web is stopped first and started last.
func TestAfterThroughMove(t *testing.T) {
	run(t, Options{Groups: []string{"db", "web"}, Keys: map[string]string{"web": `after = ["db"]`}}, func(t *testing.T, c *Cluster) {
		to, before := other(c, c.Owner("db"), c.Owner("db")), len(history(c))
		change(t, c, api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Node: to})
		runsAt(t, c, "db", to, 20*time.Second)
		c.WaitRunning(20 * time.Second)
		all := history(c)
		down, stop, up, start := index(all, before, "stopped web/data"), index(all, before, "stopping db/app"), index(all, before, "started db/app"), index(all, before, "starting web/data")
		if down < 0 || stop < down || up < stop || start < up {
			t.Errorf("%d %d %d %d: %v", down, stop, up, start, all[before:])
		}
		quiet(t, c)
	})
}

// TestWithThroughLoss: two groups that belong together go together.
func TestWithThroughLoss(t *testing.T) {
	run(t, Options{Groups: []string{"db", "web"}, Keys: map[string]string{"web": `with = ["db"]`}}, func(t *testing.T, c *Cluster) {
		lost := c.Owner("db")
		if c.Owner("web") != lost {
			t.Fatalf("db on %s, web on %s", lost, c.Owner("web"))
		}
		c.Crash(lost)
		c.WaitFor(30*time.Second, "both run elsewhere", func() bool { return c.Owner("db") != lost && c.Runs("db") && c.Runs("web") })
		if c.Owner("db") != c.Owner("web") {
			t.Errorf("db on %s, web on %s", c.Owner("db"), c.Owner("web"))
		}
		to := other(c, c.Owner("db"), lost)
		change(t, c, api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Node: to})
		runsAt(t, c, "db", to, 30*time.Second)
		runsAt(t, c, "web", to, 30*time.Second)
	})
}

// TestApartThroughLoss: two groups that must not meet do not, and the second one waits where there is only one node.
func TestApartThroughLoss(t *testing.T) {
	run(t, Options{Groups: []string{"db", "web"}, Keys: map[string]string{"web": `apart = ["db"]`}, Cluster: "fence_action = \"off\"\nstorm_window = \"0s\"\nquarantine_window = \"0s\"\n"}, func(t *testing.T, c *Cluster) {
		apart := func(long time.Duration) {
			t.Helper()
			for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if db, web := c.Storage.Holders("db"), c.Storage.Holders("web"); len(db) > 0 && slices.Equal(db, web) {
					t.Fatalf("both on %v\n%s", db, c.Report())
				}
			}
		}
		lost := c.Owner("db")
		c.Crash(lost)
		apart(20 * time.Second)
		c.WaitRunning(time.Second)
		change(t, c, api.ChangeRequest{Verb: api.ChangeStandby, Node: c.Owner("web")})
		apart(20 * time.Second)
		if c.Owner("web") != "" {
			t.Errorf("web on %s, db on %s", c.Owner("web"), c.Owner("db"))
		}
	})
}
