package sim

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"
)

var deaths = flag.Int("deaths", 30, "how many coordinators of three nodes die for the figure of each detection time; of five, a third of that")

// TestNextCoordinator: the coordinator dies, again and again. Another one has committed an entry, hence acts, within 1.2 detection
// times of it, at every pace. The disks take their time, too.
func TestNextCoordinator(t *testing.T) {
	for _, detection := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second} {
		for _, nodes := range []int{3, 5} {
			t.Run(fmt.Sprintf("%s/%d nodes", detection, nodes), func(t *testing.T) {
				o := Options{Nodes: nineNodes[:nodes], Detection: detection, Seed: *firstSeed}
				run(t, o, func(t *testing.T, c *Cluster) {
					for _, n := range c.Nodes {
						c.SlowDisk(n, 2*time.Millisecond)
					}
					var took []time.Duration
					for range *deaths / (nodes - 2) {
						old := c.Coordinator()
						c.Crash(old)
						began := time.Now()
						c.WaitFor(detection*6/5, "another node coordinates", func() bool { return c.Coordinator() != "" })
						took = append(took, time.Since(began))
						time.Sleep(2 * detection)
						c.Boot(old) // it may have been shot, and be back
						c.WaitFor(time.Minute+10*detection, "all are in, and one coordinates", func() bool {
							return c.up() == nodes && c.Coordinator() != "" && c.State().OpenOperation(old) == nil
						})
						time.Sleep(2 * detection)
						c.WaitFor(10*detection, "one coordinates", func() bool { return c.Coordinator() != "" })
					}
					slices.Sort(took)
					t.Logf("median %.2f, worst %.2f detection times", took[len(took)/2].Seconds()/detection.Seconds(), took[len(took)-1].Seconds()/detection.Seconds())
				})
			})
		}
	}
}

// healLimit is the promise: within this time of the end of any cut, everybody is seen by everybody.
const healLimit = 10 * time.Second

// TestWholeAfterAnyCut: whatever was cut from whatever, one way or both, and for how long, every node sees all others alive again, and
// hears a coordinator, soon after.
func TestWholeAfterAnyCut(t *testing.T) {
	for _, nodes := range []int{2, 3, 5, 7} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			for _, long := range []time.Duration{5 * time.Second, 12 * time.Second, 45 * time.Second, 600 * time.Second} {
				// What is long in detection times is long enough; ten minutes of a large cluster are dear.
				detection := 3 * time.Second
				if long > time.Minute {
					detection = 10 * time.Second
				}
				t.Run(long.String(), func(t *testing.T) {
					run(t, Options{Nodes: nineNodes[:nodes], Prefer: []string{"alpha"}, Detection: detection, Seed: *firstSeed}, func(t *testing.T, c *Cluster) {
						c.whole(healLimit, c.Nodes...)
						for _, cut := range cutsOf(c.Nodes) {
							c.note("cut: %s for %s", cut.name, long)
							for _, way := range cut.ways {
								c.Net.Cut(way[0], way[1])
							}
							time.Sleep(long)
							c.note("healed")
							c.Net.HealAll()
							began := time.Now()
							c.whole(healLimit, c.Nodes...)
							t.Logf("%s: whole after %s", cut.name, time.Since(began).Round(10*time.Millisecond))
							time.Sleep(2 * detection)
							if len(c.State().Operations) > 0 {
								t.Fatalf("somebody was to be shot after the cut of %s\n%s", cut.name, c.Report())
							}
						}
						c.WaitRunning(10 * detection)
					})
				})
			}
		})
	}
}

type namedCut struct {
	name string
	ways [][2]string
}

// cutsOf are kinds of cuts that leave alpha, which holds the group, among those who hear each other, if anybody does.
func cutsOf(nodes []string) []namedCut {
	last, half := nodes[len(nodes)-1:], nodes[(len(nodes)+2)/2:]
	if len(nodes) == 2 {
		half = last
	}
	ways := func(from, to []string) (all [][2]string) {
		for _, a := range from {
			for _, b := range to {
				all = append(all, [2]string{a, b})
			}
		}
		return all
	}
	rest := func(of []string) []string {
		return slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return slices.Contains(of, n) })
	}
	return []namedCut{
		{"one", append(ways(last, rest(last)), ways(rest(last), last)...)},
		{"a minority", append(ways(half, rest(half)), ways(rest(half), half)...)},
		{"one's outgoing way", ways(last, rest(last))},
		{"one's incoming way", ways(rest(last), last)},
	}
}
