package coordinator

import (
	"context"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
)

// failureExpiry is how long a failure keeps a group away from a node, as long as the coordinator
// stays the same; a new one starts to count anew.
const failureExpiry = 10 * time.Minute

// failure is one failure in the state; a further one on the same node has another count.
type failure struct {
	group, node string
	count       int
}

// expireFailures forgets failures that are old enough, so that a group is tried again.
func (c *Coordinator) expireFailures(ctx context.Context) {
	s := c.cfg.State()
	known := map[failure]time.Time{}
	for _, name := range s.GroupNames() {
		for node, f := range s.Groups[name].Failures {
			k := failure{name, node, f.Count}
			since, ok := c.failing[k]
			if !ok {
				since = time.Now()
			}
			known[k] = since
			if time.Since(since) < failureExpiry {
				continue
			}
			if _, err := c.commit(ctx, state.Command{Clear: &state.Clear{Group: name, Node: node}}); err == nil {
				c.cfg.Log.Info("failure expired", "group", name, "node", node, "after", failureExpiry)
			}
		}
	}
	c.failing = known
}
