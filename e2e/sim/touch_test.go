package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestOneAfterTheOther: a node is cut off for a moment, and when it is back the coordinator is. Whoever was cut off itself heard nobody,
// and must not take that for silence of the next one when it coordinates then.
func TestOneAfterTheOther(t *testing.T) {
	for _, nodes := range []int{3, 4, 5} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(*firstSeed, 4))
			run(t, Options{Nodes: nineNodes[:nodes], Groups: []string{"db", "web", "mail"}, Detection: time.Second, Seed: *firstSeed}, func(t *testing.T, c *Cluster) {
				for i := range 100 {
					b := c.Coordinator()
					for b == "" || c.Owner("db") != b { // so that it matters
						if b == "" {
							time.Sleep(time.Second)
						}
						if b = c.Coordinator(); b != "" {
							break
						}
					}
					a := c.Nodes[(slices.Index(c.Nodes, b)+1)%nodes]
					c.Cut(a)
					time.Sleep(time.Duration((0.3 + 0.2*rng.Float64()) * float64(c.Detection)))
					c.Cut(b) // before, so that not a byte of it reaches a
					c.Heal(a)
					time.Sleep(c.Detection * 79 / 100)
					lead := c.Coordinator()
					c.Heal(b)
					if lead == a {
						t.Logf("round %d: led by the one that was cut off first", i)
					}
					time.Sleep(3 * c.Detection)
					if len(c.State().Operations) > 0 {
						t.Fatalf("round %d: %s and %s were healthy\n%s", i, a, b, c.Report())
					}
				}
			})
		})
	}
}
