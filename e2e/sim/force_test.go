package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/state"
)

// force has an operator force quorum at a host.
func (c *Cluster) force(host string, down ...string) (api.ForceResult, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c.Operator(host).ForceQuorum(ctx, api.ForceRequest{Node: host, Down: down, By: "anna", Reason: "the others burnt"})
}

func (c *Cluster) mustNotForce(because, host string, down ...string) {
	c.t.Helper()
	res, err := c.force(host, down...)
	var e *api.Error
	if !errors.As(err, &e) || !strings.Contains(e.Message, because) || res.Forced {
		c.t.Errorf("force on %s, %v down: %+v, %v; want %q", host, down, res, err, because)
	}
}

// TestForce: two of three nodes are gone for good. What speaks against a forced quorum is said; then one goes on, with a token far
// beyond all that were, and takes nothing over that the others may hold before they are proven off. When one of them returns in
// the same boot, what runs there goes on without a restart, under its grant.
func TestForce(t *testing.T) {
	run(t, Options{Groups: []string{"db", "web"}, Keys: map[string]string{"db": `prefer = ["alpha"]`, "web": `prefer = ["beta"]`}, Text: true, Detection: time.Second, Cluster: "on_quorum_loss = \"freeze\"\n" + quietPolicy}, func(t *testing.T, c *Cluster) {
		time.Sleep(3 * time.Second)
		c.mustNotForce("there is a coordinator", "alpha", "beta", "gamma")
		c.CutPower("gamma")
		time.Sleep(3 * time.Second)
		c.mustNotForce("there is a coordinator", "alpha", "gamma")
		c.BMC["beta"].Behave(dead)
		last, events := c.State().LastToken, len(c.Storage.Events())
		c.Cut("beta")
		time.Sleep(5 * time.Second)
		c.mustNotForce("you vouch for none", "alpha")
		c.mustNotForce("you vouch for gamma", "alpha", "gamma")
		res, err := c.force("alpha", "beta", "gamma")
		if err != nil || !res.Forced || res.Token != last+state.Lift {
			t.Fatalf("not forced: %+v, %v", res, err)
		}
		c.WaitFor(time.Minute, "alpha goes on", func() bool { return c.alone("alpha") && len(c.State().Forced) == 1 })
		time.Sleep(30 * time.Second)
		if c.State().LastToken < last+state.Lift || c.Owner("web") == "alpha" && len(c.held("beta")) > 0 {
			t.Errorf("last token %d, web on %s", c.State().LastToken, c.Owner("web"))
		}
		c.Heal("beta")
		c.Boot("gamma")
		c.WaitFor(2*time.Minute, "all are in, and all vote", func() bool {
			d := c.hosts["alpha"].daemon()
			return d != nil && c.up() == 3 && len(d.Voting()) == 3 && c.Runs("db") && c.Runs("web")
		})
		if touched := c.disturbed(events, "db", "web"); len(touched) > 0 || c.State().Nodes["beta"].Boot != "beta-boot1" {
			t.Errorf("what runs was touched: %v", touched)
		}
	})
}

// TestForceWithoutTheNewest: the log of the one that goes on lacks a grant that the others committed. Nothing is granted that they
// may hold, until they are proven off.
func TestForceWithoutTheNewest(t *testing.T) {
	run(t, Options{Text: true, Detection: time.Second, Keys: map[string]string{"db": `prefer = ["beta", "gamma"]`}}, func(t *testing.T, c *Cluster) {
		time.Sleep(3 * time.Second)
		c.Cut("alpha") // which holds nothing, and misses what comes now
		c.WaitFor(time.Minute, "the others go on", func() bool { l := c.Coordinator(); return l != "" && l != "alpha" })
		time.Sleep(3 * time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := c.Operator(c.Coordinator()).Change(ctx, api.ChangeRequest{Verb: api.ChangeMove, Group: "db", Node: "gamma", By: "anna"}); err != nil {
			t.Fatal(err)
		}
		c.WaitFor(time.Minute, "db runs on gamma", func() bool { return c.Owner("db") == "gamma" && c.Runs("db") })
		tokens := c.State().LastToken
		// beta and gamma are cut from alpha, which alone can be reached by the operator; their devices are dead.
		for _, n := range []string{"beta", "gamma"} {
			c.BMC[n].Behave(dead)
			c.Cut(n)
		}
		c.Heal("alpha")
		time.Sleep(3 * time.Second)
		if _, err := c.force("alpha", "beta", "gamma"); err != nil {
			t.Fatal(err)
		}
		c.WaitFor(time.Minute, "alpha goes on", func() bool { return c.alone("alpha") && len(c.State().Forced) == 1 })
		time.Sleep(time.Minute)
		if slices.Contains(c.Storage.Holders("db"), "alpha") {
			t.Errorf("taken over from nodes of which nothing is proven: %v", c.Storage.Active())
		}
		for _, n := range []string{"beta", "gamma"} {
			c.BMC[n].Behave(quick)
			c.BMC[n].Release()
			c.CutPower(n)
		}
		c.WaitFor(3*time.Minute, "db runs", func() bool { return c.Runs("db") })
		if got := token(c); got <= tokens+state.Lift/2 {
			t.Errorf("token %d after %d", got, tokens)
		}
	})
}

// TestForceAndDie: the node that goes on by force loses its power at some moment on the way. It goes on where it was.
func TestForceAndDie(t *testing.T) {
	for after := time.Duration(0); after < 1200*time.Millisecond; after += 100 * time.Millisecond {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			run(t, Options{Text: true, Detection: time.Second, Keys: map[string]string{"db": `prefer = ["alpha"]`}}, func(t *testing.T, c *Cluster) {
				time.Sleep(3 * time.Second)
				last := c.State().LastToken
				c.CutPower("beta")
				c.CutPower("gamma")
				time.Sleep(3 * time.Second)
				if _, err := c.force("alpha", "beta", "gamma"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(after)
				c.Reboot("alpha", time.Second)
				c.WaitFor(time.Minute, "it goes on", func() bool { return c.Runs("db") && len(c.State().Forced) > 0 })
				if got := token(c); got <= last+state.Lift {
					t.Errorf("token %d after %d", got, last)
				}
				c.Boot("beta")
				c.Boot("gamma")
				c.WaitFor(time.Minute, "all vote", func() bool { d := c.hosts["alpha"].daemon(); return d != nil && c.up() == 3 && len(d.Voting()) == 3 })
			})
		})
	}
}
