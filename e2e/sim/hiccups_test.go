package sim

import (
	"testing"
	"time"
)

// TestHiccupsDelayNoShot: while a node is dead another one is cut off again and again, each time for far less than the detection
// time. That takes from the coordinator the times in which it hears no majority, and no more: in the end the dead one is missed.
func TestHiccupsDelayNoShot(t *testing.T) {
	run(t, Options{Prefer: []string{"beta", "alpha", "gamma"}}, func(t *testing.T, c *Cluster) {
		owner, leader := c.Owner("db"), c.Coordinator()
		for owner == leader {
			c.RestartDaemon(leader, time.Second)
			time.Sleep(10 * time.Second)
			owner, leader = c.Owner("db"), c.Coordinator()
		}
		third := other(c, owner, leader)
		before := token(c)
		c.Freeze(owner)
		died := time.Now()
		for time.Since(died) < 20*c.Detection && token(c) == before {
			c.Cut(third)
			time.Sleep(c.Detection * 3 / 10)
			c.Heal(third)
			time.Sleep(c.Detection / 2)
		}
		if took := time.Since(died); token(c) == before || took > 8*c.Detection {
			t.Errorf("missed after %s: %t", took, token(c) != before)
		} else {
			t.Logf("taken over after %s", took)
		}
	})
}
