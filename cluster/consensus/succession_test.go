package consensus

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var deaths = flag.Int("deaths", 8, "how often a coordinator dies in each of the settings")

// TestSuccession: a new coordinator, proven by a commit, within 1.2 detection times of the death of the old one; and all
// follow it. The old one loses its power, or is cut off, at any point of its work.
func TestSuccession(t *testing.T) {
	t.Parallel()
	for _, detection := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second} {
		for _, write := range []time.Duration{time.Millisecond, 5 * time.Millisecond} {
			for _, n := range []int{3, 5} {
				t.Run(fmt.Sprintf("D=%s, write %s, n=%d", detection, write, n), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { succession(t, detection, write, n) })
				})
			}
		}
	}
}

func succession(t *testing.T, detection, write time.Duration, n int) {
	c := newCluster(t, detection, n)
	for _, n := range c.nodes {
		n.stores.Delay(write)
	}
	c.startAll()
	c.coordinator(3 * detection)
	c.allVote(3 * detection)
	random := rand.New(rand.NewPCG(uint64(detection), uint64(write)+uint64(n)))
	var took, whole []float64
	for death := range *deaths {
		old := c.coordinator(0)
		old.mustPropose(fmt.Sprintf("before-%d", death))
		time.Sleep(time.Duration(random.Int64N(int64(detection))))
		start := time.Now()
		off := death%2 == 0
		if off {
			c.network.Down(old.name)
			old.stop()
		} else {
			c.network.Isolate(old.name)
		}
		c.within(detection*6/5, "a new coordinator", func() bool {
			all := c.coordinators()
			if len(all) > 1 {
				t.Fatalf("%s and %s coordinate", all[0].name, all[1].name)
			}
			return len(all) == 1 && all[0] != old
		})
		took = append(took, float64(time.Since(start))/float64(detection))
		time.Sleep(time.Duration(random.Int64N(int64(2 * detection))))
		back := time.Now()
		if off {
			c.network.Up(old.name)
			old.start()
		} else {
			c.network.HealAll()
		}
		leader := c.coordinator(0)
		command := fmt.Sprintf("after-%d", death)
		leader.mustPropose(command)
		c.within(10*time.Second, "whole again", func() bool {
			for _, n := range c.nodes {
				if at, ok := n.log.Coordinator(); !ok || at != leader.name || !n.fsm.has(command) {
					return false
				}
			}
			return true
		})
		whole = append(whole, float64(time.Since(back))/float64(detection))
	}
	c.mustAgree()
	t.Logf("%d deaths: new coordinator after %s; whole again after %s", *deaths, spread(took), spread(whole))
}

// spread prints what a sample is like, in detection times.
func spread(all []float64) string {
	slices.Sort(all)
	at := func(q float64) float64 { return all[int(q*float64(len(all)-1))] }
	return fmt.Sprintf("p50 %.2f, p99 %.2f, max %.2f", at(0.5), at(0.99), at(1))
}
