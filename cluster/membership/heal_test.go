package membership

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// cuts part the nodes in every way that matters.
var cuts = map[string]func(c *cluster){
	"isolate": func(c *cluster) { c.network.Isolate(c.names[0]) },
	"half": func(c *cluster) {
		for i, a := range c.names {
			for j, b := range c.names {
				if i%2 != j%2 {
					c.network.Cut(a, b)
				}
			}
		}
	},
	"one way out": func(c *cluster) {
		for _, b := range c.names[1:] {
			c.network.Cut(c.names[0], b)
		}
	},
	"one way in": func(c *cluster) {
		for _, b := range c.names[1:] {
			c.network.Cut(b, c.names[0])
		}
	},
}

// TestHealsAfterEveryCut: all see all again within 10 s of the end of a cut of any length and
// kind, and it stays so. memberlist alone never gets there (hashicorp/memberlist#222).
func TestHealsAfterEveryCut(t *testing.T) {
	const limit = 10 * time.Second
	var mu sync.Mutex
	took := make(map[string]time.Duration)
	t.Run("cut", func(t *testing.T) {
		for name, cut := range cuts {
			for _, n := range []int{2, 3, 5, 7} {
				for _, length := range []time.Duration{5 * time.Second, 12 * time.Second, 45 * time.Second, 600 * time.Second} {
					if raceDetector && (n == 7 || length > time.Minute && n != 3) {
						continue
					}
					detection := time.Second
					if length > time.Minute { // ten minutes of gossip cost seconds of real time each
						detection = 10 * time.Second
						if n > 3 && name != "isolate" {
							continue
						}
					}
					t.Run(fmt.Sprintf("%s/n=%d/%s", name, n, length), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							c := newCluster(t, detection, n, uint64(length))
							cut(c)
							time.Sleep(length)
							if c.whole() && !strings.HasPrefix(name, "one way") {
								t.Fatal("the cut had no effect")
							}
							c.network.HealAll()
							d := c.within(limit, "whole again", c.whole)
							healed := time.Now()
							time.Sleep(5 * c.detection)
							if deaths := c.deaths(healed); len(deaths) > 0 || !c.whole() {
								t.Errorf("healed in %s, and then: %v", d, deaths)
							}
							mu.Lock()
							defer mu.Unlock()
							key := fmt.Sprintf("%3.0f s, %d nodes", length.Seconds(), n)
							took[key] = max(took[key], d)
						})
					})
				}
			}
		}
	})
	for _, key := range slices.Sorted(maps.Keys(took)) {
		t.Logf("cut of %s: whole again after %.2f s at most", key, took[key].Seconds())
	}
}
