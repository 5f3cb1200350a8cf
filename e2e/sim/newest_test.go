package sim

import (
	"context"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// TestForceOnTheNewest: two of five are left, and one of them lacks what the others committed last. Quorum is forced on the other
// one, which holds the group, and goes on with it.
func TestForceOnTheNewest(t *testing.T) {
	nodes := []string{"alpha", "beta", "gamma", "delta", "epsilon"}
	run(t, Options{Nodes: nodes, Text: true, Detection: time.Second, Cluster: "on_quorum_loss = \"freeze\"\n" + quietPolicy, Keys: map[string]string{"db": `prefer = ["gamma"]`}}, func(t *testing.T, c *Cluster) {
		time.Sleep(3 * time.Second)
		c.Cut("alpha")
		c.WaitFor(time.Minute, "the others go on", func() bool { l := c.Coordinator(); return l != "" && l != "alpha" })
		time.Sleep(3 * time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := c.Operator(c.Coordinator()).Change(ctx, api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Node: "beta", By: "anna"}); err != nil {
			t.Fatal(err)
		}
		c.WaitFor(time.Minute, "db runs on beta", func() bool { return c.Owner("db") == "beta" && c.Runs("db") })
		for _, n := range nodes[2:] {
			c.CutPower(n)
		}
		time.Sleep(3 * time.Second) // if beta led, it does not any more, and brings alpha nothing
		c.Heal("alpha")
		events := len(c.Storage.Events())
		time.Sleep(5 * time.Second)
		c.mustNotForce("beta answers, and its log is newer", "alpha", nodes[2:]...)
		if _, err := c.force("beta", nodes[2:]...); err != nil {
			t.Fatal(err)
		}
		c.WaitFor(time.Minute, "beta goes on, and alpha follows", func() bool { return c.Coordinator() == "beta" && c.State().Nodes["alpha"].Up && c.Runs("db") })
		time.Sleep(10 * time.Second)
		if touched := c.disturbed(events, "db"); len(touched) > 0 {
			t.Errorf("what runs was touched: %v", touched)
		}
	})
}
