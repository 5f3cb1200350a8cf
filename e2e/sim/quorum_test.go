package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	bmc "github.com/hamgr/hamgr/agents/fake"
)

// split cuts the nodes into pieces that do not hear each other.
func (c *Cluster) split(pieces ...[]string) {
	c.note("split into %v", pieces)
	for i, piece := range pieces {
		for j, other := range pieces {
			if i == j {
				continue
			}
			for _, from := range piece {
				for _, to := range other {
					c.Net.Cut(from, to)
				}
			}
		}
	}
}

// TestMinorityLetsGo: the owner is cut off, and cannot be shot. It stops its group after twice the detection time, and not much
// later; or it freezes it, as configured. Nobody takes the group over
// without a proof.
func TestMinorityLetsGo(t *testing.T) {
	for _, detection := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second} {
		for _, freezes := range []bool{false, true} {
			for _, ownerLeads := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/freeze %v/owner leads %v", detection, freezes, ownerLeads), func(t *testing.T) {
					o := Options{Detection: detection}
					if freezes {
						o.Cluster = "on_quorum_loss = \"freeze\"\nstorm_window = \"0s\"\nquarantine_window = \"0s\"\n"
					}
					pick(t, o, ownerLeads, func(t *testing.T, c *Cluster, owner string) {
						before := token(c)
						c.BMC[owner].Behave(bmc.Behavior{Command: "refuse"})
						c.Cut(owner)
						began := time.Now()
						if freezes {
							time.Sleep(20 * detection)
							if len(c.Storage.Active()) != 2 {
								t.Errorf("active %v", c.Storage.Active())
							}
						} else {
							c.WaitFor(detection*9/4+100*time.Millisecond, "the group is let go", func() bool { return len(c.Storage.Active()) == 0 })
							t.Logf("after %.2f detection times", time.Since(began).Seconds()/detection.Seconds())
						}
						time.Sleep(time.Minute)
						if token(c) != before {
							t.Errorf("token %d after %d, without a proof\n%s", token(c), before, c.Report())
						}
						c.BMC[owner].Behave(bmc.Behavior{})
						c.Heal(owner)
						c.WaitRunning(10*detection + 90*time.Second)
					})
				})
			}
		}
	}
}

// TestNoMajorityAnywhere: the nodes fall into pieces, none of which is a majority. All stay up and shoot nobody; what they ran they have
// let go, or keep, as configured. After the cut everything runs again soon, and still nobody is shot.
func TestNoMajorityAnywhere(t *testing.T) {
	for _, sizes := range [][]int{{1, 1}, {1, 1, 1}, {2, 2}, {2, 2, 1}} {
		for _, freezes := range []bool{false, true} {
			for _, long := range []time.Duration{5 * time.Second, time.Minute} {
				t.Run(fmt.Sprintf("%v/freeze %v/%s", sizes, freezes, long), func(t *testing.T) {
					pieces, nodes := [][]string{}, nineNodes
					for _, n := range sizes {
						pieces, nodes = append(pieces, nodes[:n]), nodes[n:]
					}
					o := Options{Nodes: slices.Concat(pieces...), Groups: []string{"db", "web", "mail"}, Detection: time.Second}
					if freezes {
						o.Cluster = "on_quorum_loss = \"freeze\"\nstorm_window = \"0s\"\nquarantine_window = \"0s\"\n"
					}
					run(t, o, func(t *testing.T, c *Cluster) {
						tokens, events := c.State().LastToken, len(c.Storage.Events())
						c.split(pieces...)
						time.Sleep(long)
						quiet(t, c)
						if active := len(c.Storage.Active()); freezes && active != 6 || !freezes && active != 0 {
							t.Errorf("%d resources active", active)
						}
						if c.State().LastToken != tokens {
							t.Errorf("granted without a majority: token %d after %d", c.State().LastToken, tokens)
						}
						c.Net.HealAll()
						c.WaitRunning(5 * c.Detection)
						c.whole(10*time.Second, c.Nodes...)
						time.Sleep(10 * time.Second)
						quiet(t, c)
						for _, n := range c.Nodes {
							if c.State().Nodes[n].Boot != n+"-boot1" || len(c.commands(n)) > 0 {
								t.Errorf("%s is in %s, and was ordered %v", n, c.State().Nodes[n].Boot, strings.Join(c.commands(n), ", "))
							}
						}
						if freezes && len(c.touched(events)) > 0 {
							t.Errorf("frozen, and yet %v", c.touched(events))
						}
					})
				})
			}
		}
	}
}
